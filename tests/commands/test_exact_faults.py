"""A wrong byte on which an answer rests leaves no hits, no certificate and no verdict; with
``--check-all`` any wrong byte of bounds or vectors does."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.commands.test_faults import DAMAGES, damaged
from tests.support.adversarial import adversary
from tests.support.running import Outcome, histograms, invoke, names_in, succeed

pytestmark = pytest.mark.slow

BOUND_PARTS, VECTOR_PARTS = 12, 24
BOUND_FILES = {
    "coordinates": "coordinates/c/{}/0",
    "terms": "terms/c/{}/0",
    "receipts": "receipts/c/{}/0",
}
VECTOR_FILES = {"vectors": "vectors/c/{}/0", "receipts": "receipts/c/{}/0"}
FIND = ("--kernel", "chi2", "--encoder", "kpca-bound", "--landmarks", 512, "--components", 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vectors in 24 parts, bounds in 12, one query, and its true hits."""
    folder = tmp_path_factory.mktemp("faults")
    np.save(folder / "base.npy", histograms(3000, 24, seed=1))
    np.save(folder / "queries.npy", histograms(1, 24, seed=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 3 << 10)
        succeed(f"ingest {folder}/base.npy {folder}/vectors")
    succeed(f"encode {folder}/vectors {folder}/bounds", *FIND, "--part-rows", 256)
    (folder / "out").mkdir()
    succeed(f"search {folder}/bounds {folder}/queries.npy -k 3 --exact --out {folder}/true.npz")
    return folder


def search(folder: Path, store: str = "bounds", *options: object) -> Outcome:
    """Search exactly into an empty folder; what is kept to resume is removed again."""
    out = folder / "out/hits.npz"
    words = f"search {folder}/{store} {folder}/queries.npy -k 3 --exact --check-all --out {out}"
    outcome = invoke(words, *options)
    assert set(names_in(folder / "out")) <= {"hits.npz.parts"}, outcome
    shutil.rmtree(f"{out}.parts", ignore_errors=True)
    return outcome


def assert_names_part(outcome: Outcome, store: Path, part: int) -> None:
    assert (outcome.code, outcome.out) == (1, ""), outcome
    assert outcome.err.startswith(f"mercore: {store}: part {part}: "), outcome.err
    assert outcome.err.count("\n") == 1


def verify(folder: Path) -> Outcome:
    words = (f"verify {folder}/vectors {folder}/queries.npy {folder}/true.npz --kernel chi2",)
    return invoke(*words, "--check-all", "--bounds", folder / "bounds")


@pytest.mark.promise(
    "A wrong byte that an exact answer does not rest on changes no answer, and `check` finds it"
)
def test_a_wrong_byte_that_is_not_read_changes_no_answer_and_check_finds_it(folder: Path) -> None:
    words = f"search {folder}/bounds {folder}/queries.npy -k 3 --exact"
    right, rng = succeed(words), np.random.default_rng(7)
    refused = 0
    for part in range(VECTOR_PARTS):
        with damaged(folder / f"vectors/vectors/c/{part}/0", DAMAGES["a bit flipped"], rng):
            outcome = invoke(words)
            if outcome.code == 0:
                assert outcome.out == right
            else:
                assert_names_part(outcome, folder / "vectors", part)
                refused += 1
            (fault,) = json.loads(invoke(f"check {folder}/vectors --json").out)["faults"]
            assert f"{folder}/vectors: part {part}: " in fault
    assert 0 < refused < VECTOR_PARTS


def test_one_query_needs_few_parts_of_the_vectors(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mercore.pipeline.search.thread_executor import ThreadExecutor

    monkeypatch.setattr(
        ThreadExecutor,
        "check_rest",
        lambda executor: pytest.fail(str(len(executor.vectors.unread))),
    )
    with pytest.raises(pytest.fail.Exception) as caught:
        search(folder)
    shutil.rmtree(folder / "out/hits.npz.parts")
    assert 1 <= int(str(caught.value)) < VECTOR_PARTS


@pytest.mark.parametrize(
    ("store", "column", "key", "parts"),
    [
        *(("bounds", column, key, BOUND_PARTS) for column, key in BOUND_FILES.items()),
        *(("vectors", column, key, VECTOR_PARTS) for column, key in VECTOR_FILES.items()),
    ],
)
@pytest.mark.promise("A byte that is wrong or missing means no answer")
def test_a_flipped_bit_in_any_chunk(
    store: str, column: str, key: str, parts: int, folder: Path
) -> None:
    rng = np.random.default_rng(parts + len(column))
    for part in range(parts):
        with damaged(folder / store / key.format(part), DAMAGES["a bit flipped"], rng):
            assert_names_part(search(folder), folder / store, part)


@pytest.mark.parametrize("kind", ["deleted", "truncated", "zeroed"])
@pytest.mark.parametrize("store", ["bounds", "vectors"])
def test_other_damage_to_search_and_to_verify(store: str, kind: str, folder: Path) -> None:
    rng = np.random.default_rng(len(kind))
    files, parts = (BOUND_FILES, BOUND_PARTS) if store == "bounds" else (VECTOR_FILES, VECTOR_PARTS)
    for key in files.values():
        part = int(rng.integers(parts))
        with damaged(folder / store / key.format(part), DAMAGES[kind], rng):
            assert_names_part(search(folder), folder / store, part)
            assert_names_part(verify(folder), folder / store, part)
    assert verify(folder).code == 0


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_to_vectors_that_are_searched_without_bounds(kind: str, folder: Path) -> None:
    rng = np.random.default_rng(len(kind))
    for key in VECTOR_FILES.values():
        with damaged(folder / "vectors" / key.format(17), DAMAGES[kind], rng):
            assert_names_part(search(folder, "vectors", "--kernel", "chi2"), folder / "vectors", 17)


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_to_the_model_of_bounds(kind: str, folder: Path) -> None:
    rng = np.random.default_rng(len(kind))
    for name in ("projection", "landmarks"):
        with damaged(folder / f"bounds/model/{name}/c/0/0", DAMAGES[kind], rng):
            outcome = search(folder)
        assert (outcome.code, outcome.out) == (1, "")
        assert f"{folder / 'bounds'}: model array {name} is missing or damaged: " in outcome.err


@pytest.mark.promise("With `--check-all`, bytes that no query needs are checked too")
def test_bounds_that_no_query_needs_are_checked_too(tmp_path: Path) -> None:
    data = adversary("near-uniform", 2000, 2)
    np.save(tmp_path / "base.npy", data.rows)
    np.save(tmp_path / "queries.npy", data.queries)
    succeed(f"ingest {tmp_path}/base.npy {tmp_path}/vectors")
    poor = ("--kernel", "cosine", "--encoder", "kpca-bound", "--landmarks", 32, "--components", 8)
    succeed(f"encode {tmp_path}/vectors {tmp_path}/bounds", *poor, "--part-rows", 100)
    (tmp_path / "out").mkdir()
    rng = np.random.default_rng(1)
    for options in ((), ("-k", 1500)):
        with damaged(tmp_path / "bounds/terms/c/19/0", DAMAGES["a bit flipped"], rng):
            assert_names_part(search(tmp_path, "bounds", *options), tmp_path / "bounds", 19)


def test_a_search_that_resumes_checks_every_byte_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, rng = folder / "out/hits.npz", np.random.default_rng(2)
    words = (f"search {folder}/bounds {folder}/queries.npy -k 3 --exact --check-all --out {out}",)
    for store, key in (("bounds", "coordinates/c/5/0"), ("vectors", "vectors/c/9/0")):
        with monkeypatch.context() as patch:
            patch.setattr(
                "mercore.pipeline.search.thread_executor.ThreadExecutor.check_rest",
                lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt),
            )
            assert invoke(*words).code == 130
        assert names_in(folder / "out/hits.npz.parts") == ["batch-00000000.npz", "search.json"]
        with damaged(folder / store / key, DAMAGES["a bit flipped"], rng):
            outcome = invoke(*words)
        assert_names_part(outcome, folder / store, int(key.split("/")[2]))
        assert names_in(folder / "out") == ["hits.npz.parts"]
        shutil.rmtree(f"{out}.parts")


def test_other_vectors_are_refused(folder: Path, tmp_path: Path) -> None:
    rows = np.load(folder / "base.npy")
    rows[1234, 5] += 1
    np.save(tmp_path / "base.npy", rows)
    succeed(f"ingest {tmp_path}/base.npy {tmp_path}/vectors")
    found, expected = (
        json.loads(succeed(f"info {where}/vectors --json"))["fingerprint"]
        for where in (tmp_path, folder)
    )
    outcome = search(folder, "bounds", "--vectors", tmp_path / "vectors")
    message = (
        f"{tmp_path / 'vectors'} is not what {folder / 'bounds'} encodes: found vectors "
        f"{found}, expected {expected}. "
        "Fix: name the right vector store with --vectors, or encode this one."
    )
    assert (outcome.code, outcome.out, outcome.err) == (2, "", f"mercore: {message}\n")


def test_vectors_that_moved_are_found(folder: Path, tmp_path: Path) -> None:
    for name in ("bounds", "vectors"):
        shutil.copytree(folder / name, tmp_path / name)
    moved = tmp_path / "vectors"
    words = (
        f"search {tmp_path}/bounds {folder}/queries.npy -k 3 --exact --out {tmp_path}/hits.npz",
    )
    succeed(*words, "--vectors", moved)
    assert (tmp_path / "hits.npz").read_bytes() == (folder / "true.npz").read_bytes()

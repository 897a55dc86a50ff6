"""Every encoder by the command line: encode, kill and run again, search, check, rerank by the true
kernel."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.pipeline.encoders import ENCODERS as REGISTERED
from mercore.stores.results.hits import Hits
from tests.commands.test_happy_path import assert_same, hits_of
from tests.independent import reference
from tests.support.running import (
    count_receipts,
    files_of,
    finish,
    invoke,
    kill_after,
    names_in,
    run,
    start,
    succeed,
    wait_for_receipts,
)
from tests.support.tiers import slow_unless

ROWS, K = 3000, 10
LANDMARKS = ("--landmarks", 100, "--components", 16)
DICTIONARY = ("--atoms", 64, "--sparsity", 4)
SUBSET = ("--landmarks", 100, "--subset", 20)
GAMMA = {"rbf": 0.0001}
QUANTIZER = ("--subquantizers", 4, "--training-rows", 700)
ENCODERS: dict[str, tuple[str, tuple[object, ...]]] = {
    "aska": ("chi2", DICTIONARY),
    "kpca-aska": ("jensen_shannon", (*LANDMARKS, *DICTIONARY)),
    "kpca-pq": ("chi2", (*LANDMARKS, *QUANTIZER)),
    "map-pq": ("chi2", ("--components", 16, "--harmonics", 2, *QUANTIZER)),
    "pq": ("hellinger", QUANTIZER),
    "pca-pq": ("hellinger", ("--components", 16, "--subquantizers", 8)),
    "kpca-lsh": ("intersection", ("--landmarks", 100, "--bits", 45)),
    "klsh": ("chi2", (*SUBSET, "--rank", 30, "--bits", 128)),
    "nystrom-lsh": ("hellinger", (*SUBSET, "--bits", 128)),
    "rmmh": ("intersection", ("--landmarks", 100, "--samples", 16, "--bits", 128)),
    "rff": ("rbf", ("--bits", 128)),
    "kpca-jl": ("chi2", (*LANDMARKS, "--projections", 40)),
    "kpca": ("hellinger", LANDMARKS),
    "kpca-bound": ("chi2", LANDMARKS),
    "pca-bound": ("inner_product", ("--components", 16)),
    "bin-bound": ("intersection", ("--groups", 16)),
}
BYTES = {
    "aska": 16,
    "kpca-aska": 16,
    "kpca-pq": 9,
    "map-pq": 9,
    "pq": 9,
    "pca-pq": 17,
    "kpca-lsh": 6,
    "klsh": 16,
    "nystrom-lsh": 16,
    "rmmh": 16,
    "rff": 16,
    "kpca-jl": 164,
    "kpca": 68,
}
BYTES |= {"kpca-bound": 26, "pca-bound": 36, "bin-bound": 22}
REALLY = (
    "aska",
    "kpca-bound",
)  # by the real command; of the others a new process would show nothing else
every_encoder = pytest.mark.parametrize(
    "name", slow_unless({"aska", "kpca-pq", "klsh", "bin-bound"}.__contains__, ENCODERS)
)


def words_of(name: str) -> tuple[object, ...]:
    """The options that encode with small parameters."""
    kernel, options = ENCODERS[name]
    return ("--encoder", name, *kernel_words(kernel), *options)


def kernel_words(kernel: str) -> tuple[object, ...]:
    """The options that name a kernel."""
    return ("--kernel", kernel, *(("--gamma", GAMMA[kernel]) if kernel in GAMMA else ()))


def json_of(*words: object) -> dict[str, Any]:
    """Run a command that prints one JSON object."""
    report: dict[str, Any] = json.loads(succeed(*words, "--json"))
    return report


@pytest.fixture(scope="module")
def stores(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A code store of 12 parts for each encoder."""
    folder = tmp_path_factory.mktemp("encoders")
    for name in ENCODERS:
        succeed(f"encode {vectors} {folder}/{name}", *words_of(name), "--part-rows", 250)
    return {name: folder / name for name in ENCODERS}


@pytest.fixture(scope="module")
def exact(vectors: Path, data: Path) -> dict[str, Hits]:
    """The true neighbours under each kernel."""
    queries = (data / "queries.npy", "-k", ROWS)
    return {
        kernel: hits_of(vectors, *queries, *kernel_words(kernel)) for kernel, _ in ENCODERS.values()
    }


def test_every_encoder_is_among_those_tried() -> None:
    assert list(ENCODERS) == list(REGISTERED)


@every_encoder
def test_a_store_is_whole_and_says_what_it_is(name: str, stores: dict[str, Path]) -> None:
    checked = invoke(f"check {stores[name]} --json")
    assert (checked.code, json.loads(checked.out)["faults"]) == (0, [])
    report = json_of("info", stores[name])
    assert (report["rows"], report["parts"], report["parts_done"]) == (ROWS, 12, 12)
    assert report["encoder"]["name"] == name
    kernel = ENCODERS[name][0]
    configuration = {"gamma": GAMMA[kernel]} if kernel in GAMMA else {}
    assert report["kernel"] == {"name": kernel, "configuration": configuration}
    assert report["bytes_per_row"] == pytest.approx(
        BYTES[name], abs=0.3
    )  # a checksum each column and part


@every_encoder
def test_codes_find_neighbours(
    name: str, stores: dict[str, Path], exact: dict[str, Hits], data: Path
) -> None:
    queries = data / "queries.npy"
    found = hits_of(stores[name], queries, "-k", K)
    if name != "nystrom-lsh":  # without centring nearly all bits agree
        true = exact[ENCODERS[name][0]].ids
        assert reference.k_recall(found.ids, true, K) > 0.1
        many = hits_of(stores[name], queries, "-k", 300).ids
        assert reference.texmex_recall(many, true, 300) > 0.9
    for how in (("--threads", 1), ("--threads", 3, "--batch", 5), ("--batch", 1)):
        assert_same(hits_of(stores[name], queries, "-k", K, *how), found)


@every_encoder
@pytest.mark.promise("Reranking gives the order of the true kernel")
def test_reranking_gives_the_true_kernels_best(
    name: str, stores: dict[str, Path], exact: dict[str, Hits], data: Path
) -> None:
    true = exact[ENCODERS[name][0]]
    assert true.scores is not None
    queries = data / "queries.npy"
    every = hits_of(stores[name], queries, "-k", K, "--rerank", ROWS)
    assert_same(every, Hits(ids=true.ids[:, :K], scores=true.scores[:, :K]))
    scores = np.empty((12, ROWS))
    np.put_along_axis(scores, true.ids, true.scores, axis=1)
    candidates = hits_of(stores[name], queries, "-k", 50).ids
    masked = np.full_like(scores, -np.inf)
    np.put_along_axis(masked, candidates, np.take_along_axis(scores, candidates, axis=1), axis=1)
    best, ids = reference.top_k(masked, K)
    assert_same(hits_of(stores[name], queries, "-k", K, "--rerank", 50), Hits(ids=ids, scores=best))


@every_encoder
@pytest.mark.promise("`encode` mends damage, and redoes nothing else")
def test_encoding_again_mends_what_is_missing_and_only_that(
    name: str, vectors: Path, stores: dict[str, Path], tmp_path: Path
) -> None:
    store = Path(shutil.copytree(stores[name], tmp_path / "codes"))
    whole = files_of(store)
    model = sorted(path for path in store.glob("model/*/c/**/*") if path.is_file())
    (store / "receipts/c/5/0").unlink()
    for path in model[:2]:
        path.unlink()
    again = invoke(f"encode {vectors} {store}", *words_of(name), "--part-rows", 250, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["parts_done_now"] == 1
    told = [
        f"writing {path.relative_to(store)} again: it was missing or damaged\n"
        for path in model[:2]
    ]
    *written, counted = again.err.splitlines(keepends=True)
    assert sorted(written) == sorted(told)
    assert counted == "parts: 11 of 12 done, 1 missing, 0 wrong\n"
    assert files_of(store) == whole


@every_encoder
def test_other_options_are_another_job(name: str, vectors: Path, stores: dict[str, Path]) -> None:
    refusal = invoke(
        f"encode {vectors} {stores[name]}", *words_of(name), "--part-rows", 250, "--random-state", 9
    )
    assert refusal.code == 2
    assert refusal.err == (
        f"mercore: {stores[name]} is another store: it differs in encoder random_state (0, not 9). "
        "Fix: give the options it was made with, or name another path.\n"
    )


@pytest.mark.slow
@every_encoder
def test_three_workers_and_the_real_command_write_the_same_bytes(
    name: str,
    vectors: Path,
    stores: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    encode = run if name in REALLY else invoke
    encoded = encode(
        "encode", vectors, "codes", *words_of(name), "--part-rows", 250, "--workers", 3, "--json"
    )
    assert encoded.code == 0, encoded.err
    assert json.loads(encoded.out)["parts_done_now"] == 12
    assert encoded.err == ""
    assert files_of(tmp_path / "codes") == files_of(stores[name])


@pytest.mark.slow
def test_the_real_command_searches_and_checks(stores: dict[str, Path], data: Path) -> None:
    words = (stores["kpca-pq"], data / "queries.npy", "-k", K, "--rerank", 50)
    found = run("search", *words, "--json")
    assert (found.code, found.err) == (0, "")
    report = json.loads(found.out)
    assert_same(
        Hits(ids=np.array(report["ids"], np.int64), scores=np.array(report["scores"])),
        hits_of(*words),
    )
    checked = run("check", stores["kpca-pq"])
    assert (checked.code, checked.err) == (0, f"{stores['kpca-pq']}: 12 parts: whole\n")


@pytest.mark.slow
@pytest.mark.promise("A killed encode resumes to the bytes of an undisturbed run")
def test_kills_and_resumptions_leave_the_undisturbed_store(vectors: Path, tmp_path: Path) -> None:
    store, options = tmp_path / "codes", (*words_of("kpca-pq"), "--part-rows", 10)
    rng = np.random.default_rng(4)
    done = 0
    for _ in range(2):
        process = start(f"encode {vectors} {store}", *options, "--workers", 2)
        wait_for_receipts(store, done + int(rng.integers(5, 40)), process)
        kill_after(process, int(rng.integers(0, 4_000)))
        before, done = done, count_receipts(store)
        assert before < done < 300
    last = finish(start(f"encode {vectors} {store}", *options, "--json"))
    assert last.code == 0, last.err
    assert json.loads(last.out)["parts_done_now"] == 300 - done
    succeed(f"encode {vectors} {tmp_path}/undisturbed", *options)
    assert files_of(store) == files_of(tmp_path / "undisturbed")
    assert names_in(tmp_path) == ["codes", "undisturbed"]

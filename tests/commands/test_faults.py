"""A missing, truncated, flipped or zeroed chunk is an error before a result: 400 injected faults,
none passes."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mercore.jobs import api
from mercore.stores.errors import FormatError, IntegrityError, MercoreError
from mercore.stores.results.hits import Hits
from tests.support.running import ENCODE, KERNEL, files_of, histograms, invoke, run, succeed

pytestmark = pytest.mark.slow

FAULTS_A_KIND = 100  # as many in each column
PARTS = 60
CODE_FILES = {
    **dict.fromkeys(("atoms", "weights", "receipts"), "{column}/c/{part}/0"),
    **dict.fromkeys(("scale", "residual"), "{column}/c/{part}"),
}
VECTOR_FILES = dict.fromkeys(("vectors", "receipts"), "{column}/c/{part}/0")

Damage = Callable[[bytes, np.random.Generator], bytes | None]


def flip_bit(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with one bit flipped."""
    bit = int(rng.integers(8 * len(data)))
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def truncate(data: bytes, rng: np.random.Generator) -> bytes:
    """Return the first bytes, all but one at the most, none at the least."""
    return data[: int(rng.integers(len(data)))]


DAMAGES: dict[str, Damage] = {
    "a bit flipped": flip_bit,
    "deleted": lambda data, rng: None,
    "truncated": truncate,
    "zeroed": lambda data, rng: bytes(len(data)),
}


@contextmanager
def damaged(path: Path, damage: Damage, rng: np.random.Generator) -> Iterator[None]:
    """Damage a file for the time of the block."""
    whole = path.read_bytes()
    wrong = damage(whole, rng)
    assert wrong != whole, "it was so already: no fault"
    path.unlink()
    if wrong is not None:
        path.write_bytes(wrong)
    try:
        yield
    finally:
        path.write_bytes(whole)


def search(store: Path, queries: Path, kernel: str | None = None) -> Hits:
    """Search in this process."""
    return api.search(str(store), str(queries), k=5, kernel=kernel, threads=2)[1]


def passes_silently(
    store: Path, queries: Path, names: str, kernel: str | None = None
) -> str | None:
    """Return which verb says nothing of a fault, or does not name it; None if neither lets it
    pass."""
    faults = api.check(str(store))["faults"]
    if len(faults) != 1 or not re.search(names, faults[0]):
        return f"check: {faults}"
    try:
        search(store, queries, kernel)
    except IntegrityError as error:
        return None if re.search(names, str(error)) else f"search: {error}"
    return "search: no error"


@pytest.fixture(scope="module")
def code_store(codes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished code store of 60 parts that tests may damage."""
    return Path(shutil.copytree(codes, tmp_path_factory.mktemp("faults") / "codes"))


@pytest.fixture(scope="module")
def compressed_store(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished code store of 6 parts under zstd."""
    store = tmp_path_factory.mktemp("faults") / "codes"
    succeed(f"encode {vectors} {store}", *ENCODE, "--part-rows", 500, "--compressor", "zstd")
    return store


@pytest.fixture(scope="module")
def vector_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished vector store of 24 small parts that remembers dropped rows."""
    folder = tmp_path_factory.mktemp("faults")
    rows = histograms(3000, 24, seed=3)
    rows[::100] = 0
    np.save(folder / "rows.npy", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mercore.stores.vector_writer.CHUNK_BYTES", 3 << 10)
        succeed(f"ingest {folder}/rows.npy {folder}/vectors --drop-zero-rows")
    assert json.loads(succeed(f"info {folder}/vectors --json"))["parts"] == 24
    return folder / "vectors"


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.promise("A byte that is wrong or missing means no answer")
def test_a_hundred_faults_in_the_parts_of_codes(kind: str, code_store: Path, data: Path) -> None:
    before = search(code_store, data / "queries.npy")
    shown = [
        one_fault(code_store, data / "queries.npy", kind, seed, parts=PARTS, files=CODE_FILES)
        for seed in range(FAULTS_A_KIND)
    ]
    assert shown == [None] * FAULTS_A_KIND
    assert np.array_equal(search(code_store, data / "queries.npy").ids, before.ids)


@pytest.mark.parametrize("kind", DAMAGES)
def test_twenty_five_faults_in_the_parts_of_compressed_codes(
    kind: str, compressed_store: Path, data: Path
) -> None:
    shown = [
        one_fault(compressed_store, data / "queries.npy", kind, seed, parts=6, files=CODE_FILES)
        for seed in range(25)
    ]
    assert shown == [None] * 25


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.promise("A byte that is wrong or missing means no answer")
def test_twenty_five_faults_in_the_parts_of_vectors(
    kind: str, vector_store: Path, data: Path
) -> None:
    shown = [
        one_fault(
            vector_store,
            data / "queries.npy",
            kind,
            seed,
            parts=24,
            files=VECTOR_FILES,
            kernel=KERNEL,
        )
        for seed in range(25)
    ]
    assert shown == [None] * 25


def one_fault(
    store: Path,
    queries: Path,
    kind: str,
    seed: int,
    *,
    parts: int,
    files: dict[str, str],
    kernel: str | None = None,
) -> str | None:
    """Damage one chunk file of a column and a part that the seed chooses; return which verb lets it
    pass, or None."""
    rng = np.random.default_rng([list(DAMAGES).index(kind), seed])
    part, column = int(rng.integers(parts)), list(files)[seed % len(files)]
    with damaged(store / files[column].format(column=column, part=part), DAMAGES[kind], rng):
        return passes_silently(store, queries, rf": part {part}\b", kernel)


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.promise("A byte that is wrong or missing means no answer")
def test_faults_in_models(kind: str, code_store: Path, vector_store: Path, data: Path) -> None:
    rng = np.random.default_rng(20 + list(DAMAGES).index(kind))
    for store, name, key, kernel in (
        (code_store, "dictionary", "c/0/0", None),
        (code_store, "dictionary_rows", "c/0", None),
        (vector_store, "dropped", "c/0", KERNEL),
    ):
        for _ in range(5):
            with damaged(store / "model" / name / key, DAMAGES[kind], rng):
                assert (
                    passes_silently(store, data / "queries.npy", f"model array {name} ", kernel)
                    is None
                )


@pytest.mark.parametrize("kind", DAMAGES)
def test_faults_in_the_header_stop_every_verb(
    kind: str, code_store: Path, vector_store: Path, data: Path
) -> None:
    rng = np.random.default_rng(30 + list(DAMAGES).index(kind))
    for store, kernel in ((code_store, None), (vector_store, KERNEL)):
        for _ in range(25):
            with damaged(store / "zarr.json", DAMAGES[kind], rng):
                assert refused_or_reported(store, data / "queries.npy", kernel)


def refused_or_reported(store: Path, queries: Path, kernel: str | None) -> bool:
    """Return whether check tells of a damaged header; a header that means what it meant may serve a
    search."""
    try:
        faults = api.check(str(store))["faults"]
    except (IntegrityError, FormatError):
        with pytest.raises(MercoreError):
            search(store, queries, kernel)
        return True
    return len(faults) == 1 and "zarr.json is missing or damaged" in faults[0]


@pytest.mark.parametrize("kind", DAMAGES)
def test_faults_in_the_metadata_for_other_tools_are_reported(
    kind: str, code_store: Path, vector_store: Path
) -> None:
    rng = np.random.default_rng(40 + list(DAMAGES).index(kind))
    for store in (code_store, vector_store):
        for path in (p for p in sorted(store.rglob("zarr.json")) if p.parent != store):
            with damaged(path, DAMAGES[kind], rng):
                (fault,) = api.check(str(store))["faults"]
                assert f"{path.relative_to(store)} is missing or damaged" in fault


def test_a_chunk_in_another_parts_place_is_a_fault(code_store: Path, data: Path) -> None:
    rng = np.random.default_rng(50)
    for column, key in CODE_FILES.items():
        other = (code_store / key.format(column=column, part=8)).read_bytes()
        with damaged(
            code_store / key.format(column=column, part=7),
            lambda data, rng, other=other: other,  # type: ignore[misc]
            rng,
        ):
            assert passes_silently(code_store, data / "queries.npy", r": part 7\b") is None


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.promise("Exit code 1: the answer is no")
@pytest.mark.promise("`check` names every fault")
def test_the_command_tells_of_faults(kind: str, codes: Path, data: Path, tmp_path: Path) -> None:
    tells = (
        run if kind == "a bit flipped" else invoke
    )  # the real command once: it says the same of all
    store = Path(shutil.copytree(codes, tmp_path / "codes"))
    rng = np.random.default_rng(60)
    with damaged(store / "residual/c/17", DAMAGES[kind], rng):
        checked = tells("check", store)
        searched = tells("search", store, data / "queries.npy", "-k", 5)
    assert (checked.code, searched.code) == (1, 1)
    assert checked.out.startswith(f"{store}: part 17: column residual ")
    assert checked.err == f"{store}: 60 parts: 1 fault\n"
    assert searched.out == ""
    assert searched.err.startswith(f"mercore: {store}: part 17: column residual ")
    assert searched.err.count("\n") == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.promise("`encode` mends damage, and redoes nothing else")
def test_encode_again_mends_any_damage_and_redoes_nothing_else(
    seed: int, codes: Path, tmp_path: Path
) -> None:
    store = Path(shutil.copytree(codes, tmp_path / "codes"))
    rng = np.random.default_rng(70 + seed)
    hurt = set()
    for kind in DAMAGES.values():
        part, column = int(rng.integers(PARTS)), str(rng.choice(list(CODE_FILES)))
        path = store / CODE_FILES[column].format(column=column, part=part)
        damage_for_good(path, kind, rng)
        hurt.add(part)
    for key in ("model/dictionary/c/0/0", "model/dropped/zarr.json", "scale/zarr.json"):
        if (store / key).exists():
            damage_for_good(store / key, list(DAMAGES.values())[seed], rng)
    vectors = codes.parent / "vectors"
    report = json.loads(succeed(f"encode {vectors} {store}", *ENCODE, "--part-rows", 50, "--json"))
    assert report["parts_done_now"] == len(hurt)
    assert files_of(store) == files_of(codes)


def damage_for_good(path: Path, damage: Damage, rng: np.random.Generator) -> None:
    """Damage a file that may be damaged already."""
    if not path.exists():
        return
    wrong = damage(path.read_bytes() or b"\0", rng)
    path.unlink()
    if wrong is not None:
        path.write_bytes(wrong)

"""Bad input ends in one paragraph and exit code 1 or 2: no traceback, nothing on stdout, nothing
half-written."""

import errno
import json
import os
import re
import shutil
import struct
import sys
from collections.abc import Callable
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numpy.typing import NDArray

from mercore.stores.part_store.column import CHECKSUM_BYTES
from mercore.stores.part_store.header import open_header
from mercore.stores.part_store.receipts import Receipt, receipt_bytes, receipts_column
from mercore.stores.spec import digest
from mercore.testing.cases import in_case, loop_over
from tests.support import mutated_stores
from tests.support.running import (
    ENCODE,
    Outcome,
    command,
    files_of,
    finish,
    histograms,
    invoke,
    names_in,
    run,
    scratch_in,
    start_words,
    succeed,
)

Words = list[object]
Rows = NDArray[Any]
Case = Callable[[Path], Words]
CASES: dict[str, tuple[int, str, Case]] = {}
WIDE = np.full((8, 3), 7, np.float32)


def case(code: int, says: str) -> Callable[[Case], Case]:
    """Add a kind of bad input: a function that makes it in a folder of its own, and returns the
    command's words."""

    def add(make: Case) -> Case:
        CASES[make.__name__.replace("_", " ")] = (code, says, make)
        return make

    return add


def ingest(folder: Path, name: str, data: bytes) -> Words:
    """Return the words that ingest a file of these bytes."""
    (folder / name).write_bytes(data)
    return [f"ingest {folder}/{name} {folder}/new"]


def ingest_array(folder: Path, values: Any, name: str = "rows.npy") -> Words:
    """Return the words that ingest a ``.npy`` of this array."""
    np.save(folder / name, values)
    return [f"ingest {folder}/{name} {folder}/new"]


def save_zarr(path: Path, values: Rows) -> None:
    """Write a Zarr array in one chunk."""
    zarr.create_array(path, shape=values.shape, chunks=values.shape, dtype=values.dtype)[...] = (
        values
    )


def encode_good(folder: Path, *options: object) -> Words:
    """Return the words that encode the good vectors, options that come later counting."""
    return [f"encode {folder}/good/vectors {folder}/codes", *ENCODE, *options]


def search_good(folder: Path, *options: object, store: str = "codes") -> Words:
    """Return the words that search a good store for the good queries."""
    return [f"search {folder}/good/{store} {folder}/good/queries.npy -k 5", *options]


def with_header(folder: Path, store: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of a good store whose header says something else, all digests being right."""
    copy = Path(shutil.copytree(folder / "good" / store, folder / store))
    column = receipts_column(open_header(copy))
    group = json.loads((copy / "zarr.json").read_text())
    mapping = group["attributes"]["mercore"]
    del mapping["digest"]
    change(mapping)
    group["attributes"]["mercore"] = {**mapping, "digest": digest(mapping)}
    (copy / "zarr.json").write_text(json.dumps(group, indent=2, sort_keys=True))
    job = digest({key: mapping[key] for key in ("kind", "spec", "layout")})
    for path in copy.glob("receipts/c/*/0"):
        fields = {**json.loads(path.read_bytes()[:-CHECKSUM_BYTES]), "job": job}
        path.write_bytes(receipt_bytes(Receipt(**fields), column))
    return copy


def evaluate(folder: Path, *options: object, queries: int = 12, data: bytes | None = None) -> Words:
    """Return the words that evaluate hits of 3 neighbours a query against a truth of 5 for the good
    queries."""
    np.savez(folder / "hits.npz", ids=np.arange(3 * queries).reshape(queries, 3))
    np.savez(folder / "truth.npz", ids=np.arange(60).reshape(12, 5))
    if data is not None:
        (folder / "hits.npz").write_bytes(data)
    return [f"evaluate {folder}/hits.npz {folder}/truth.npz", *options]


def labels(folder: Path, values: Any) -> Words:
    """Return the words that evaluate hits with these labels of rows, and good ones of queries."""
    np.save(folder / "labels.npy", values)
    np.save(folder / "query_labels.npy", np.zeros(12, np.int64))
    names = ("--labels", folder / "labels.npy", "--query-labels", folder / "query_labels.npy")
    return [*evaluate(folder), *names, "--neighbours", "3"]


# --- commands that are wrong as they stand, in a folder with good stores under ``good``

ENCODED = f"encode good/vectors codes {' '.join(ENCODE)}"
SEARCHED = "search good/codes good/queries.npy -k 5"
SEARCHED_VECTORS = "search good/vectors good/queries.npy -k 5"
TYPED = {
    # ingest
    "ingest nothing.npy new": (2, "no such file or folder"),
    "ingest good/queries.npy new --format csv": (2, "expected one of fvecs, bvecs"),
    "ingest good/queries.npy new --rows 3": (2, "expected first:last"),
    "ingest good/queries.npy good/vectors": (2, "exists: expected a new path"),
    "ingest good/queries.npy no/such/store": (2, "there is no folder"),
    "ingest good/queries.npy new --compressor rar": (2, "unknown compressor: found 'rar'"),
    "ingest good/queries.npy new --compressor zstd:99": (2, "a level from -7 to 22: found '99'"),
    # encode
    "encode nothing codes --kernel chi2": (2, "does not exist: expected a vector store"),
    "encode good/queries.npy codes --kernel chi2": (2, "is a file: expected a vector store"),
    "encode good/codes codes --kernel chi2": (2, "is a store of codes: expected one of vectors"),
    "encode good/vectors codes": (2, "Missing option '--kernel'"),
    f"{ENCODED} --kernel cubic": (2, "unknown kernel: found 'cubic'"),
    f"{ENCODED} --kernel rbf": (2, "gamma"),
    f"{ENCODED} --kernel rbf --gamma nan": (2, "'nan' is not a finite number"),
    f"{ENCODED} --gamma 2": (2, "gamma"),
    f"{ENCODED} --transform -1": (2, "transform is out of range: found -1.0"),
    f"{ENCODED} --atoms 3001": (2, "atoms is out of range: found 3001, expected 1 to 3000 rows"),
    f"{ENCODED} --atoms 0": (2, "atoms is out of range: found 0"),
    f"{ENCODED} --sparsity 65": (2, "sparsity is out of range: found 65, expected 1 to 64"),
    f"{ENCODED} --weights int4": (2, "unknown weights: found 'int4'"),
    f"{ENCODED} --random-state -1": (2, "random_state must not be negative"),
    f"{ENCODED} --part-rows 0": (2, "part_rows is out of range: found 0"),
    f"{ENCODED} --memory 100MB": (1, "encoding would take"),
    f"{ENCODED} --memory plenty": (2, "is not a size"),
    f"{ENCODED} --scheduler nowhere": (1, "no Dask scheduler answers at nowhere"),
    f"{ENCODED} --scheduler tcp://127.0.0.1:1": (1, "answers at tcp://127.0.0.1:1"),
    f"{ENCODED.replace(' codes ', ' good/codes ')} --atoms 32 --part-rows 50": (
        2,
        "differs in encoder n_atoms (64, not 32)",
    ),
    ENCODED.replace(" codes ", " good/vectors "): (2, "exists and is no code store"),
    ENCODED.replace(" codes ", " no/such/codes "): (2, "there is no folder"),
    # search
    "search nothing good/queries.npy": (2, "does not exist: expected a store"),
    "search good/base.npy good/queries.npy --kernel chi2": (
        2,
        "is a file: expected a vector store",
    ),
    "search good/codes nothing.npy": (2, "no such file or folder"),
    "search good/codes": (2, "Missing argument 'QUERIES'"),
    f"{SEARCHED} -k 0": (2, "k is out of range: found 0, expected 1 to 3000"),
    f"{SEARCHED} -k -3": (2, "k is out of range: found -3"),
    f"{SEARCHED} -k 3001": (2, "k is out of range: found 3001, expected 1 to 3000"),
    f"{SEARCHED} -k ten": (2, "is not a valid integer"),
    f"{SEARCHED} --rerank 4": (2, "rerank is out of range: found 4, expected k = 5 to 3000"),
    f"{SEARCHED} --rerank 3001": (2, "rerank is out of range: found 3001"),
    f"{SEARCHED} --batch 0": (2, "batch is out of range: found 0"),
    f"{SEARCHED} --threads 0": (2, "threads is out of range: found 0"),
    f"{SEARCHED} --memory 1MB": (1, "searching would take"),
    f"{SEARCHED} --kernel cosine": (
        2,
        "has kernel chi2: found --kernel cosine. Fix: leave --kernel out.",
    ),
    f"{SEARCHED} --out hits.txt": (2, "unknown suffix '.txt' for hits"),
    f"{SEARCHED} --out no/such/hits.npz": (2, "does not exist"),
    SEARCHED_VECTORS: (2, "a search of vectors needs a kernel: found none"),
    f"{SEARCHED_VECTORS} --kernel chi2 -k 3001": (2, "k is out of range: found 3001"),
    f"{SEARCHED_VECTORS} --kernel chi2 --rerank 10": (2, "which have true scores already"),
    # evaluate, check, and the words themselves
    "evaluate hits.npz nothing.npz": (2, "no such file or folder"),
    "evaluate hits.npz truth.npz --ranks 1,ten": (2, "ranks are numbers above 0"),
    "evaluate hits.npz truth.npz --ranks 0": (2, "ranks are numbers above 0"),
    "evaluate hits.npz truth.npz --ranks 1,1000": (2, "rank"),
    "evaluate hits.npz truth.npz --coverage 2,4": (
        2,
        "coverage takes numbers from 1 to 3, the hits of a query, with commas: found '2,4'",
    ),
    "evaluate hits.npz truth.npz --vectors good/vectors": (
        2,
        "it needs --queries and --kernel too",
    ),
    "check nothing": (2, "does not exist: expected a store"),
    "check good/queries.npy": (2, "has no receipts to check against"),
    "serach good/codes": (2, "No such command 'serach'"),
}


def typed(line: str) -> Case:
    """Return the words of a command line, beside hits of 3 neighbours per query and a truth."""

    def words(folder: Path) -> Words:
        if line.startswith("evaluate"):
            evaluate(folder)
        return [*line.split()]

    return words


CASES |= {line: (code, says, typed(line)) for line, (code, says) in TYPED.items()}


# --- rows, queries and headers that will not do

BAD_ROWS = [
    (np.ones((0, 4), np.float32), "has no row to store"),
    (np.array([[1.0, 1e300]]), "beyond float32's range"),
]
BAD_VECTORS: list[tuple[list[float], str, str]] = [
    ([1, np.nan, 1], "chi2", "holds 1 row with NaN values"),
    ([1, np.inf, 1], "cosine", "holds 1 row with infinite values"),
    ([1, -1, 1], "intersection", "holds 1 row with negative values"),
    ([0, 0, 0], "hellinger", "holds 1 row with all-zero values"),
]
BAD_QUERIES = [
    (np.ones((3, 23)), "has d = 23: expected 24"),
    (np.ones((0, 24)), "holds no query"),
    (np.vstack([np.ones((2, 24)), np.full(24, np.nan)]), "query 2 has a NaN or infinite value"),
    (np.vstack([np.ones(24), -np.ones(24)]), "query 1 has a negative value"),
    (np.vstack([np.ones(24), np.zeros(24)]), "query 1 is all zero"),
]
BAD_HEADERS: list[tuple[str, str, dict[str, Any], str]] = [
    ("codes", "layout", {"version": 2}, "version is 2, expected 1"),
    ("codes", "spec", {"version": 2}, "version is 2, expected 1"),
    ("vectors", "spec", {"version": 2}, "version is 2, expected 1"),
    ("codes", "spec encoder", {"version": 2}, "version is 2, expected 1"),
    ("codes", "spec", {"shiny": True}, "unknown ['shiny']"),
    ("codes", "spec kernel", {"name": "cubic"}, "a kernel of the store is unknown"),
    ("codes", "layout", {"rows": 2**40}, "zarr.json describes no layout of a store"),
]


PIPES = {  # the path of a named pipe, and the command that meets it
    "store/zarr.json": "info store",
    "rows/.zarray": "ingest rows new",
    "images/a.png": "ingest images new",
    "./mine.py": f"{ENCODED} --kernel mine.py",
}


def with_pipe(path: str, line: str, folder: Path) -> Words:
    """Make a named pipe, and return the words of the command line."""
    (folder / path).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / path)
    return [*line.split()]


def encode_row(row: list[float], kernel: str, folder: Path) -> Words:
    """Return the words that encode a vector store with this row."""
    succeed(*ingest_array(folder, np.vstack([WIDE, [row]])))
    return [*f"encode new codes --encoder aska --atoms 4 --sparsity 2 --kernel {kernel}".split()]


def search_for(queries: Rows, folder: Path) -> Words:
    """Return the words that search the good codes for these queries."""
    np.save(folder / "rows.npy", queries.astype(np.float32))
    return [*["search", "good/codes", "rows.npy", "-k", "5"]]


def search_changed(store: str, field: str, change: dict[str, Any], folder: Path) -> Words:
    """Return the words that search a store whose header has other values in a field."""
    copy = with_header(
        folder, store, lambda header: reduce(getitem, field.split(), header).update(change)
    )
    kernel = ["--kernel", "chi2"] if store == "vectors" else []
    return [f"search {copy} {folder}/good/queries.npy", *kernel]


CASES |= {says: (2, says, partial(ingest_array, values=rows)) for rows, says in BAD_ROWS}
CASES |= {says: (2, says, partial(encode_row, row, kernel)) for row, kernel, says in BAD_VECTORS}
CASES |= {says: (2, says, partial(search_for, queries)) for queries, says in BAD_QUERIES}
CASES |= {
    path: (2, f"{Path(path).name}: not a regular file", partial(with_pipe, path, line))
    for path, line in PIPES.items()
}
CASES |= {
    f"{store} {field} {change}": (2, says, partial(search_changed, store, field, change))
    for store, field, change, says in BAD_HEADERS
}


# --- ingest: the source


@case(2, "unknown suffix '.csv'")
def unknown_suffix(folder: Path) -> Words:
    return ingest(folder, "rows.csv", b"1,2,3\n")


@case(2, "expected 228 for the header's")
def truncated_npy(folder: Path) -> Words:
    words = ingest_array(folder, np.ones((25, 4), np.uint8))
    os.truncate(folder / "rows.npy", 200)
    return words


@case(2, "5 of them all zero")
def only_zero_rows_and_all_dropped(folder: Path) -> Words:
    return [*ingest_array(folder, np.zeros((5, 4), np.uint8)), "--drop-zero-rows"]


@case(2, "row 1 says d = 5, expected 4")
def bvecs_whose_rows_differ(folder: Path) -> Words:
    rows = struct.pack("<i4si4s", 4, b"aaaa", 5, b"aaaa")
    return ingest(folder, "rows.bvecs", rows)


@case(2, "cannot be decoded")
def zarr_with_a_broken_chunk(folder: Path) -> Words:
    save_zarr(folder / "rows", WIDE)
    (folder / "rows/c/0/0").write_bytes(b"nonsense")
    return [f"ingest {folder}/rows {folder}/new"]


@case(2, "zarr.json: not a regular file")
def folder_as_metadata(folder: Path) -> Words:
    (folder / "store/zarr.json").mkdir(parents=True)
    return ["info", folder / "store"]


# --- encode


@case(1, "it has no receipt")
def vectors_that_are_not_whole(folder: Path) -> Words:
    shutil.copytree(folder / "good/vectors", folder / "vectors")
    (folder / "vectors/receipts/c/0/0").unlink()
    return [f"encode {folder}/vectors {folder}/codes", *ENCODE]


@case(2, "row 5 has a NaN or infinite value")
def nan_in_a_zarr_array_that_nobody_ingested(folder: Path) -> Words:
    values = WIDE.copy()
    values[5, 1] = np.nan
    save_zarr(folder / "rows", values)
    return ["encode rows codes --kernel chi2 --encoder aska --atoms 2 --sparsity 1"]


@case(2, "exists and is no code store")
def folder_in_the_codes_place(folder: Path) -> Words:
    (folder / "codes").mkdir()
    return encode_good(folder)


@case(2, "exists and is no code store")
def file_in_the_codes_place(folder: Path) -> Words:
    (folder / "codes").write_text("mine")
    return encode_good(folder)


# --- search


@case(1, "it has no receipt, so it is not done")
def search_unfinished_codes(folder: Path) -> Words:
    shutil.copytree(folder / "good/codes", folder / "codes")
    (folder / "codes/receipts/c/3/0").unlink()
    return [f"search {folder}/codes {folder}/good/queries.npy -k 5"]


@case(1, "zarr.json is damaged")
def header_that_was_edited(folder: Path) -> Words:
    shutil.copytree(folder / "good/codes", folder / "codes")
    text = (folder / "codes/zarr.json").read_text()
    (folder / "codes/zarr.json").write_text(text.replace('"rows": 3000', '"rows": 2999'))
    return [f"search {folder}/codes {folder}/good/queries.npy"]


@case(2, "name its new path with --vectors")
def rerank_when_the_vectors_are_gone(folder: Path) -> Words:
    copy = with_header(
        folder, "codes", lambda mapping: mapping["notes"].update(source_path=str(folder / "gone"))
    )
    return [f"search {copy} {folder}/good/queries.npy -k 5 --rerank 10"]


@case(2, "is not what")
def rerank_with_other_vectors(folder: Path) -> Words:
    succeed(*ingest_array(folder, histograms(3000, 24, seed=9)))
    return search_good(folder, "--rerank", 10, "--vectors", folder / "new")


@case(2, "a folder, expected a file to write")
def hits_onto_a_folder(folder: Path) -> Words:
    (folder / "hits.npz").mkdir()
    return search_good(folder, "--out", folder / "hits.npz")


@case(2, "scores")
def hits_beside_vectors_of_the_same_name(folder: Path) -> Words:
    (folder / "hits.fvecs").write_bytes((struct.pack("<i", 4) + bytes(16)) * 3)
    return search_good(folder, "--out", folder / "hits.ivecs")


# --- evaluate and info


@case(2, "hits.npz")
def hits_that_are_no_zip(folder: Path) -> Words:
    return evaluate(folder, data=b"PK\3\4 and then nothing of the kind")


@case(2, "queries")
def hits_of_fewer_queries(folder: Path) -> Words:
    return evaluate(folder, queries=11)


@case(2, "")
def vectors_without_such_ids(folder: Path) -> Words:
    words = evaluate(folder, "--kernel", "chi2", "--vectors", folder / "good/vectors")
    np.savez(folder / "hits.npz", ids=np.full((12, 3), 10**9))
    return [*words, "--queries", folder / "good/queries.npy"]


@case(2, "a returned id has no label: found row 35, expected a row below 35")
def labels_of_fewer_rows(folder: Path) -> Words:
    return labels(folder, np.zeros(35, np.int64))


@case(2, "is not a store of mercore")
def info_of_a_foreign_group(folder: Path) -> Words:
    (folder / "group").mkdir()
    (folder / "group/zarr.json").write_text(
        '{"zarr_format": 3, "node_type": "group", "attributes": {}}'
    )
    return ["info", folder / "group"]


# --- what holds of them all


@pytest.fixture
def folder(codes: Path, tmp_path: Path) -> Path:
    """A folder to do something bad in, with good stores at hand under ``good``."""
    (tmp_path / "good").symlink_to(codes.parent)
    return tmp_path


def assert_one_paragraph(outcome: Outcome, code: int, says: str) -> None:
    """Check how a refusal reads."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert says in outcome.err
    assert "Traceback" not in outcome.err
    if not outcome.err.startswith("Usage: mercore "):
        assert re.fullmatch(r"mercore: [^\n]+\. Fix: [^\n]+\n", outcome.err), outcome.err


@pytest.mark.parametrize("name", CASES)
@pytest.mark.promise("Exit code 2: wrong input")
@pytest.mark.promise("Bad input is refused before any work, in one paragraph, and leaves nothing")
def test_bad_input(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mercore.jobs.cluster.client.CONNECT_SECONDS", 0.2)
    monkeypatch.chdir(folder)
    code, says, make = CASES[name]
    words = make(folder)
    before = listing(folder), files_of(folder / "good")
    outcome = invoke(*words)
    assert_one_paragraph(outcome, code, says)
    assert (listing(folder), files_of(folder / "good")) == before


def listing(folder: Path) -> list[tuple[str, int]]:
    """Return all that lies in a folder, but for the good stores, with sizes."""
    return sorted((str(path), path.is_dir() or path.lstat().st_size) for path in folder.rglob("*"))


@pytest.mark.parametrize("name", ["truncated npy"])
@pytest.mark.promise("Bad input is refused before any work, in one paragraph, and leaves nothing")
def test_bad_input_by_the_real_command(name: str, folder: Path) -> None:
    code, says, make = CASES[name]
    words = make(folder)
    before = listing(folder)
    assert_one_paragraph(run(*words), code, says)
    assert listing(folder) == before


def test_wrong_values_in_metadata(tmp_path: Path) -> None:
    mutated_stores.make_stores(tmp_path, "aska")
    every = mutated_stores.cases(tmp_path)
    for case in every[:: len(every) // 12]:
        with in_case(case=case):
            mutated_stores.run_case(tmp_path, case)


# --- a disk that refuses


def full_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    """Let the disk be full from so many writes on."""
    really, left = os.fsync, iter(range(writes))

    def fsync(descriptor: int) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@loop_over("writes", [0, 1, 3, 5, 7, 9])
def test_ingest_onto_a_full_disk(
    writes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        full_after(patch, writes)
        outcome = invoke(f"ingest {folder}/good/base.npy {folder}/new")
    assert_one_paragraph(outcome, 1, "No space left on device. Fix: free space")
    assert names_in(folder) == ["good"]


@loop_over("writes", [0, 1, 5, 20])
def test_encode_onto_a_disk_that_is_full_from_the_start(
    writes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        full_after(patch, writes)
        outcome = invoke(*encode_good(folder, "--part-rows", 50))
    assert_one_paragraph(outcome, 1, "No space left on device. Fix: free space")
    assert names_in(folder) == ["good"]


@pytest.mark.slow
@pytest.mark.parametrize("writes", [40, 41, 42, 43, 77, 200, 500])
@pytest.mark.promise("A full disk ends a command, and what is done stays")
def test_encode_onto_a_disk_that_fills_up_resumes(
    writes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        full_after(patch, writes)
        outcome = invoke(*encode_good(folder, "--part-rows", 50))
    assert_one_paragraph(outcome, 1, "No space left on device. Fix: free space")
    assert scratch_in(folder) == []
    assert invoke("check", folder / "codes").code == 1
    succeed(*encode_good(folder, "--part-rows", 50))
    assert files_of(folder / "codes") == files_of(folder / "good/codes")


@pytest.mark.promise("A full disk ends a command, and what is done stays")
def test_hits_onto_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hits.npz", "hits.parquet", "hits.ibin", "hits.ivecs"):
        with monkeypatch.context() as patch:
            full_after(patch, 0)
            outcome = invoke(*search_good(folder, "--out", folder / name))
        assert_one_paragraph(outcome, 1, "No space left on device. Fix: free space")
        assert names_in(folder) == ["good"]


LIMIT_FILES = "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
OBEY_PERMISSIONS = (
    "ctypes.CDLL(None).prctl(24, 1, 0, 0, 0), ctypes.CDLL(None).prctl(24, 2, 0, 0, 0)"
)


INVOKE = """
import json, sys
from tests.support.running import invoke
print(json.dumps([vars(invoke(*words)) for words in json.loads(sys.argv[1])]))
"""


def run_limited(limit: str, *words: object) -> Outcome:
    """Run the real command in a process that limits itself first."""
    return start_limited(limit, command(*words))


def invoke_limited(limit: str, commands: list[list[object]]) -> list[Outcome]:
    """Run commands one after the other in one process that limits itself first."""
    words = [[str(word) for word in each] for each in commands]
    outcome = start_limited(limit, [sys.executable, "-c", INVOKE, json.dumps(words)])
    assert outcome.code == 0, outcome.err
    return [Outcome(**each) for each in json.loads(outcome.out)]


def start_limited(limit: str, words: list[str]) -> Outcome:
    """Run any command in a process that limits itself first."""
    launch = f"import ctypes, os, resource, sys; {limit}; os.execv(sys.argv[1], sys.argv[1:])"
    environment = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    return finish(start_words([sys.executable, "-c", launch, *words], env=environment))


@pytest.mark.slow
def test_the_real_command_when_the_system_refuses_to_write(folder: Path) -> None:
    outcome = run_limited(LIMIT_FILES, f"ingest {folder}/good/base.npy {folder}/new")
    assert_one_paragraph(outcome, 1, "File too large. Fix: free space")
    assert names_in(folder) == ["good"]


@pytest.fixture
def locked(folder: Path) -> Path:
    """A folder that may be read but not written, also not by root once it drops its right to
    override that."""
    (folder / "locked").mkdir(mode=0o555)
    return folder / "locked"


@pytest.mark.slow
def test_a_folder_that_may_not_be_written(folder: Path, locked: Path) -> None:
    for words in (
        [f"ingest {folder}/good/base.npy {locked}/new"],
        [f"encode {folder}/good/vectors {locked}/codes", *ENCODE],
        search_good(folder, "--out", locked / "hits.npz"),
    ):
        outcome = run_limited(OBEY_PERMISSIONS, *words)
        assert_one_paragraph(outcome, 1, str(locked))
        assert names_in(locked) == []


@pytest.mark.slow
def test_files_that_may_not_be_read(folder: Path) -> None:
    shutil.copy(folder / "good/queries.npy", folder / "rows.npy")
    shutil.copytree(folder / "good/codes", folder / "codes")
    (folder / "rows.npy").chmod(0)
    (folder / "codes/weights/c/3/0").chmod(0)
    (folder / "hidden").mkdir(mode=0)
    commands = [
        ["ingest", folder / "rows.npy", folder / "new"],
        ["search", folder / "codes", folder / "good/queries.npy", "-k", 5],
        ["info", folder / "hidden/store"],
        ["check", folder / "hidden/store"],
        ["encode", folder / "hidden/store", folder / "new", *ENCODE],
        ["ingest", folder / "good/base.npy", folder / "hidden/store"],
        ["search", folder / "hidden/store", folder / "good/queries.npy"],
        ["search", folder / "good/codes", folder / "hidden/rows.npy"],
        search_good(folder, "--out", folder / "hidden/below/hits.npz"),
        ["evaluate", folder / "hidden/hits.npz", folder / "hidden/truth.npz"],
    ]
    for outcome in invoke_limited(OBEY_PERMISSIONS, commands):
        assert_one_paragraph(outcome, 1, "Permission denied")
    assert names_in(folder) == ["codes", "good", "hidden", "rows.npy"]
    assert open_header(folder / "codes").kind == "codes"

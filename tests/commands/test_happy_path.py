"""From foreign files to evaluated hits by the command line: what comes out is the same whatever way
it was computed."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from numpy.typing import NDArray
from pyarrow import feather

from mercore.jobs.cluster.connect import connect
from mercore.jobs.cluster.workers import Work
from mercore.jobs.resources.execution import Execution
from mercore.pipeline.encode import check_every_row
from mercore.pipeline.kernels import Kernel
from mercore.stores.formats import suffixes
from mercore.stores.results.hits import Hits, read_hits
from mercore.stores.vectors import Vectors
from mercore.testing.cases import loop_over
from tests.independent import reference
from tests.support.running import ENCODE, files_of, histograms, invoke, names_in, run, succeed

Rows = NDArray[Any]


def texmex(dtype: str) -> Callable[[Path, Rows], object]:
    """Return a writer of TEXMEX files."""

    def write(path: Path, rows: Rows) -> object:
        head = struct.pack("<i", rows.shape[1])
        return path.write_bytes(b"".join(head + row.astype(dtype).tobytes() for row in rows))

    return write


def bigann(dtype: str) -> Callable[[Path, Rows], object]:
    """Return a writer of big-ann files."""
    return lambda path, rows: path.write_bytes(
        struct.pack("<II", *rows.shape) + rows.astype(dtype).tobytes()
    )


def npy(dtype: str) -> Callable[[Path, Rows], object]:
    """Return a writer of ``.npy`` files."""
    return lambda path, rows: np.save(path, rows.astype(dtype))


def zarr_array(version: int) -> Callable[[Path, Rows], object]:
    """Return a writer of Zarr arrays whose chunks fit nothing of ours."""

    def write(path: Path, rows: Rows) -> None:
        array = zarr.create_array(
            path,
            shape=rows.shape,
            chunks=(700, 5),
            dtype="u1",
            zarr_format=version,  # type: ignore[arg-type]
        )
        array[:] = rows

    return write


def table(write: Callable[[pa.Table, Path], object]) -> Callable[[Path, Rows], object]:
    """Return a writer of a table with one column of lists."""
    return lambda path, rows: write(pa.table({"row": list(rows)}), path)


def hdf5(path: Path, rows: Rows) -> None:
    """Write an HDF5 file whose chunks fit nothing of ours."""
    with h5py.File(path, "w") as file:
        file.create_dataset("train", data=rows, chunks=(700, 5), compression="gzip")


WRITERS = {
    "rows.bvecs": texmex("u1"),
    "rows.fvecs": texmex("<f4"),
    "rows.ivecs": texmex("<i4"),
    "rows.u8bin": bigann("u1"),
    "rows.i8bin": bigann("i1"),
    "rows.fbin": bigann("<f4"),
    "rows.ibin": bigann("<i4"),
    "rows.f16bin": bigann("<f2"),
    "rows.npy": npy("u1"),
    "rows.npz": lambda path, rows: np.savez_compressed(path, rows=rows),
    "rows.parquet": table(lambda rows, path: pq.write_table(rows, path, row_group_size=700)),
    "rows.arrow": table(feather.write_feather),
    "rows.feather": table(lambda rows, path: feather.write_feather(rows, path, chunksize=700)),
    "rows.h5": hdf5,
    "rows.hdf5": hdf5,
    "half.npy": npy("f2"),
    "double.npy": npy("f8"),
    "big endian.npy": npy(">u2"),
    "two.zarr": zarr_array(2),
    "three.zarr": zarr_array(3),
}


def hits_of(*words: object) -> Hits:
    """Search by the command line and return the hits that it prints as JSON."""
    report = json.loads(succeed("search", *words, "--json"))
    return Hits(ids=np.array(report["ids"], np.int64), scores=np.array(report["scores"]))


def assert_same(one: Hits, other: Hits) -> None:
    """Check that ids and scores are equal to the bit."""
    assert one.scores is not None
    assert other.scores is not None
    assert np.array_equal(one.ids, other.ids)
    assert np.array_equal(one.scores, other.scores)


@pytest.fixture(scope="module")
def small() -> Rows:
    """Histograms that every format holds: uint8[3000, 24] below 128."""
    return histograms(3000, 24, seed=5) >> 1 | 1


@pytest.fixture(scope="module")
def expected(small: Rows, data: Path) -> Hits:
    """The true neighbours, by the reference."""
    queries = np.load(data / "queries.npy")
    scores = reference.kernel(
        "chi2", reference.prepare("chi2", queries), reference.prepare("chi2", small)
    )
    best, ids = reference.top_k(scores, 10)
    return Hits(ids=ids, scores=best)


def test_every_format_is_among_those_tried() -> None:
    assert {Path(name).suffix for name in WRITERS} == {*suffixes(), ".zarr"}


@pytest.mark.parametrize("name", WRITERS)
def test_from_a_foreign_file_to_recall(
    name: str, small: Rows, expected: Hits, data: Path, tmp_path: Path
) -> None:
    source, vectors, codes = tmp_path / name, tmp_path / "vectors", tmp_path / "codes"
    WRITERS[name](source, small)
    assert json.loads(succeed("info", source, "--json"))["rows"] == 3000

    report = json.loads(succeed("ingest", source, vectors, "--json"))
    assert (report["rows"], report["dims"], report["dropped_rows"], report["nan_rows"]) == (
        3000,
        24,
        0,
        0,
    )
    assert report["duplicate_rows"] == 3000 - len(np.unique(small, axis=0))
    assert (report["value_min"], report["value_max"]) == (small.min(), small.max())
    encoded = json.loads(succeed("encode", vectors, codes, *ENCODE, "--json"))
    assert encoded["parts_done_now"] == encoded["parts"] == 1
    for store in (vectors, codes):
        assert json.loads(succeed("check", store, "--json"))["faults"] == []
        assert json.loads(succeed("info", store, "--json"))["rows"] == 3000

    queries = data / "queries.npy"
    found = tmp_path / "found.npz"
    exact = hits_of(vectors, queries, "--kernel", "chi2", "-k", 10)
    assert np.array_equal(exact.ids, expected.ids)
    assert exact.scores == pytest.approx(expected.scores, rel=1e-12)
    succeed(
        "search", vectors, queries, "--kernel", "chi2", "-k", 10, "--out", tmp_path / "truth.npz"
    )
    succeed("search", codes, queries, "-k", 10, "--out", found)
    recall = json.loads(succeed("evaluate", found, tmp_path / "truth.npz", "--json"))["recall"]
    by_hand = reference.k_recall(read_hits(str(found)).ids, expected.ids, 10)
    (told,) = (
        row["value"] for row in recall if (row["definition"], row["rank"]) == ("k-recall", 10)
    )
    assert told == pytest.approx(by_hand)
    assert by_hand > 0.1


def test_a_zarr_array_needs_no_ingest(
    small: Rows, expected: Hits, data: Path, tmp_path: Path
) -> None:
    zarr_array(3)(tmp_path / "rows.zarr", small)
    succeed(f"encode {tmp_path}/rows.zarr {tmp_path}/codes", *ENCODE)
    queries = data / "queries.npy"
    exact = hits_of(tmp_path / "rows.zarr", queries, "--kernel", "chi2", "-k", 10)
    assert np.array_equal(exact.ids, expected.ids)
    assert_same(hits_of(tmp_path / "codes", queries, "-k", 10, "--rerank", 3000), exact)


@pytest.mark.promise(
    "Queries, or rows of a foreign array, that change while they are read are refused"
)
def test_a_zarr_array_that_changes_after_its_rows_were_checked_is_not_encoded(
    small: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.zarr"
    zarr_array(3)(rows, small)

    def check_and_change(vectors: Vectors, kernel: Kernel) -> None:
        check_every_row(vectors, kernel)
        zarr.open_array(rows)[1234] = 7

    monkeypatch.setattr("mercore.jobs.verbs.encode.check_every_row", check_and_change)
    outcome = invoke(f"encode {rows} {tmp_path}/codes", *ENCODE)
    assert outcome.code == 2
    assert f"{rows}: rows [0, {len(small)}) have changed since they were first read" in outcome.err


# --- the answer does not depend on how it is computed


@pytest.fixture(scope="module", params=["chi2", "hellinger", "intersection"])
def kernel(request: pytest.FixtureRequest) -> str:
    """A kernel of each kind of loop."""
    return str(request.param)


@pytest.fixture(scope="module")
def encoded(kernel: str, vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A code store of 12 parts."""
    store = tmp_path_factory.mktemp("encoded") / "codes"
    succeed(f"encode {vectors} {store}", *ENCODE, "--kernel", kernel, "--part-rows", 250)
    return store


@pytest.fixture(scope="module")
def plain(
    kernel: str, encoded: Path, vectors: Path, data: Path
) -> list[tuple[tuple[object, ...], Hits]]:
    """The words of searches, and what one thread finds with all queries in a batch."""
    searches: list[tuple[object, ...]] = [
        (encoded, data / "queries.npy", "-k", 20),
        (encoded, data / "queries.npy", "-k", 20, "--rerank", 100),
        (vectors, data / "queries.npy", "-k", 20, "--kernel", kernel),
    ]
    return [(words, hits_of(*words, "--threads", 1, "--batch", 12)) for words in searches]


@loop_over("threads", [1, 2, 3])
@loop_over("batch", [1, 7, 1024])
@pytest.mark.promise("Answers do not depend on threads, batch, parts or bound")
def test_threads_and_batches_change_nothing(
    threads: int, batch: int, plain: list[tuple[tuple[object, ...], Hits]]
) -> None:
    for words, expected in plain:
        assert_same(hits_of(*words, "--threads", threads, "--batch", batch), expected)


@loop_over("part_rows", [1, 256, 2999, 5000])
@pytest.mark.promise("Answers do not depend on threads, batch, parts or bound")
def test_the_size_of_parts_changes_nothing(
    part_rows: int, *, kernel: str, encoded: Path, vectors: Path, data: Path, tmp_path: Path
) -> None:
    if part_rows < 20:  # thousands of files show no more than hundreds do
        vectors = few(vectors, tmp_path)
        encoded = tmp_path / "whole"
        succeed(f"encode {vectors} {encoded}", *ENCODE, "--kernel", kernel)
    succeed(
        f"encode {vectors} {tmp_path}/codes", *ENCODE, "--kernel", kernel, "--part-rows", part_rows
    )
    words = (data / "queries.npy", "-k", 50, "--threads", 2)
    assert_same(hits_of(tmp_path / "codes", *words), hits_of(encoded, *words))


def few(vectors: Path, folder: Path) -> Path:
    """Return a vector store of the first 80 rows of ``base.npy``."""
    np.save(folder / "few.npy", np.load(vectors.parent / "base.npy")[:80])
    succeed(f"ingest {folder}/few.npy {folder}/few")
    return folder / "few"


@pytest.mark.parametrize(
    "compressor", ["zstd", "zstd:-3", "blosc:9", "gzip:1", "lz4", "bz2", "lzma:2"]
)
@pytest.mark.promise("Compressors change bytes on disk, not answers")
def test_compressors_change_nothing_but_bytes(
    compressor: str, data: Path, vectors: Path, codes: Path, tmp_path: Path
) -> None:
    succeed(f"ingest {data}/base.npy {tmp_path}/vectors --compressor {compressor}")
    succeed(f"encode {tmp_path}/vectors {tmp_path}/codes", *ENCODE, "--compressor", compressor)
    queries = data / "queries.npy"
    assert_same(hits_of(tmp_path / "codes", queries, "-k", 20), hits_of(codes, queries, "-k", 20))
    by_kernel = (queries, "-k", 20, "--kernel", "chi2")
    assert_same(hits_of(tmp_path / "vectors", *by_kernel), hits_of(vectors, *by_kernel))
    sizes = [
        json.loads(succeed(f"info {store} --json"))["bytes"]
        for store in (tmp_path / "vectors", vectors)
    ]
    assert sizes[0] < sizes[1]
    for store in (tmp_path / "vectors", tmp_path / "codes"):
        succeed("check", store)


@pytest.mark.parametrize("weights", ["int8", "float16", "float32"])
@pytest.mark.promise("Reranking gives the order of the true kernel")
def test_reranking_every_row_is_the_exhaustive_search(
    weights: str, kernel: str, vectors: Path, data: Path, tmp_path: Path
) -> None:
    succeed(f"encode {vectors} {tmp_path}/codes", *ENCODE, "--kernel", kernel, "--weights", weights)
    queries = (data / "queries.npy", "-k", 30)
    exact = hits_of(vectors, *queries, "--kernel", kernel)
    assert_same(hits_of(tmp_path / "codes", *queries, "--rerank", 3000), exact)
    best = hits_of(tmp_path / "codes", data / "queries.npy", "-k", 3000, "--rerank", 3000)
    assert np.array_equal(np.sort(best.ids, axis=1), np.tile(np.arange(3000), (12, 1)))


def test_workers_write_the_same_bytes(vectors: Path, codes: Path, tmp_path: Path) -> None:
    for workers in (1, 3):
        store = tmp_path / f"codes{workers}"
        succeed(f"encode {vectors} {store}", *ENCODE, "--part-rows", 50, "--workers", workers)
        assert files_of(store) == files_of(codes)


# --- ids


@pytest.mark.promise("Ids are the row numbers of the source, also where zero rows were dropped")
def test_dropped_rows_keep_the_ids_of_the_others(data: Path, tmp_path: Path) -> None:
    rows = np.load(data / "base.npy")
    rows[[0, 1, 7, 500, 501, 502, 2999]] = 0
    kept = np.flatnonzero(rows.any(axis=1))
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "kept.npy", rows[kept])
    succeed(f"ingest {tmp_path}/rows.npy {tmp_path}/rows --drop-zero-rows")
    succeed(f"ingest {tmp_path}/kept.npy {tmp_path}/kept")
    queries = (data / "queries.npy", "-k", 40)
    for name in ("rows", "kept"):
        succeed(f"encode {tmp_path}/{name} {tmp_path}/{name}-codes", *ENCODE)
    for store, options in (
        ("{}", ("--kernel", "chi2")),
        ("{}-codes", ()),
        ("{}-codes", ("--rerank", 200)),
    ):
        dropped = hits_of(tmp_path / store.format("rows"), *queries, *options)
        plain = hits_of(tmp_path / store.format("kept"), *queries, *options)
        assert np.array_equal(dropped.ids, kept[plain.ids])
        assert np.array_equal(dropped.scores, plain.scores)  # type: ignore[arg-type]
    itself = hits_of(tmp_path / "rows", tmp_path / "kept.npy", "-k", 1, "--kernel", "chi2")
    assert np.array_equal(rows[itself.ids[:, 0]], rows[kept])


@pytest.mark.promise(
    "Hits are the same in every format; an id beyond int32 is refused where it does not fit"
)
def test_hits_are_the_same_in_every_format(codes: Path, data: Path, tmp_path: Path) -> None:
    words = ("search", codes, data / "queries.npy", "-k", 9)
    printed = hits_of(*words[1:])
    assert printed.scores is not None
    for name, written in (("h.npz", 1), ("h.parquet", 1), ("h.ivecs", 2), ("h.ibin", 1)):
        report = json.loads(succeed(*words, "--out", tmp_path / name, "--json"))
        assert len(report["written"]) == written
        found = read_hits(str(tmp_path / name))
        assert np.array_equal(found.ids, printed.ids)
        assert found.scores is not None
        assert np.array_equal(found.scores.astype(np.float32), printed.scores.astype(np.float32))
        again = json.loads(succeed(f"evaluate {tmp_path}/{name} {tmp_path}/{name} --json"))
        assert all(row["value"] == 1 for row in again["recall"] if row["definition"] == "k-recall")
    tabled = [line.split("\t") for line in succeed(*words).splitlines()]
    assert tabled[0] == ["query", "rank", "id", "score"]
    assert [int(row[2]) for row in tabled[1:]] == printed.ids.ravel().tolist()


# --- how the command behaves


@pytest.mark.slow
@pytest.mark.promise("Exit code 0: good")
def test_the_real_command_from_end_to_end(data: Path, tmp_path: Path) -> None:
    folder = {"cwd": tmp_path}
    (tmp_path / "rows.npy").symlink_to(data / "base.npy")
    (tmp_path / "q.npy").symlink_to(data / "queries.npy")
    for words in (
        ("ingest rows.npy vectors --json",),
        ("encode vectors codes", *ENCODE, "--json"),
        ("search codes q.npy -k 10 --out found.ivecs --json",),
        ("search vectors q.npy --kernel chi2 -k 10 --out truth.npz --json",),
        ("evaluate found.ivecs truth.npz --json",),
        ("info codes --json",),
        ("check codes --json",),
    ):
        outcome = run(*words, **folder)
        assert (outcome.code, outcome.err) == (0, ""), outcome
        json.loads(outcome.out)
    without_json = run("search codes q.npy -k 3", **folder)
    assert without_json.out.count("\n") == 1 + 12 * 3
    assert without_json.err.startswith("12 queries × 3,000 rows in ")
    assert run("search codes q.npy -k 3 --out h.npz", **folder).out == ""
    assert names_in(tmp_path) == sorted(
        "rows.npy q.npy vectors codes found.ivecs found.fvecs truth.npz h.npz".split()
    )


def test_names_may_hold_any_bytes(data: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(b"r\xff\xe9 \xc3\xa9\n.npy"))
    (tmp_path / odd).write_bytes((data / "base.npy").read_bytes())
    vectors, codes = tmp_path / f"vectors {odd}", tmp_path / f"codes {odd}"
    for words in (
        ("ingest", tmp_path / odd, vectors),
        ("encode", vectors, codes, *ENCODE),
        (
            "search",
            codes,
            data / "queries.npy",
            "-k",
            5,
            "--rerank",
            20,
            "--out",
            tmp_path / f"{odd}.npz",
        ),
        ("check", codes),
        ("info", vectors),
    ):
        succeed(*words)
    assert run("info", vectors).code == 0
    assert run("info", tmp_path / f"no {odd}").code == 2


def test_encoding_again_does_nothing_and_says_so(vectors: Path, codes: Path) -> None:
    before = files_of(codes)
    again = invoke(f"encode {vectors} {codes}", *ENCODE, "--part-rows", 50, "--json")
    assert (again.code, again.err) == (0, "")
    assert json.loads(again.out)["parts_done_now"] == 0
    assert files_of(codes) == before


@pytest.mark.promise("Any Zarr library reads the stores")
def test_other_tools_read_the_stores(data: Path, vectors: Path, codes: Path) -> None:
    base = np.load(data / "base.npy")
    assert np.array_equal(zarr.open_array(vectors / "vectors", mode="r")[:], base)
    group = zarr.open_group(codes, mode="r")
    assert {name: array.shape for name, array in group.arrays()} == {
        "atoms": (3000, 4),
        "weights": (3000, 4),
        "scale": (3000,),
        "residual": (3000,),
        "receipts": (60, 1056),
    }
    rows = np.asarray(group["model/dictionary_rows"])
    assert np.array_equal(np.asarray(group["model/dictionary"]), base[rows])
    receipt = json.loads(bytes(np.asarray(group["receipts"][17])))  # type: ignore[index]
    assert (receipt["part"], receipt["start"], receipt["stop"]) == (17, 850, 900)


@pytest.mark.promise("Threads open no port")
def test_threads_here_open_no_port() -> None:
    before, during = listening(), []

    def power(base: int, exponent: int) -> int:
        during.append(listening())
        return int(base**exponent)

    results: list[int] = []
    with connect(Execution(threads=2)) as workers:
        workers.run(Work("codes", lambda: 2), power, [2, 3], results.append)
    assert sorted(results) == [4, 8]
    assert during == [before, before]


def listening() -> set[tuple[str, int]]:
    """Return the addresses and ports on which this process listens."""
    sockets = psutil.Process().net_connections(kind="inet")
    return {
        (socket.laddr.ip, socket.laddr.port)
        for socket in sockets
        if socket.status == psutil.CONN_LISTEN
    }

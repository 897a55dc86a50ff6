"""What strangers have, typed as they would: their files to neighbours, their results to verdicts.

Beside these: int8 and HDF5 in ``test_files.py``, ten rows in ``test_small_data.py``, the truth of
BIGANN in ``test_raw_kernels.py``.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import h5py
import numpy as np
import pandas
import polars
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from numpy.typing import NDArray

import mercore
from mercore.stores.results.hits import read_hits
from tests.independent import ann_benchmarks, reference
from tests.stores.formats.test_containers import columns, lists
from tests.stores.formats.test_formats import bigann, texmex
from tests.support.running import histograms, invoke, succeed

BASE, QUERIES = histograms(300, 12, seed=3), histograms(10, 12, seed=4)
K = 10

Write = Callable[[Path, NDArray[Any]], object]


def true_ids(kernel: str) -> NDArray[np.int64]:
    """The ids of the nearest rows, by the reference."""
    x, y = (reference.prepare(kernel, rows) for rows in (QUERIES, BASE))
    return reference.top_k(reference.kernel(kernel, x, y), K)[1]


def gzipped(path: Path, rows: NDArray[Any]) -> None:
    path.write_bytes(gzip.compress(texmex(rows)))


FILES: dict[str, tuple[Write, str, str]] = {  # writer, names of the base and of the queries
    "CSR": (
        lambda path, rows: scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(rows)),
        "words.npz",
        "asked.npz",
    ),
    "npz": (np.savez_compressed, "rows.npz", "asked.npz"),
    "Parquet of lists": (
        lambda path, rows: pq.write_table(lists(rows), path),
        "rows.parquet",
        "asked.parquet",
    ),
    "Parquet of columns": (
        lambda path, rows: pq.write_table(columns(rows), path),
        "rows.parquet",
        "asked.parquet",
    ),
    "gzip": (gzipped, "base.bvecs.gz", "query.bvecs"),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_to_neighbours(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write, base, queries = FILES[kind]
    write(Path(base), BASE)
    if kind == "gzip":  # queries are read more than once
        Path(queries).write_bytes(texmex(QUERIES))
    else:
        write(Path(queries), QUERIES)
    succeed(f"ingest {base} base.zarr")
    succeed(f"search base.zarr {queries} --kernel chi2 -k {K} --out hits.npz")
    np.testing.assert_array_equal(read_hits("hits.npz").ids, true_ids("chi2"))


@pytest.mark.parametrize("library", [pandas, polars])
def test_a_data_frame_to_neighbours(library: Any, tmp_path: Path) -> None:
    mercore.ingest(library.DataFrame(BASE), tmp_path / "base.zarr")
    asked = library.DataFrame(QUERIES)
    _, hits = mercore.search(tmp_path / "base.zarr", asked, kernel="chi2", k=K)
    np.testing.assert_array_equal(hits.ids, true_ids("chi2"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store ``base.zarr``, the queries ``q.npy``, and what faiss finds: ``I.npy``, ``D.npy``."""
    folder = tmp_path_factory.mktemp("faiss")
    np.save(folder / "base.npy", BASE)
    np.save(folder / "q.npy", QUERIES)
    succeed(f"ingest {folder}/base.npy {folder}/base.zarr")
    index: Any = faiss.IndexFlatL2(BASE.shape[1])
    index.add(BASE.astype(np.float32))
    distances, ids = index.search(QUERIES.astype(np.float32), K)
    np.save(folder / "I.npy", ids)
    np.save(folder / "D.npy", distances)
    return folder


def verify(folder: Path, *words: object, code: int) -> dict[str, Any]:
    """The verdicts of ``verify``, which must end with a code."""
    command = ("verify", folder / "base.zarr", folder / "q.npy", *words)
    outcome = invoke(*command, "--kernel", "euclidean", "--json")
    assert outcome.code == code, outcome
    report: dict[str, Any] = json.loads(outcome.out)
    return report


@pytest.mark.promise("Ids of faiss and big-ann's truth under any name get a verdict")
def test_ids_of_faiss_to_a_verdict(folder: Path, tmp_path: Path) -> None:
    report = verify(folder, folder / "I.npy", code=0)
    assert report["proved"] + report["tied"] == len(QUERIES)
    ids = np.load(folder / "I.npy")
    ids[7, 2] = -1  # as of an index that looks at too few rows
    np.save(tmp_path / "I.npy", ids)
    report = verify(folder, tmp_path / "I.npy", code=1)
    (wrong,) = (each for each in report["verdicts"] if each["verdict"] == "refuted")
    assert (wrong["query"], wrong["rank"]) == (7, 3)


@pytest.mark.promise("Ids of faiss and big-ann's truth under any name get a verdict")
def test_truth_of_bigann_under_another_name_to_a_verdict(folder: Path, tmp_path: Path) -> None:
    ids, distances = np.load(folder / "I.npy"), np.load(folder / "D.npy")
    path = tmp_path / "GT_10K"
    path.write_bytes(bigann(ids.astype("<i4")) + distances.astype("<f4").tobytes())
    assert verify(folder, path, "--hits-format", "ibin", code=0)["refuted"] == 0
    refused = invoke(f"verify {folder}/base.zarr {folder}/q.npy {path} --kernel l2")
    assert refused.code == 2
    assert "Fix: " in refused.err


@pytest.mark.promise(
    "Under `euclidean`, big-ann's files get squared distances, as faiss computes them"
)
def test_a_truth_is_written_as_bigann_has_it(folder: Path, tmp_path: Path) -> None:
    """Squared distances, which faiss computes, under a name without a suffix."""
    path, words = tmp_path / "GT_300", ("--kernel", "euclidean", "-k", K, "--exact")
    named = ("--out", path, "--hits-format", "ibin")
    succeed(f"search {folder}/base.zarr {folder}/q.npy", *words, *named)
    squares = np.frombuffer(path.read_bytes()[-4 * K * len(QUERIES) :], "<f4").reshape(-1, K)
    np.testing.assert_array_equal(squares, np.load(folder / "D.npy"))
    assert verify(folder, path, "--hits-format", "ibin", code=0)["refuted"] == 0
    described = json.loads(succeed(f"info {path} --format ibin --json"))
    assert (described["kind"], described["queries"], described["k"]) == ("hits", len(QUERIES), K)
    outcome = invoke("info", path)
    assert outcome.code == 2
    assert outcome.err.endswith("Fix: name the true format with --format, or convert the file.\n")
    refused = invoke(f"info {folder}/base.zarr --format ibin")
    assert refused.err == (
        f"mercore: --format has no use here: {folder}/base.zarr is a store of vectors. Fix: leave "
        "--format out.\n"
    )
    refused = invoke(f"search {folder}/base.zarr {folder}/q.npy --hits-format ibin")
    assert refused.err == (
        "mercore: --hits-format has no use here: without --out no file is written. Fix: leave "
        "--hits-format out.\n"
    )


@pytest.mark.promise("Ties count in recall whatever numbers the truth holds")
def test_ties_count_whatever_numbers_a_truth_holds(folder: Path, tmp_path: Path) -> None:
    """Distances, their squares as faiss and big-ann have them, or other numbers, or none."""
    inputs: dict[str, Any] = {"vectors": folder / "base.zarr", "queries": folder / "q.npy"}
    _, found = mercore.search(*inputs.values(), kernel="euclidean", k=2 * K)
    returned, ids = found.ids[:, ::2], np.load(folder / "I.npy")
    squared = np.square(QUERIES.astype(int)[:, None] - BASE.astype(int)).sum(axis=2)
    reached = np.take_along_axis(squared, returned, axis=1) <= np.sort(squared, axis=1)[:, [K - 1]]
    assert 0.3 < reached.mean() < 0.7
    distances = np.load(folder / "D.npy")
    for name, numbers in {
        "squares": distances,
        "distances": np.sqrt(distances),
        "rounded": np.rint(distances / 64)[:, ::-1],
    }.items():
        path = tmp_path / name
        path.write_bytes(bigann(ids.astype("<i4")) + numbers.astype("<f4").tobytes())
    for truth, form in [(str(each), "ibin") for each in tmp_path.iterdir()] + [(ids, None)]:
        report = mercore.evaluate(returned, truth, truth_format=form, kernel="l2", **inputs)
        values = {(row["definition"], row["rank"]): row["value"] for row in report["recall"]}
        assert values["tie-aware", K] == pytest.approx(reached.mean()), truth


def made_for_ann_benchmarks(path: Path, distance: str) -> NDArray[np.int64]:
    """Write a data set as ann-benchmarks has it; return the true ids, int64[nq, K]."""
    rng = np.random.default_rng(0)
    train, test = (rng.normal(0, 30, (n, 12)).astype(np.float32) for n in (400, 20))
    measure = ann_benchmarks.DISTANCES[distance]
    distances = np.array([measure(query, train) for query in test.astype(float)])
    ids = np.argsort(distances, axis=1)[:, :K]
    with h5py.File(path, "w") as file:
        file["train"], file["test"], file["neighbors"] = train, test, ids.astype(np.int32)
        file["distances"] = np.take_along_axis(distances, ids, axis=1).astype(np.float32)
        file.attrs["distance"] = distance
    return ids


@pytest.mark.parametrize(
    ("distance", "kernel"), [("euclidean", "euclidean"), ("angular", "cosine")]
)
@pytest.mark.promise("Hits in HDF5 are measured by ann-benchmarks' definition of recall")
def test_ann_benchmarks_in_and_out(distance: str, kernel: str, tmp_path: Path) -> None:
    data, run = tmp_path / "made.hdf5", tmp_path / "run.hdf5"
    made_for_ann_benchmarks(data, distance)
    succeed(f"ingest {data}::train {tmp_path}/base.zarr")
    words = ("--kernel", kernel, "-k", K, "--out", run)
    succeed(f"search {tmp_path}/base.zarr {data}::test", *words)
    assert ann_benchmarks.recall(str(data), str(run), K) == 1
    with h5py.File(data) as true, h5py.File(run) as found:
        np.testing.assert_allclose(found["distances"], true["distances"], rtol=1e-6)


@pytest.mark.promise("Hits in HDF5 are measured by ann-benchmarks' definition of recall")
def test_ann_benchmarks_measures_codes(tmp_path: Path) -> None:
    data, run = tmp_path / "made.hdf5", tmp_path / "run.hdf5"
    true = made_for_ann_benchmarks(data, "euclidean")
    succeed(f"ingest {data}::train {tmp_path}/base.zarr")
    code = ("--encoder", "pq", "--subquantizers", 2)
    succeed(f"encode {tmp_path}/base.zarr {tmp_path}/codes --kernel euclidean", *code)
    succeed(f"search {tmp_path}/codes {data}::test -k {K} --out {run}")
    script = [sys.executable, "-I", ann_benchmarks.__file__, str(data), str(run), str(K)]
    printed = float(subprocess.run(script, capture_output=True, check=True).stdout)
    with h5py.File(run) as file:
        found = np.asarray(file["neighbors"])
    share = np.mean([np.isin(hits, best).mean() for hits, best in zip(found, true, strict=True)])
    assert 0.1 < share <= printed < 1  # the definition counts rows that nearly tie, too

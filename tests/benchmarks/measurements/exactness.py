"""Wrong ids of the exact search, against a truth apart from it; and those of faiss' flat indexes
beside it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mercore.jobs import api
from mercore.jobs.resources.execution import available_cores
from mercore.stores.rows import open_rows
from tests.benchmarks.reporting.tables import Row
from tests.independent import exact_truth
from tests.support import adversarial
from tests.support.adversarial import Adversary as Data

Ids = NDArray[np.int64]

K = 10
BATCHES = (1, 50, 2000)
PANORAMA_LEVELS = 8
SAMPLE = 512  # rows and queries whose median squared distance is 1 / γ of rbf
CHANGES = "first id changes with the batch", "ten first change"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many rows and queries are taken of each file at most, and made of each adversarial
    set."""

    rows: int
    queries: int
    made_rows: int
    made_queries: int


def exact_ids(vectors: str, queries: str, kernel: Mapping[str, Any], k: int) -> Ids:
    """Return the ids that an exact search by bounds finds; ``kernel`` holds the options that name
    one."""
    with TemporaryDirectory() as folder:
        bounds = str(Path(folder) / "bounds.zarr")
        api.encode(vectors, bounds, encoder="bound", force=True, **kernel)
        _, hits = api.search(bounds, queries, k=k, exact=True, threads=available_cores())
    return hits.ids


def wrong_ids(
    files: Mapping[str, tuple[str, str]], kernels: Sequence[str], sizes: Sizes
) -> list[Row]:
    """Return a row per set and kernel: how many ids are wrong, of how many.

    Parameters
    ----------
    files : base and queries of sets by name: any files that mercore reads, or counts as scipy's
        sparse ``.npz``
    """
    lines: list[Row] = []
    for data in _sets(files, sizes):
        with TemporaryDirectory() as folder:
            paths = ingested(data, Path(folder))
            lines += [_line(data, kernel_options(kernel, data), paths) for kernel in kernels]
    return lines


def flat_indexes(n: int, nq: int) -> list[Row]:
    """Return a line an index and batch on near-uniform rows: for how many queries the first or ten
    first are wrong.

    Truth is the cosine of the rows; and, so that no index is blamed for its metric, that metric of
    the same rows.
    """
    data = adversarial.adversary("near-uniform", n, nq)
    true = exact_truth.nearest("cosine", data.rows, data.queries, K)
    custom = {
        "L2": exact_truth.nearest("rbf", data.rows, data.queries, K),
        "IP": _nearest_by_product(data),
    }
    with TemporaryDirectory() as folder:
        ids = exact_ids(*ingested(data, Path(folder)), {"kernel": "cosine"}, K)
    lines = [_errors("mercore, --exact", nq, ids, (true, true)) | dict.fromkeys(CHANGES, 0)]
    for name, index in _indexes(data.rows).items():
        metric = custom["IP" if "IP" in name else "L2"]
        answers = [
            (batch, _searched(index, data.queries, batch)) for batch in BATCHES if batch <= nq
        ]
        changes = _changes([ids for _, ids in answers])
        lines += [_errors(name, batch, ids, (true, metric)) | changes for batch, ids in answers]
    return lines


def _sets(files: Mapping[str, tuple[str, str]], sizes: Sizes) -> Iterator[Data]:
    """Yield the sets of files, without rows that are all zero, then the adversarial ones."""
    for name, (base, queries) in files.items():
        yield Data(name, read_rows(base, sizes.rows), read_rows(queries, sizes.queries))
    yield from adversarial.adversaries(sizes.made_rows, sizes.made_queries)


def read_rows(path: str, count: int) -> NDArray[Any]:
    """Return the first rows of a file that are not all zero; counts as uint8 if they fit, else as
    float32."""
    if path.endswith(".npz"):
        counts = sparse.csr_array(sparse.load_npz(path))[:count].toarray()
        rows = counts.astype(np.uint8 if counts.max() < 256 else np.float32)
    else:
        source = open_rows(path)
        rows = source.read(0, min(count, source.shape[0]))
    return np.ascontiguousarray(rows[rows.any(axis=1)])


def ingested(data: Data, folder: Path) -> tuple[str, str]:
    """Make a vector store of the rows and a file of the queries; return their paths."""
    rows, queries, store = (
        str(folder / name) for name in ("rows.npy", "queries.npy", "vectors.zarr")
    )
    np.save(rows, data.rows)
    np.save(queries, data.queries)
    api.ingest(rows, store)
    return store, queries


def kernel_options(kernel: str, data: Data) -> dict[str, Any]:
    """Return the options that name a kernel; γ is 1 for exp_chi2, 1 over the median squared
    distance for rbf."""
    if kernel == "exp_chi2":
        return {"kernel": kernel, "gamma": 1.0}
    if kernel != "rbf":
        return {"kernel": kernel}
    X, Y = (values[:SAMPLE].astype(np.float64) for values in (data.queries, data.rows))
    squares = (X**2).sum(axis=1)[:, None] + (Y**2).sum(axis=1) - 2 * X @ Y.T
    return {"kernel": kernel, "gamma": float(1 / np.median(squares))}


def _line(data: Data, kernel: dict[str, Any], paths: tuple[str, str]) -> Row:
    """Search by one kernel, and compare with the truth."""
    found = exact_ids(*paths, kernel, K)
    true = exact_truth.nearest(
        kernel["kernel"], data.rows, data.queries, K, gamma=kernel.get("gamma", 1.0)
    )
    wrong = found != true
    _, unproved = api.search(*paths, k=K, threads=available_cores(), **kernel)
    return {
        "set": data.name,
        "kernel": kernel["kernel"],
        "rows": len(data.rows),
        "d": data.rows.shape[1],
        "dtype": data.rows.dtype.name,
        "queries": len(data.queries),
        "ids": wrong.size,
        "wrong": int(wrong.sum()),
        "wrong without --exact": int((unproved.ids != true).sum()),
    }


def _nearest_by_product(data: Data) -> Ids:
    """Return the rows of greatest inner product with each query, in float64."""
    rows = data.rows.astype(np.float64).T
    ids = np.empty((len(data.queries), K), np.int64)
    for q, query in enumerate(data.queries.astype(np.float64)):
        products = query @ rows
        few = np.argpartition(-products, K)[:K]
        ids[q] = few[np.argsort(-products[few])]
    return ids


def _indexes(rows: NDArray[np.float32]) -> dict[str, Any]:
    """Return the flat indexes of faiss by name, filled."""
    d = rows.shape[1]
    indexes = {
        "faiss IndexFlatIP": faiss.IndexFlatIP(d),
        "faiss IndexFlatL2": faiss.IndexFlatL2(d),
        "faiss IndexFlatL2Panorama": faiss.IndexFlatL2Panorama(d, PANORAMA_LEVELS),
    }
    for index in indexes.values():
        index.add(rows)
    return indexes


def _searched(index: Any, queries: NDArray[np.float32], batch: int) -> Ids:
    """Return what an index finds in batches of so many queries."""
    parts = [index.search(queries[at : at + batch], K)[1] for at in range(0, len(queries), batch)]
    return np.concatenate(parts)


def _errors(name: str, batch: int, ids: Ids, truths: tuple[Ids, Ids]) -> Row:
    """Return for how many queries the first id, and the set of the ten first, are not those of each
    truth."""
    line: Row = {"index": name, "queries per batch": batch}
    for metric, true in zip(("cosine", "its own metric"), truths, strict=True):
        line[f"first wrong, {metric}"] = _differing([ids[:, :1], true[:, :1]])
        line[f"ten first wrong, {metric}"] = _differing([ids, true])
    return line


def _changes(answers: list[Ids]) -> Row:
    """Return for how many queries the first id, and the set of the ten first, depend on the size of
    the batch."""
    return {
        CHANGES[0]: _differing([ids[:, :1] for ids in answers]),
        CHANGES[1]: _differing(answers),
    }


def _differing(answers: list[Ids]) -> int:
    """Return for how many queries the answers are not all the same set."""
    first, *others = (np.sort(ids, axis=1) for ids in answers)
    return (
        int(np.any([(first != other).any(axis=1) for other in others], axis=0).sum())
        if others
        else 0
    )

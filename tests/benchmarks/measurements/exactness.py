"""Wrong ids of the exact search, against a truth apart from it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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
SAMPLE = 512  # rows and queries whose median squared distance is 1 / γ of rbf


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

"""Score chosen rows by the true kernel: fetched from the vector store in whole parts, each part read once."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels import Kernel
from pipeline.kernels.kernel import Float64
from pipeline.parallel import over_parts, read_ahead
from stores.vectors import Vectors

PAIRS = 1 << 10  # scored at a time
Ids = NDArray[np.int64]


def true_scores(
    vectors: Vectors, kernel: Kernel, queries: NDArray[Any], rows: NDArray[np.int64], *, threads: int
) -> Float64:
    """Return the true score of each query and each of its rows, float64[nq, R]; −inf where the row is −1."""
    scores, found = np.full(rows.shape, -np.inf), rows >= 0
    pairs = np.nonzero(found)[0], rows[found]
    scores[found] = scores_of_pairs(vectors, kernel, kernel.prepare(queries, label="query"), pairs, threads=threads)
    return scores


def scores_of_pairs(
    vectors: Vectors, kernel: Kernel, queries: Float64, pairs: tuple[Ids, Ids], *, threads: int
) -> Float64:
    """Return the true scores of pairs (query, row), float64[p].

    Every part of the vector store that holds a wanted row is read once, and its rows are scored before the next.

    Parameters
    ----------
    queries : float64[nq, d], prepared
    pairs : int64[p] twice: queries, and rows of the store
    """
    of, rows = pairs
    scores = np.empty(len(rows))
    order = np.argsort(rows, kind="stable")
    wanted = rows[order]

    def work(parts: Iterator[int]) -> None:
        for part in parts:
            first, last = vectors.bounds(part)
            here = slice(*np.searchsorted(wanted, [first, last]))
            chosen, at = np.unique(wanted[here], return_inverse=True)
            values = kernel.prepare(vectors.read_part(part)[chosen - first], first=first)
            scores[order[here]] = kernel.exact_pairs(values, queries, at, of[order[here]])

    over_parts(np.unique(wanted // vectors.part_rows).tolist(), threads, work)
    return scores


def fetch(vectors: Vectors, rows: NDArray[np.int64], *, threads: int) -> NDArray[Any]:
    """Return the named rows, dtype[len(rows), d]; every part that holds one is read once.

    Parameters
    ----------
    rows : int64[p], ascending
    """
    out = np.empty((len(rows), vectors.dims), vectors.dtype)

    def work(parts: Iterator[int]) -> None:
        for part, values in read_ahead(parts, lambda part, _: vectors.read_part(part)):
            first, last = vectors.bounds(part)
            here = slice(*np.searchsorted(rows, [first, last]))
            np.take(values, rows[here] - first, axis=0, out=out[here])

    parts = rows // vectors.part_rows
    over_parts(parts[np.diff(parts, prepend=-1) > 0].tolist(), threads, work)
    return out


def pair_scores(
    kernel: Kernel, rows: NDArray[Any], queries: Float64, pairs: tuple[Ids, Ids], *, threads: int
) -> Float64:
    """Return the true scores of pairs (rows[at[p]], queries[of[p]]), float64[p].

    Parameters
    ----------
    rows : dtype[n, d], raw
    queries : float64[nq, d], prepared
    pairs : int64[p] twice, ``at`` and ``of``
    """
    at, of = pairs
    scores = np.empty(len(at))
    order = np.argsort(at, kind="stable")

    def work(slices: Iterator[int]) -> None:
        for number in slices:
            some = order[number * PAIRS : (number + 1) * PAIRS]
            wanted = at[some]
            first = np.diff(wanted, prepend=-1) > 0  # of the pairs of a row
            prepared = kernel.prepare(rows[wanted[first]])
            scores[some] = kernel.exact_pairs(prepared, queries, np.cumsum(first) - 1, of[some])

    over_parts(list(range(-(-len(at) // PAIRS))), threads, work)
    return scores

"""Search vectors exhaustively by the true kernel: float32 blocks as a filter with a proven error, float64 decides."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.parallel import over_parts, read_ahead
from mercore.pipeline.topk import TopK, merge
from mercore.pipeline.topk_numba import survivors
from mercore.stores.vectors import Vectors

BLOCK_BYTES, MOST_ROWS, FEWEST_ROWS = 1 << 20, 1024, 64  # of a block: in float64 it stays in cache


class RowsBatch:
    """A batch of prepared queries, in the layouts that the filter and the decision want."""

    def __init__(self, kernel: Kernel, queries: NDArray[Any]) -> None:
        self.kernel = kernel
        self.prepared: Float64 = kernel.prepare(queries, label="query")
        self.columns = kernel.packed(np.ascontiguousarray(self.prepared.T).astype(np.float32))


def search_vectors(vectors: Vectors, kernel: Kernel, queries: NDArray[Any], k: int, *, threads: int) -> TopK:
    """Return the k rows of highest true score for each query: exact, scores float64, ties to the lower row.

    A row is left out only if its float32 score lies below the k-th best by more than ``kernel.block_error``.

    Parameters
    ----------
    queries : dtype[nq, d], raw rows
    k : int, 1 ≤ k ≤ n
    """
    return search_parts(vectors, RowsBatch(kernel, queries), range(vectors.parts), k, threads=threads)


def search_parts(vectors: Vectors, batch: RowsBatch, parts: Sequence[int], k: int, *, threads: int) -> TopK:
    """Return the k rows of highest true score among some parts, for each query."""
    size = block_rows(vectors.dims)

    def work(taken: Iterator[int]) -> TopK:
        best = TopK(len(batch.prepared), k, np.float64)
        for part, rows in read_ahead(taken, lambda part, _: vectors.read_part(part)):
            first, _ = vectors.bounds(part)
            for start in range(0, len(rows), size):
                search_block(batch, rows[start : start + size], first + start, best)
        return best

    return merge(over_parts(list(parts), threads, work))


def block_rows(dims: int) -> int:
    """Return the rows that are best scored at once."""
    return max(FEWEST_ROWS, min(MOST_ROWS, BLOCK_BYTES // (8 * dims)))


def search_block(batch: RowsBatch, rows: NDArray[Any], first: int, best: TopK) -> None:
    """Score one block of rows, whose first row is ``first``, and take in what may be among the k best."""
    prepared = batch.kernel.prepare(rows, first=first)
    scores = batch.kernel.block(prepared.astype(np.float32), batch.columns)
    error = batch.kernel.block_error(prepared, batch.prepared)
    at, queries = _survivors(scores, _least(scores, best, error))
    best.insert(queries, at + first, batch.kernel.exact_pairs(prepared, batch.prepared, at, queries))


def _least(scores: NDArray[np.float32], best: TopK, error: float) -> NDArray[np.float32]:
    """Return, for each query, the float32 score below which a row cannot be among the k best."""
    k = best.ids.shape[1]
    least = best.kth - error
    if len(scores) >= k and np.isneginf(least).any():
        # k rows of this block truly score at least their k-th float32 score less the error
        kth = np.partition(scores, len(scores) - k, axis=0)[len(scores) - k]
        least = np.maximum(least, kth.astype(np.float64) - 2 * error)
    with np.errstate(over="ignore"):  # −∞ rules nothing out
        return np.nextafter(least.astype(np.float32), np.float32(-np.inf))


def _survivors(scores: NDArray[np.float32], least: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the (row, query) whose score reaches the least, int64[p] each."""
    rows, queries = np.empty(4 * len(least), np.int64), np.empty(4 * len(least), np.int64)
    count = survivors(scores, least, rows, queries)
    if count > rows.size:
        rows, queries = np.empty(count, np.int64), np.empty(count, np.int64)
        survivors(scores, least, rows, queries)
    return rows[:count], queries[:count]

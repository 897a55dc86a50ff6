"""Search vectors exhaustively: bytes in integers, others by a float32 filter of proven error."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64, float32_below
from mercore.pipeline.collector import Collector, Kept, NewCollector
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.parallel import over_parts, read_ahead
from mercore.pipeline.scanners.byte_rows import ByteQueries, byte_queries
from mercore.pipeline.topk import TopK
from mercore.pipeline.topk_numba import survivors
from mercore.stores.vectors import Vectors

# of a block: it stays in the processor's cache, in float64 too
BLOCK_BYTES, MAX_BLOCK_ROWS, MIN_BLOCK_ROWS = 1 << 20, 1024, 64
BYTE_PAIRS = 1 << 21  # of a block of rows of bytes, at most
LISTED = 1 << 12  # pairs of such a block that are listed, beside ``MIN_BLOCK_ROWS`` per query


class RowsBatch:
    """A batch of queries for every row: prepared in float64, and packed for the float32 filter.

    For rows of bytes, ``dtype`` of the store, whole queries are packed as bytes: see ``byte_rows``.
    """

    def __init__(self, kernel: Kernel, queries: NDArray[Any], dtype: np.dtype[Any]) -> None:
        self.kernel = kernel
        self.prepared: Float64 = kernel.prepare(queries, label="query")
        self.bytes = byte_queries(kernel, queries, dtype)
        if self.bytes is None:
            self.columns = kernel.packed(np.ascontiguousarray(self.prepared.T).astype(np.float32))

    def search(self, rows: NDArray[Any], first: int, collector: Collector) -> None:
        """Score consecutive rows, the first is row ``first``; insert the pairs that may be kept."""
        if self.bytes is not None:
            return search_bytes(self.kernel, self.bytes, rows, first, collector)
        size = block_rows(rows.shape[1])
        for start in range(0, len(rows), size):
            search_block(self, rows[start : start + size], first + start, collector)
        return None


def search_vectors(
    vectors: Vectors, kernel: Kernel, queries: NDArray[Any], k: int, *, threads: int
) -> TopK:
    """Return the exact top k of each query: scores float64, ties to the lower row.

    A row is left out only if its float32 score is below the k-th score by more than
    ``kernel.block_error``.

    Parameters
    ----------
    queries : dtype[nq, d], raw rows
    k : int, 1 ≤ k ≤ n
    """
    batch = RowsBatch(kernel, queries, vectors.dtype)
    new = partial(TopK, len(queries), k, np.float64)
    return search_parts(vectors, batch, range(vectors.parts), new, threads=threads)


def search_parts(
    vectors: Vectors,
    batch: RowsBatch,
    parts: Sequence[int],
    new: NewCollector[Kept],
    *,
    threads: int,
) -> Kept:
    """Score the rows of some parts by the true kernel; return the filled collector."""

    def work(parts: Iterator[int]) -> Kept:
        collector = new()
        for part, rows in read_ahead(parts, lambda part, _: vectors.read_part(part)):
            batch.search(rows, vectors.bounds(part)[0], collector)
        return collector

    collectors = over_parts(list(parts), threads, work)
    return type(collectors[0]).merge(collectors)


def block_rows(dims: int) -> int:
    """Return the number of rows to score at a time."""
    return max(MIN_BLOCK_ROWS, min(MAX_BLOCK_ROWS, BLOCK_BYTES // (8 * dims)))


def search_block(batch: RowsBatch, rows: NDArray[Any], first: int, collector: Collector) -> None:
    """Score a block of rows, the first is row ``first``; insert the pairs that may be kept."""
    prepared = batch.kernel.prepare(rows, first=first)
    scores = batch.kernel.block(prepared.astype(np.float32), batch.columns)
    error = batch.kernel.block_error(prepared, batch.prepared)
    survived, queries = _survivors(scores, float32_below(collector.least(scores, error)))
    collector.insert(
        queries,
        survived + first,
        batch.kernel.exact_pairs(prepared, batch.prepared, survived, queries),
    )


def search_bytes(
    kernel: Kernel, batch: ByteQueries, rows: NDArray[Any], first: int, collector: Collector
) -> None:
    """Score consecutive rows of bytes in integers; insert the pairs that may be kept.

    Blocks are small until the collector knows what to leave out, and grow after that.
    """
    most = max(MIN_BLOCK_ROWS, min(BLOCK_BYTES // rows.shape[1], BYTE_PAIRS // batch.nq))
    none, start, size = np.empty((0, batch.nq), np.float32), 0, most
    while start < len(rows):
        least = collector.least(none, 0.0)
        if np.isneginf(least).any():
            size = MIN_BLOCK_ROWS
        block = rows[start : start + size]
        reaching = batch.reaching(block, least, room=MIN_BLOCK_ROWS * batch.nq + LISTED)
        if reaching is None:
            size //= 2
            continue
        of_block, queries, scores = reaching
        if np.isnan(scores).any():  # a row is all zero
            kernel.checked(block, first + start, "row")
        collector.insert(queries, of_block + (first + start), scores)
        start, size = start + len(block), min(most, 2 * size)


def _survivors(
    scores: NDArray[np.float32], least: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs (rows, queries) whose score reaches ``least``, int64[p] each."""
    rows, queries = np.empty(4 * len(least), np.int64), np.empty(4 * len(least), np.int64)
    count = survivors(scores, least, rows, queries)
    if count > rows.size:
        rows, queries = np.empty(count, np.int64), np.empty(count, np.int64)
        survivors(scores, least, rows, queries)
    return rows[:count], queries[:count]

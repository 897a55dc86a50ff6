"""Search codes exhaustively: K(D, x) once a query, then α look-ups a row (Davis et al. 2014, Eq. 12)."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.best import Best, merge
from pipeline.encoders.aska import Aska
from pipeline.filter import GROUP, PackedTable, QuantisedTable, Rows
from pipeline.kernels.kernel import Float32
from pipeline.parallel import over_parts, read_ahead
from stores.codes import CodeStore
from stores.reader import PartReader

BLOCK_ROWS = 1 << 18  # a block of codes, 7 MB, stays in L3 while each group of queries passes over it
FIRST_ROWS = 1 << 13  # the first rows give the k-th scores that the filter needs
FEW = 4  # so many queries are scanned faster together than one by one


def scan_codes(store: CodeStore, encoder: Aska, queries: NDArray[Any], k: int, *, threads: int) -> Best:
    """Return the k rows of highest ASKA score for each query, float32; bit-equal whatever threads, batch or parts.

    Parameters
    ----------
    queries : dtype[nq, d], raw rows
    k : int, 1 ≤ k ≤ n

    Raises
    ------
    IntegrityError
        If any byte of the store is not the one that was written; no result is then returned.
    """
    groups = query_groups(encoder, queries)
    receipts = store.receipts

    def work(parts: Iterator[int]) -> Best:
        best = Best(len(queries), k, np.float32)
        readers = [PartReader(store.store, receipts, ["atoms", "weights", "scale"]) for _ in range(2)]
        for part, columns in read_ahead(parts, lambda part, slot: readers[slot].read(part)):
            first, _ = store.store.bounds(part)
            scan_columns(columns, groups, first, best)
        return best

    return merge(over_parts(list(range(store.parts)), threads, work))


class Block:
    """A block of codes, decoded as each way of scanning wants it, once for all queries."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], first: int) -> None:
        self.columns = columns
        self.first = first

    @cached_property
    def weights(self) -> Float32:
        """Weights as float32[b, α]."""
        return Aska.weights(self.columns)

    @cached_property
    def rows(self) -> Rows:
        """Integer weights with their scales and sums."""
        return Rows(self.columns, self.first)


class QueryGroup:
    """Up to 64 queries that are scanned together, or one alone, and their table K(D, x), float32[m, Q]."""

    def __init__(self, queries: slice, table: Float32, *, alpha: int, int8: bool) -> None:
        self.queries = queries
        self.table = table
        self.filter: QuantisedTable | PackedTable | None = None
        if int8 and table.shape[1] > 1:
            self.filter = QuantisedTable(table, alpha)
        elif int8 and alpha == 8 and table.min() >= 0:
            self.filter = PackedTable(table[:, 0])

    def scan(self, block: Block, best: Best) -> None:
        """Take a block into the best: by the filter, as soon as there is a k-th score for it to work with."""
        from pipeline.scan_numba import scan_batch, scan_one

        if self.filter is not None and best.kth[self.queries].min() > 0:
            best.rescored += self.filter.scan(block.rows, best, self.queries)
            return
        atoms, scores, ids = block.columns["atoms"], best.scores[self.queries], best.ids[self.queries]
        if len(ids) == 1:
            scan_one(atoms, block.weights, self.table[:, 0], block.first, scores, ids)
        else:
            scan_batch(atoms, block.weights, self.table, block.first, np.empty(len(ids), np.float32), scores, ids)


def query_groups(encoder: Aska, queries: NDArray[Any]) -> list[QueryGroup]:
    """Return the queries in groups of 64; a few that are left over go one by one."""
    starts = list(range(0, len(queries), GROUP))
    left = len(queries) % GROUP
    if 0 < left < FEW:
        starts[-1:] = range(len(queries) - left, len(queries))
    stops = [*starts[1:], len(queries)]
    spec = encoder.spec
    return [
        QueryGroup(
            slice(start, stop),
            np.ascontiguousarray(encoder.table(queries[start:stop])),
            alpha=spec.n_nonzero_coefs,
            int8=spec.weights == "int8",
        )
        for start, stop in zip(starts, stops, strict=True)
    ]


def scan_columns(columns: Mapping[str, NDArray[Any]], groups: list[QueryGroup], first: int, best: Best) -> None:
    """Score the codes of one part, whose first row is ``first``, for every query."""
    start, n = 0, len(columns["atoms"])
    while start < n:
        k = best.ids.shape[1]
        warm = bool(np.isfinite(best.kth).all())
        stop = min(n, start + (BLOCK_ROWS if warm else max(FIRST_ROWS, k)))
        block = Block({name: values[start:stop] for name, values in columns.items()}, first + start)
        for group in groups:
            group.scan(block, best)
        start = stop

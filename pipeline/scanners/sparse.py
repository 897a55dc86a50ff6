"""Scan sparse codes: K(D, x) once per query, then α look-ups per row (Davis et al. 2014)."""

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.scanners.sparse_filter import PackedTable, QuantisedTable, Rows
from mercore.pipeline.scanners.sparse_layout import GROUP
from mercore.pipeline.scanners.sparse_numba import (
    PANEL,
    half_squares,
    multiply_weights,
    scan_batch,
    scan_one,
)
from mercore.pipeline.simd.aligned import in_panels
from mercore.pipeline.topk import TopK

BLOCK_ROWS = 1 << 18  # 7 MB of codes: they stay in L3 while each group of queries is scored
TILE_ROWS = 1 << 14  # 512 KB of float32 weights at eight per row
FIRST_ROWS = 1 << 13  # the first rows give the k-th scores that the filter needs
FEW = 4  # queries from which a batch beats single scans


class SparseScanner:
    """The scanner of sparse codes: queries in groups that are scanned together.

    A score is s = Σ w K(x, z) (Eq. 12), w a stored weight times the row's ``factor``: products are
    rounded to float32 and added in atom order (``product``). The metric ``distance`` adds ρ² / 2, ρ
    = ‖Φ(y) − Φ̂(y)‖ the residual. Then s = 1 − ‖Φ(x) − Φ̂(y)‖² / 2 if Φ̂(y) is the projection of a
    unit Φ(y), as ‖Φ̂(y)‖² = 1 − ρ².
    """

    names = ("atoms", "weights", "scale", "residual")

    def __init__(self, groups: list["QueryGroup"], *, metric: str) -> None:
        self.groups = groups
        self._read = ("atoms", "weights", "factor", *(["residual"] * (metric == "distance")))

    def scan(self, columns: Mapping[str, NDArray[Any]], first: int, best: TopK) -> None:
        """Insert the scores of one part, whose first row is ``first``, into the top-k lists."""
        columns = {name: columns[name] for name in self._read}
        start, n = 0, len(columns["atoms"])
        while start < n:
            k = best.ids.shape[1]
            warm = bool(np.isfinite(best.kth).all())
            most = BLOCK_ROWS if len(self.groups) > 1 else max(BLOCK_ROWS, start)  # one pass
            stop = min(n, start + (most if warm else max(FIRST_ROWS, k)))
            block = Block(
                {name: values[start:stop] for name, values in columns.items()}, first + start
            )
            for group in self.groups:
                group.scan(block, best)
            start = stop


class Block:
    """A block of unpacked codes; it has a residual column if that counts."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], first: int) -> None:
        self.columns = columns
        self.first = first

    @cached_property
    def rows(self) -> Rows:
        """The integer weights with their factors."""
        return Rows(self.columns, self.first)

    def tiles(self) -> Iterator[tuple[NDArray[np.uint16], Float32, Float32 | None, int]]:
        """Yield tiles that stay in the cache: atoms, float32 weights, biases and the first row."""
        for start in range(0, len(self.columns["atoms"]), TILE_ROWS):
            tile = {
                name: values[start : start + TILE_ROWS] for name, values in self.columns.items()
            }
            weights = float32_weights(tile)
            biases = None
            if "residual" in tile:
                biases = np.empty(len(weights), np.float32)
                half_squares(tile["residual"].view(np.uint16), biases)
            yield tile["atoms"], weights, biases, self.first + start


class QueryGroup:
    """Up to 64 queries that are scanned together, with their table K(D, x), float32[m, Q]."""

    def __init__(self, queries: slice, table: Float32, *, alpha: int, int8: bool) -> None:
        self.queries = queries
        self.alone = table.shape[1] == 1
        self.table = np.ascontiguousarray(table[:, 0]) if self.alone else in_panels(table, PANEL)
        self._filter: QuantisedTable | PackedTable | None = None
        if int8 and self.alone and alpha == 8 and table.min() >= 0:
            self._filter = PackedTable(self.table)
        self._to_quantise = table if int8 and not self.alone else None
        self._lock = threading.Lock()

    def scan(self, block: Block, top_k: TopK) -> None:
        """Insert a block into the top-k lists.

        The filter serves as soon as all k-th scores are positive.
        """
        if top_k.kth[self.queries].min() > 0:
            self._quantise(block)
            if self._filter is not None:
                top_k.rescored += self._filter.scan(block.rows, self.table, top_k, self.queries)
                return
        scan = scan_one if self.alone else scan_batch
        scores, ids = top_k.scores[self.queries], top_k.ids[self.queries]
        for atoms, weights, biases, first in block.tiles():
            scan(atoms, weights, biases, self.table, first, scores, ids)

    def _quantise(self, block: Block) -> None:
        """Make the filter of a batch as soon as the first rows show how large their sums are."""
        with self._lock:
            if self._to_quantise is not None:
                self._filter = QuantisedTable(self._to_quantise, block.rows)
                self._to_quantise = None


def float32_weights(code: Mapping[str, NDArray[Any]]) -> Float32:
    """Return the weights of codes times their rows' factors, float32[b, α]."""
    weights, out = code["weights"], np.empty(code["weights"].shape, np.float32)
    if weights.dtype == np.float16:  # numba has no such numbers
        weights = weights.astype(np.float32)
    multiply_weights(weights, code["factor"], out)
    return out


def query_groups(
    table: Callable[[NDArray[Any]], Float32], queries: NDArray[Any], *, alpha: int, int8: bool
) -> list[QueryGroup]:
    """Return the queries in groups of 64; a remainder below ``FEW`` goes one by one.

    Parameters
    ----------
    table : queries → K(D, x), float32[m, nq]
    """
    starts = list(range(0, len(queries), GROUP))
    left = len(queries) % GROUP
    if 0 < left < FEW:
        starts[-1:] = range(len(queries) - left, len(queries))
    stops = [*starts[1:], len(queries)]
    return [
        QueryGroup(slice(start, stop), table(queries[start:stop]), alpha=alpha, int8=int8)
        for start, stop in zip(starts, stops, strict=True)
    ]

"""Scan bytes for upper bounds of the kernel, as scores or as a list of all above a threshold."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.scanners.bounds.layout import FEW_ROWS, PairBuffer
from mercore.pipeline.scanners.bounds.queries import bound_block, bound_hits, pack_queries
from mercore.pipeline.scanners.dense import BLOCK_BYTES, MAX_BLOCK_ROWS, float32_rows, insert_scores
from mercore.pipeline.scanners.scanner import GiveUp, Pairs, joined
from mercore.pipeline.topk import TopK

SCANNED_ROWS = 1 << 11  # rows bounded before the k-th bounds are raised
PAIRS = 1 << 16  # pairs of a block at least: for few queries, a block costs more than its pairs
PAIRS_PER_SLOT = 8  # the buffer holds one in 8 pairs of a block
ROUNDING = 5e-6  # error of a float32 bound: nine operations on values below 8, each off by 2⁻²⁴


class QueryTerms(NamedTuple):
    """Terms: float32 ``step`` [nq], ``constant`` [nq], ``factors`` [J, nq] and ``over`` [nq].

    bound = dot · scale · step + constant + Σ term_j · factor_j (+ min(over, the row's over)).
    """

    step: Float32
    constant: Float32
    factors: Float32
    over: Float32 | None = None


class BoundScanner:
    """The scanner of upper bounds, made from the bytes and a few float16 terms of each row.

    Parameters
    ----------
    column : str
        The column of rows' bytes, uint8[n, E]; ``terms`` is float16[n, 1 + J (+ 1)], scale first.
    codes : int8[nq, E] or uint8[nq, E]
        The queries' bytes: for products, or for minima if ``terms.over`` is given.
    bias : int
        The number that was added to the bytes of rows to make them unsigned.
    """

    def __init__(self, *, column: str, codes: NDArray[Any], bias: int, terms: QueryTerms) -> None:
        self.names: tuple[str, ...] = (column, "terms")
        self.nq = len(codes)
        self.rows = max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // (4 * self.nq)))
        self._packed = pack_queries(
            codes,
            start=None
            if bias == 0
            else np.asarray(-bias * codes.sum(axis=1, dtype=np.int32), np.int32),
            step=terms.step,
            const=terms.constant,
            factors=terms.factors,
            over=terms.over,
        )

    def scan(self, columns: Mapping[str, NDArray[Any]], first: int, best: TopK) -> None:
        """Insert the bounds of one part, whose first row is ``first``, into the top-k lists."""
        codes, terms = self._columns(columns)
        start, few = 0, max(FEW_ROWS, best.ids.shape[1])
        while start < len(codes):
            if np.isneginf(best.kth).any():  # lists that are not full take all pairs
                stop = start + min(few, self.rows)
                insert_scores(
                    self.bounds(codes[start:stop], terms[start:stop]), first + start, best
                )
            else:
                stop = start + SCANNED_ROWS
                pairs = self._reaching(
                    codes[start:stop], terms[start:stop], best.kth.astype(np.float32)
                )
                best.insert(pairs.queries, pairs.rows + (first + start), pairs.bounds)
            start = stop

    def bounds(self, codes: NDArray[np.uint8], terms: Float32) -> Float32:
        """Return the bounds of rows, float32[n, nq]; each depends on its pair alone, to the bit."""
        out = np.empty((len(codes), self.nq), np.float32)
        bound_block(codes, terms, self._packed, out)
        return out

    def collect(
        self, columns: Mapping[str, NDArray[Any]], first: int, least: Float32, give_up: GiveUp
    ) -> tuple[Pairs, NDArray[np.bool_]]:
        """Return one part's pairs with bounds ≥ ``least[query]``, and the queries given up.

        See ``Bounds``.
        """
        codes, terms = self._columns(columns)
        lists: list[Pairs] = []
        given_up, total = np.zeros(self.nq, np.bool_), 0
        size = max(MAX_BLOCK_ROWS, PAIRS // self.nq)
        for start in range(0, len(codes), size):
            stop = min(start + size, len(codes))
            pairs = self._reaching(codes[start:stop], terms[start:stop], least)
            lists.append(pairs._replace(rows=pairs.rows + (first + start)))
            total += len(pairs.queries)
            if total > stop:  # else no query has too many; counting in each block is slow
                counts = np.bincount(
                    np.concatenate([each.queries for each in lists]), minlength=self.nq
                )
                given_up |= give_up(counts, stop)
                least = np.where(given_up, np.float32(np.inf), least)
        return joined(lists), given_up

    def _reaching(self, codes: NDArray[np.uint8], terms: Float32, least: Float32) -> Pairs:
        """Return the pairs of a block of rows with bounds of at least ``least[query]``."""
        room = max(1024, len(codes) * self.nq // PAIRS_PER_SLOT)
        while True:
            hits = PairBuffer(
                np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.float32)
            )
            count = bound_hits(codes, terms, self._packed, least, hits)
            if count <= room:
                return Pairs(hits.queries[:count], hits.rows[:count], hits.bounds[:count])
            room = count

    def _columns(self, columns: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.uint8], Float32]:
        """Return a part's bytes, and its terms as float32."""
        codes, terms = (columns[name] for name in self.names)
        return codes, float32_rows(terms)

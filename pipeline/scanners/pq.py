"""Scan product-quantisation codes: M look-ups per row and query (Jégou et al. 2011, Eq. 13)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.scanners.pq_numba import (
    BYTE_STEPS,
    NARROW,
    PANEL,
    WIDE,
    quantise,
    scan_batch,
    scan_filtered,
    scan_one,
    scan_one_by_words,
)
from mercore.pipeline.scanners.pq_one_numba import CODES, beats_plain_scan, scan_one_filtered
from mercore.pipeline.simd.aligned import aligned, in_panels
from mercore.pipeline.topk import TopK
from mercore.stores.errors import InputError, ShapeError

Float64 = NDArray[np.float64]

GROUP = 64  # queries that are scanned together
FEW, FEW_FILTERED = 2, 6  # queries from which a batch beats single scans: plainly, by the filter
FIRST_ROWS = 1 << 13  # the first rows give the k-th scores that the filter needs
SERVICE, GROWTH = 1 << 14, 4  # rows until bytes may be made anew; this number grows each time,
# as ever fewer rows raise the k-th scores, and quantising costs as much as scanning 40 000 rows
ENTRIES, MAX_CODES = 256, 256
WORN = 1.02  # bytes are made anew once they could be finer by this factor


class PqScanner:
    """The scanner of product-quantisation codes: queries in groups that are scanned together.

    A row's score for query q is T[0, c₀, q] + T[1, c₁, q] + …, added in this order in float32.

    Parameters
    ----------
    tables : float32[M, 256, nq], 1 ≤ M ≤ 256
        The addends of each code of each sub-quantizer, one column per query; all sums are finite.

    Raises
    ------
    ShapeError
        If the tables are of another shape.
    InputError
        If a score could exceed float32.
    """

    names: tuple[str, ...] = ("code",)

    def __init__(self, tables: Float32) -> None:
        _check(tables)
        self.n_codes, _, nq = tables.shape
        starts = list(range(0, nq, GROUP))
        if 0 < nq % GROUP < (FEW_FILTERED if filters_one(self.n_codes) else FEW):
            starts[-1:] = range(starts[-1], nq)
        self.groups = [
            (One if stop - start == 1 else PqBatch)(slice(start, stop), tables[:, :, start:stop])
            for start, stop in zip(starts, [*starts[1:], nq], strict=True)
        ]

    def scan(self, columns: Mapping[str, NDArray[Any]], first: int, best: TopK) -> None:
        """Insert the scores of ``code`` uint8[n, M], rows ``first``…, into the top-k lists."""
        codes = np.ascontiguousarray(columns["code"])
        if codes.dtype != np.uint8 or codes.ndim != 2 or codes.shape[1] != self.n_codes:
            found = f"{codes.dtype}{list(codes.shape)}"
            raise ShapeError(
                f"codes are {found}: expected uint8[n, {self.n_codes}]. Fix: scan with their "
                "own tables."
            )
        for group in self.groups:
            group.scan(codes, first, best)


class Quantised:
    """A table in bytes, as fine as the k-th scores allow (``pq_numba``), with 1 / Δ per query."""

    def __init__(self, table: NDArray[np.uint8], inverses: Float64) -> None:
        self.table, self.inverses = table, inverses
        self.left, self.service = 0, SERVICE  # rows until they may be made anew, now and next time


class Group(ABC):
    """Queries that are scanned together, with upper limits of their scores."""

    filters: bool
    queries: slice

    @property
    @abstractmethod
    def ceilings(self) -> Float64:
        """Upper limits of the scores, float64[nq]."""

    def scan(self, codes: NDArray[np.uint8], first: int, top_k: TopK) -> None:
        """Insert codes: through the filter as soon as all queries have k-th scores."""
        kth, start = top_k.kth[self.queries], 0  # a view: it rises as rows are inserted
        while start < len(codes):
            if not self.filters or kth.min() == -np.inf:
                block = codes[start : start + max(FIRST_ROWS, top_k.ids.shape[1])]
                self.scan_plainly(block, first + start, top_k)
            else:
                quantised = self._quantised(kth, top_k)
                block = codes[start : start + max(FIRST_ROWS, quantised.left)]
                top_k.rescored += self.scan_filtered(block, quantised, first + start, top_k)
                quantised.left -= len(block)
            start += len(block)

    def _quantised(self, kth: NDArray[np.floating], top_k: TopK) -> Quantised:
        """Return this list's own bytes: other threads' lists have other k-th scores."""
        kept: Quantised | None = top_k.kept.get(self)
        if kept is not None and kept.left > 0:
            return kept
        finer = inverses(self.ceilings, kth)
        if kept is None or (finer / kept.inverses).mean() > WORN:
            made = self.quantised(finer)
            made.service = SERVICE if kept is None else kept.service
            kept = top_k.kept[self] = made
        kept.left, kept.service = kept.service, GROWTH * kept.service
        return kept

    @abstractmethod
    def quantised(self, inverses: Float64) -> Quantised:
        """Return the table in steps of Δ."""

    @abstractmethod
    def scan_plainly(self, codes: NDArray[np.uint8], first: int, top_k: TopK) -> None:
        """Score all rows in float32."""

    @abstractmethod
    def scan_filtered(
        self, codes: NDArray[np.uint8], quantised: Quantised, first: int, top_k: TopK
    ) -> int:
        """Score in float32 the pairs that may be among the k best; return their number."""


class One(Group):
    """A query that is scanned alone, with its table, float32[M · 256]."""

    def __init__(self, queries: slice, tables: Float32) -> None:
        self.queries = queries
        self.table = np.ascontiguousarray(tables.reshape(-1))
        self.filters = filters_one(len(tables))

    @cached_property
    def ceilings(self) -> Float64:
        """An upper limit of the scores, float64[1]; a scan of few rows needs none."""
        return ceilings(self.table.reshape(-1, ENTRIES, 1))

    def quantised(self, inverses: Float64) -> Quantised:
        """Return the table as uint8[M · 256]."""
        entries = self.table.reshape(-1, ENTRIES)
        steps = (entries.max(axis=1, keepdims=True).astype(np.float64) - entries) * inverses
        table = aligned(self.table.shape, np.uint8)
        table[:] = np.minimum(steps, 255).reshape(-1)
        return Quantised(table, inverses)

    def scan_plainly(self, codes: NDArray[np.uint8], first: int, top_k: TopK) -> None:
        """Score all rows in float32."""
        scan = scan_one if codes.shape[1] % 8 else scan_one_by_words
        scan(codes, self.table, first, top_k.scores[self.queries], top_k.ids[self.queries])

    def scan_filtered(
        self, codes: NDArray[np.uint8], quantised: Quantised, first: int, top_k: TopK
    ) -> int:
        """Score in float32 the rows that may be among the k best; return their number."""
        limits = float(self.ceilings[0]), float(quantised.inverses[0])
        scores, ids = top_k.scores[self.queries], top_k.ids[self.queries]
        return int(
            scan_one_filtered(codes, quantised.table, self.table, *limits, first, scores, ids)
        )


class PqBatch(Group):
    """Up to 64 queries, with their tables in panels of 16, float32[⌈Q / 16⌉, M · 256, 16]."""

    filters = True

    def __init__(self, queries: slice, tables: Float32) -> None:
        self.queries = queries
        self.tops = tables.max(axis=1).astype(np.float64)
        self._ceilings = ceilings(tables)
        self.count = tables.shape[2]
        self.table = in_panels(tables.reshape(-1, self.count), PANEL)

    @property
    def ceilings(self) -> Float64:
        """Upper limits of the scores, float64[nq]."""
        return self._ceilings

    def quantised(self, inverses: Float64) -> Quantised:
        """Return the table as uint8[M · 256 · 64], or [M · 256 · 32] for at most 32 queries."""
        table = aligned((self.table.shape[1], NARROW if self.count <= NARROW else WIDE), np.uint8)
        table[:, self.count :] = 255  # lanes without a query: never within their limit of 0
        quantise(self.table, self.tops, inverses, table)
        return Quantised(table.reshape(-1), inverses)

    def scan_plainly(self, codes: NDArray[np.uint8], first: int, top_k: TopK) -> None:
        """Score all rows in float32."""
        scan_batch(codes, self.table, first, top_k.scores[self.queries], top_k.ids[self.queries])

    def scan_filtered(
        self, codes: NDArray[np.uint8], quantised: Quantised, first: int, top_k: TopK
    ) -> int:
        """Score in float32 the pairs that may be among the k best; return their number."""
        wide = self.count > NARROW
        limits, scores, ids = (
            (self.ceilings, quantised.inverses),
            top_k.scores[self.queries],
            top_k.ids[self.queries],
        )
        return int(
            scan_filtered(
                wide,
                codes.shape[1] == 8,
                codes,
                quantised.table,
                self.table,
                *limits,
                first,
                scores,
                ids,
            )
        )


def filters_one(n_codes: int) -> bool:
    """Return whether filtering the codes for one query beats plain scoring on this processor."""
    return n_codes % CODES == 0 and beats_plain_scan()


def ceilings(tables: Float32) -> Float64:
    """Return upper limits of float32 scores, float64[nq]: sums of greatest entries, plus rounding.

    M − 1 float32 sums are off by (M − 1) · 2⁻²⁴ Σ|T| and a little: two more units cover all.
    """
    most = np.abs(tables).max(axis=1).astype(np.float64).sum(axis=0)
    sums: Float64 = tables.max(axis=1).astype(np.float64).sum(axis=0)
    sums += most * (len(tables) + 1) * 2.0**-24
    return sums


def inverses(ceilings: Float64, kth: NDArray[np.floating]) -> Float64:
    """Return 1 / Δ for k-th scores: ``BYTE_STEPS`` steps below the ceiling lie the k-th scores."""
    reach = ceilings - kth.astype(np.float64)
    steps: Float64 = BYTE_STEPS / np.where(reach > 0, reach, 1.0)
    return steps


def _check(tables: Float32) -> None:
    """Refuse tables that cannot be scanned."""
    fits = (
        tables.ndim == 3
        and 1 <= len(tables) <= MAX_CODES
        and tables.shape[1] == ENTRIES
        and tables.shape[2] > 0
    )
    if not fits or tables.dtype != np.float32:
        found, expected = (
            f"{tables.dtype}{list(tables.shape)}",
            f"float32[M, {ENTRIES}, nq], 1 ≤ M ≤ {MAX_CODES}",
        )
        raise ShapeError(
            f"tables are {found}: expected {expected}. Fix: pass one column per query."
        )
    most = np.abs(tables).max(axis=1).astype(np.float64).sum(axis=0).max()
    if not most < np.finfo(np.float32).max / 2:
        raise InputError(
            f"scores reach {most:g}: expected what float32 holds. Fix: scale the tables down."
        )

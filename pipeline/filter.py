"""Quantised tables: 64 queries' K(D, x) in one byte an entry, with what bounds the error (see ``filter_numba``)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.best import Best
from pipeline.kernels.kernel import Float32

GROUP = 64
ALIGNMENT = 64  # a table's row is one cache line, and starts on one
FLOAT32_ROUNDING = 8e-6  # 127 units of 2⁻²⁴, each product and sum of the float32 score: in table steps


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A block of int8 codes: ``atoms`` uint16[n, α], ``weights`` int8[n, α], ``scales`` float32[n], and their sums."""

    first: int
    atoms: NDArray[np.uint16]
    weights: NDArray[np.int8]
    scales: Float32
    magnitudes: NDArray[np.int64]
    totals: NDArray[np.int64]


def rows_of(code: Mapping[str, NDArray[Any]], first: int) -> Rows:
    """Return a block of codes, whose first row is ``first``, ready for every group of queries."""
    from pipeline.filter_numba import byte_sums, widen_scales, word_sums

    atoms, weights = code["atoms"], code["weights"]
    n, alpha = atoms.shape
    scales = np.empty(n, np.float32)
    widen_scales(code["scale"].view(np.uint16), scales)
    if alpha % 8 == 0:
        words = np.empty((2, n * alpha // 8), np.int64)
        word_sums(weights.reshape(-1).view(np.uint64), *words)
        magnitudes, totals = words if alpha == 8 else words.reshape(2, n, -1).sum(axis=2)
    else:
        magnitudes, totals = np.empty((2, n), np.int64)
        byte_sums(weights, magnitudes, totals)
    return Rows(first=first, atoms=atoms, weights=weights, scales=scales, magnitudes=magnitudes, totals=totals)


class QuantisedTable:
    """The table of up to 64 queries as bytes u = rint(T / Δ) + z in 0…127, Δ a query's own.

    Parameters
    ----------
    table : float32[m, Q], Q ≤ 64, C-contiguous
    alpha : int
        Non-zeros a row.
    """

    def __init__(self, table: Float32, alpha: int) -> None:
        m, count = table.shape
        peak = np.abs(table).max(axis=0).astype(np.float64)
        self.zero = 0 if table.min() >= 0 else 63
        self.steps = np.where(peak > 0, peak, 1) / (127 - self.zero - (self.zero > 0))
        self.half = 0.5 + FLOAT32_ROUNDING * (alpha + 2)
        self.pairs = (alpha + 1) // 2
        self.shift = (self.pairs - 1).bit_length()  # the sum of the shifted pairs fits int16
        self.units = 2.0 ** (10 - self.shift) / self.steps * (1 - 1e-9)
        self.table = table
        self.bytes = aligned_bytes(m * GROUP)
        self.bytes.reshape(m, GROUP)[:, :count] = np.rint(table / self.steps) + self.zero

    def scan(self, rows: Rows, best: Best, queries: slice) -> int:
        """Take a block of rows into ``best[queries]``, every k-th score of which is positive; return pairs rescored."""
        from pipeline.filter_numba import row_bounds, scan_filtered

        inverse, slack = np.empty(len(rows.atoms), np.uint16), np.empty(len(rows.atoms), np.int16)
        half = int(np.ceil(self.half * 2**16))
        row_bounds(rows.magnitudes, rows.totals, rows.scales, half, self.zero, self.shift, self.pairs, inverse, slack)
        bounds = rows.scales, inverse, slack
        scores, ids = best.scores[queries], best.ids[queries]
        return int(
            scan_filtered(
                rows.atoms,
                rows.weights,
                bounds,
                self.shift,
                self.bytes,
                self.table,
                self.units,
                rows.first,
                scores,
                ids,
            )
        )


class PackedTable:
    """The table of one query as bytes, for rows of eight atoms: looked up into a word, multiplied eight rows at a time.

    Parameters
    ----------
    table : float32[m], no entry negative
    """

    def __init__(self, table: Float32) -> None:
        peak = float(table.max())
        self.step = (peak if peak > 0 else 1.0) / 127
        self.half = 0.5 + FLOAT32_ROUNDING * 10 + 1e-4  # the last for the float32 arithmetic of the filter itself
        self.table = table
        self.low = np.rint(table / self.step).astype(np.uint16)
        self.high = self.low << np.uint16(8)

    def scan(self, rows: Rows, best: Best, queries: slice) -> int:
        """Take a block of rows into the best of the one query, whose k-th score is positive; return rows rescored."""
        from pipeline.filter_numba import pack_rows, scan_one_filtered

        packed = np.empty(len(rows.atoms), np.uint64)
        pack_rows(rows.atoms, self.low, self.high, packed)
        return int(
            scan_one_filtered(
                rows.atoms, rows.weights, rows.scales, packed, self.table, self.step, self.half, rows.first,
                best.scores[queries.start], best.ids[queries.start],
            )
        )  # fmt: skip


def aligned_bytes(size: int) -> NDArray[np.int8]:
    """Return int8[size], zero, that starts on a cache line."""
    room = np.zeros(size + ALIGNMENT, np.int8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size]

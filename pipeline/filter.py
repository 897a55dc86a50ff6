"""Quantised tables: 64 queries' K(D, x) in one byte an entry, with what bounds the error (see ``filter_numba``)."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.best import Best
from pipeline.kernels.kernel import Float32

GROUP = 64
ALIGNMENT = 64  # a table's row is one cache line, and starts on one
FLOAT32_ROUNDING = 8e-6  # 127 units of 2⁻²⁴, each product and sum of the float32 score: in table steps


class Rows:
    """A block of int8 codes, whose first row is ``first``: decoded once for all queries.

    ``atoms`` uint16[n, α], ``weights`` int8[n, α], ``halves`` uint16[n]: the scales, as the bits of float16. An odd α
    is made even by an atom of weight zero.
    """

    def __init__(self, code: Mapping[str, NDArray[Any]], first: int) -> None:
        self.first = first
        odd = ((0, 0), (0, code["atoms"].shape[1] % 2))
        self.atoms, self.weights = (
            np.pad(code[name], odd) if odd[1][1] else code[name] for name in ("atoms", "weights")
        )
        self.halves = code["scale"].view(np.uint16)

    @cached_property
    def scales(self) -> Float32:
        """The scales, float32[n]."""
        from pipeline.filter_numba import widen_scales

        scales = np.empty(len(self.halves), np.float32)
        widen_scales(self.halves, scales)
        return scales

    @property
    def pairs(self) -> NDArray[np.int16]:
        """The weights two to an int16, [n, α/2]."""
        return self.weights.view(np.int16)

    @cached_property
    def sums(self) -> NDArray[np.int16]:
        """Σ|w| and Σ w of each row, int16[2, n]: α is at most 256."""
        from pipeline.filter_numba import byte_sums, word_sums

        n, alpha = self.atoms.shape
        sums = np.empty((2, n * alpha // 8 if alpha % 8 == 0 else n), np.int16)
        if alpha % 8:
            byte_sums(self.weights, *sums)
            return sums
        word_sums(self.weights.reshape(-1).view(np.uint64), *sums)
        return sums if alpha == 8 else np.asarray(sums.reshape(2, n, -1).sum(axis=2, dtype=np.int16))


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
        self.table = table
        self.bytes = aligned_bytes(m * GROUP)
        self.bytes.reshape(m, GROUP)[:, :count] = np.rint(table / self.steps) + self.zero

    def scan(self, rows: Rows, best: Best, queries: slice) -> int:
        """Take a block of rows into ``best[queries]``, every k-th score of which is positive; return pairs rescored."""
        from pipeline.filter_numba import row_bounds, scan_filtered

        per_step = 1 / (self.steps * 2.0**self.shift) * (1 - 1e-9)
        # A threshold times 1/σ is the high half of a product of two uint16: as many bits to the first as leave it room
        # to rise by half within the block (beyond that the filter lets rows pass, and is slow, not wrong).
        reach = 1.5 * float((best.kth[queries] * per_step).max())
        bits = int(np.clip(np.floor(np.log2(65535 / reach)), 4, 12))
        inverse, slack = np.empty(len(rows.atoms), np.uint16), np.empty(len(rows.atoms), np.int16)
        half, unit = int(np.ceil(self.half * 2**16)), np.float32(2.0 ** (16 - bits))
        most = np.float32(min(65535, 32767 * 2.0**16 / (reach * 2.0**bits)))  # their product compares as int16
        magnitudes, totals = rows.sums
        row_bounds(magnitudes, totals, rows.scales, half, self.zero, self.shift, self.pairs, unit, most, inverse, slack)
        bounds = rows.scales, inverse, slack
        scores, ids = best.scores[queries], best.ids[queries]
        return int(
            scan_filtered(
                rows.atoms,
                rows.weights,
                rows.pairs,
                bounds,
                self.shift,
                self.bytes,
                self.table,
                per_step * 2.0**bits,
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
        self.table = np.ascontiguousarray(table)
        self.bytes = np.rint(table / self.step).astype(np.uint8)

    def scan(self, rows: Rows, best: Best, queries: slice) -> int:
        """Take a block of rows into the best of the one query, whose k-th score is positive; return rows rescored."""
        from pipeline.filter_numba import scan_one_filtered

        codes = rows.atoms, rows.weights, rows.halves
        scores, ids = best.scores[queries], best.ids[queries]
        return int(scan_one_filtered(*codes, self.bytes, self.table, self.step, self.half, rows.first, scores, ids))


def aligned_bytes(size: int) -> NDArray[np.int8]:
    """Return int8[size], zero, that starts on a cache line."""
    room = np.zeros(size + ALIGNMENT, np.int8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size]

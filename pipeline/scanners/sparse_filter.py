"""Quantised tables: 64 queries' K(D, x) in a byte an entry, with what bounds the error (``sparse_filter_numba``)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.aligned import aligned
from pipeline.best import Best
from pipeline.kernels.kernel import Float32

GROUP = 64
FLOAT32_ROUNDING = 6.4e-8  # a unit of 2⁻²⁴ and a little, for each product and sum of the float32 score


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


class QuantisedTable:
    """The table of up to 64 queries as bytes u = rint(T / Δ) − z in 0…L, Δ a query's own, z and L common to all.

    Parameters
    ----------
    table : float32[m, Q], Q ≤ 64
    rows : Rows
        Such as will come: as many levels L are taken as leave the sums of nearly all of them room.
    """

    def __init__(self, table: Float32, rows: Rows) -> None:
        from pipeline.simd.bytes import COLUMNS, LANES

        m, count = table.shape
        least, most = table.min(axis=0).astype(np.float64), np.abs(table).max(axis=0).astype(np.float64)
        lowest = float(np.divide(least, most, out=np.zeros_like(most), where=most > 0).min())  # −1…1
        base = min(2.0, lowest / max(1 - lowest, 0.1)) if lowest >= 0 else -0.5  # z / L
        self.levels = levels_for(rows.weights, base)
        self.zero = int(base * self.levels)
        reach = self.levels + self.zero if lowest >= 0 else -self.zero  # the peak, in steps
        self.steps = np.where(most > 0, most, 1) / reach
        self.half = 0.5 + FLOAT32_ROUNDING * reach * (rows.atoms.shape[1] + 2)
        narrow = count <= LANES and rows.atoms.shape[1] == 8
        self.columns = np.arange(LANES) if narrow else np.array(COLUMNS)  # of the queries, in the order of results
        self.bytes = aligned(m * len(self.columns), np.int8)
        self.bytes.reshape(m, -1)[:, self.columns[:count]] = np.rint(table / self.steps) - self.zero

    def scan(self, rows: Rows, table: Float32, best: Best, queries: slice) -> int:
        """Take a block of rows into ``best[queries]``, every k-th score of which is positive; return pairs rescored.

        ``table`` float32[⌈Q / 16⌉, m, 16] is the same table in panels.
        """
        from pipeline.scanners.sparse_filter_numba import scan_filtered

        per_step = (1 - 1e-9) / self.steps
        # A threshold times 1/σ is the high half of a product of two uint16: the first has room to rise by a quarter
        # within the block (beyond that the filter lets rows pass, and is slow, not wrong).
        fine = 65535 / (1.25 * float((best.kth[queries] * per_step).max()))
        unit = 2.0**16 / fine * (1 - 1e-6)
        limits = np.float32(self.half), np.float32(self.zero), np.float32(self.levels), np.float32(unit)
        codes = rows.atoms, rows.weights, rows.halves
        scores, ids = best.scores[queries], best.ids[queries]
        return int(scan_filtered(*codes, limits, self.bytes, table, per_step * fine, rows.first, scores, ids))


def levels_for(weights: NDArray[np.int8], base: float) -> int:
    """Return the most levels L ≤ 127 that leave all but one row in 30 000 room: see ``row_bounds``."""
    from pipeline.scanners.sparse_filter_numba import row_sums

    n, alpha = weights.shape
    magnitudes, totals = np.empty((2, n), np.int16)
    row_sums(weights.reshape(-1), alpha, 0, n, magnitudes, totals)
    positive, negative = (magnitudes + totals.astype(np.float64)) / 2, (magnitudes - totals.astype(np.float64)) / 2
    needed = np.maximum(magnitudes.astype(np.float64), (1 + base) * positive - base * negative)  # a level
    room = (65534.0 - magnitudes) / np.maximum(needed, 1)
    return int(np.clip(np.quantile(room, 2.0**-15), 2, 127))


class PackedTable:
    """The table of one query as bytes, for rows of eight atoms: looked up into a word, multiplied eight rows at a time.

    Parameters
    ----------
    table : float32[m], no entry negative
    """

    def __init__(self, table: Float32) -> None:
        peak = float(table.max())
        self.step = (peak if peak > 0 else 1.0) / 127
        self.half = 0.5 + FLOAT32_ROUNDING * 127 * 10 + 1e-4  # the last for the float32 arithmetic of the filter itself
        self.bytes = np.rint(table / self.step).astype(np.uint8)

    def scan(self, rows: Rows, table: Float32, best: Best, queries: slice) -> int:
        """Take a block of rows into the best of the one query, whose k-th score is positive; return rows rescored.

        ``table`` float32[m] is the same table.
        """
        from pipeline.scanners.sparse_filter_numba import scan_one_filtered

        codes = rows.atoms, rows.weights, rows.halves
        scores, ids = best.scores[queries], best.ids[queries]
        return int(scan_one_filtered(*codes, self.bytes, table, self.step, self.half, rows.first, scores, ids))

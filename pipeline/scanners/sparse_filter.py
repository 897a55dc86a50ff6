"""Quantised tables: K(D, x) in one byte per entry, with error limits (``sparse_filter_numba``)."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.scanners.sparse_filter_numba import (
    ANY,
    EIGHT,
    EIGHT_NARROW,
    row_sums,
    scan_filtered,
)
from mercore.pipeline.scanners.sparse_layout import FAINT, FLOAT32_ROUNDING, ROUNDED, TINY
from mercore.pipeline.scanners.sparse_one_numba import scan_one_filtered
from mercore.pipeline.simd.aligned import aligned
from mercore.pipeline.simd.bytes import COLUMNS, LANES
from mercore.pipeline.topk import TopK


class Rows:
    """A block of int8 codes, whose first row is ``first``, decoded once for all queries.

    ``atoms`` uint16[n, α], ``weights`` int8[n, α], and ``factors`` float32[n]; ``residuals``
    uint16[n], if they count, are bits of float16. An atom of weight zero makes an odd α even.
    """

    def __init__(self, code: Mapping[str, NDArray[Any]], first: int) -> None:
        self.first = first
        odd = ((0, 0), (0, code["atoms"].shape[1] % 2))
        self.atoms, self.weights = (
            np.pad(code[name], odd) if odd[1][1] else code[name] for name in ("atoms", "weights")
        )
        self.factors = code["factor"]
        self.residuals = code["residual"].view(np.uint16) if "residual" in code else None


class QuantisedTable:
    """The table of up to 64 queries as bytes u = rint(T / Δ) − z in 0…L; all share z and L.

    Each query has its own Δ, unless residuals count: they add steps that all queries must share.

    Parameters
    ----------
    table : float32[m, Q], Q ≤ 64
    rows : Rows
        A sample: L is the greatest that leaves room for the sums of nearly all rows.
    """

    def __init__(self, table: Float32, rows: Rows) -> None:
        m, count = table.shape
        least, most = (
            table.min(axis=0).astype(np.float64),
            np.abs(table).max(axis=0).astype(np.float64),
        )
        if rows.residuals is not None:
            least, most = np.full(count, least.min()), np.full(count, max(most.max(), FAINT))
        lowest = float(np.divide(least, most, out=np.zeros_like(most), where=most > 0).min())
        base = min(2.0, lowest / max(1 - lowest, 0.1)) if lowest >= 0 else -0.5  # z / L
        self.usual = (
            0.0
            if rows.residuals is None
            else float(np.median(rows.residuals.view(np.float16))) ** 2 / 2
        )
        self.levels = levels_for(rows, base, self.usual, float(most.max()))
        self.zero = int(base * self.levels)
        reach = self.levels + self.zero if lowest >= 0 else -self.zero  # the peak, in steps
        self.steps = np.where(most > 0, most, 1) / reach
        self.half = 0.5 + FLOAT32_ROUNDING * reach * (rows.atoms.shape[1] + 2)
        narrow = count <= LANES and rows.atoms.shape[1] == 8
        self.way = EIGHT_NARROW if narrow else EIGHT if rows.atoms.shape[1] == 8 else ANY
        self.columns = np.arange(LANES) if narrow else np.array(COLUMNS)  # in the order of results
        self.bytes = aligned(m * len(self.columns), np.int8)
        self.bytes.reshape(m, -1)[:, self.columns[:count]] = np.rint(table / self.steps) - self.zero

    def scan(self, rows: Rows, table: Float32, top_k: TopK, queries: slice) -> int:
        """Insert rows for ``queries``, all k-th scores being positive; return the pairs rescored.

        ``table`` float32[⌈Q / 16⌉, m, 16] is the same table in panels.
        """
        kth = top_k.kth[queries].astype(np.float64)
        usual = np.float32(min(self.usual, 0.999 * kth.min()))
        units = np.stack([(1 - ROUNDED) / self.steps, usual / self.steps])
        # A threshold times 1/σ is the high half of a product of two uint16. The threshold may rise
        # by a quarter within the block; beyond that the filter lets rows pass: slow, not wrong.
        fine = 65535 / (1.25 * float((kth * units[0] - units[1]).max()))
        unit = 2.0**16 / fine * (1 - 1e-6)
        half, zero, levels = np.float32(self.half), np.float32(self.zero), np.float32(self.levels)
        per_step = np.float32(0 if rows.residuals is None else 1 / self.steps[0])
        limits = half, zero, levels, np.float32(unit), per_step, usual
        codes = rows.atoms, rows.weights, rows.factors, rows.residuals
        scores, ids = top_k.scores[queries], top_k.ids[queries]
        return int(
            scan_filtered(
                self.way, *codes, limits, self.bytes, table, units * fine, rows.first, scores, ids
            )
        )


def levels_for(rows: Rows, base: float, usual: float, peak: float) -> int:
    """Return the greatest L ≤ 127 that leaves room for all but one row in 30 000 (``row_bounds``).

    ``base`` is z / L, ``usual`` the bias β that is subtracted, ``peak`` the greatest |T|.
    """
    weights, (n, alpha) = rows.weights, rows.weights.shape
    magnitudes, totals = np.empty((2, n), np.int16)
    row_sums(weights.reshape(-1), alpha, 0, n, magnitudes, totals)
    positive, negative = (
        (magnitudes + totals.astype(np.float64)) / 2,
        (magnitudes - totals.astype(np.float64)) / 2,
    )
    if rows.residuals is not None:  # a bias acts as weight; rows of little weight may have too much
        residual = rows.residuals.view(np.float16).astype(np.float64)
        step = rows.factors.astype(np.float64) * peak + TINY
        positive += np.minimum((residual**2 / 2 - usual) / step, 3 * positive)
    needed = np.maximum(magnitudes.astype(np.float64), (1 + base) * positive - base * negative)
    room = (65534.0 - magnitudes) / np.maximum(needed, 1)
    return int(np.clip(np.quantile(room, 2.0**-15), 2, 127))


class PackedTable:
    """The table of one query as bytes, for rows of eight atoms: eight rows per product.

    Parameters
    ----------
    table : float32[m], no entry negative
    """

    def __init__(self, table: Float32) -> None:
        peak = float(table.max())
        self.step = max(peak, FAINT) / 127
        self.half = 0.5 + FLOAT32_ROUNDING * 127 * 10 + 1e-4  # 1e-4: the filter's own float32
        self.bytes = np.rint(table / self.step).astype(np.uint8)

    def scan(self, rows: Rows, table: Float32, top_k: TopK, queries: slice) -> int:
        """Insert rows for the one query, its k-th score being positive; return the rows rescored.

        ``table`` float32[m] is the same table.
        """
        codes = rows.atoms, rows.weights, rows.factors, rows.residuals
        limits = (1 - ROUNDED) / self.step, self.half, (1 + ROUNDED) * math.sqrt(0.5 / self.step)
        scores, ids = top_k.scores[queries], top_k.ids[queries]
        return int(scan_one_filtered(*codes, self.bytes, table, limits, rows.first, scores, ids))

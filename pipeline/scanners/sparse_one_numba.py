"""Jitted functions that scan int8 codes of eight atoms for one query, sixteen rows at once.

The bound is that of ``sparse_filter_numba`` with z = 0 and 1024, the maximum, for Σ|w|: to add that
up costs more than to score the rows that pass without it.
"""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.scanners.sparse_filter_numba import AHEAD
from mercore.pipeline.scanners.sparse_numba import half_square
from mercore.pipeline.simd.bytes import look_up_eight, rows_reaching
from mercore.pipeline.simd.vectors import lowest_bit, prefetch
from mercore.pipeline.topk_numba import ZERO, insert

PACKED_ROWS = 1 << 8  # 2 KiB of packed bytes, written and read back within L1


@jit
def scan_one_filtered(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int8],
    factors: NDArray[np.float32],
    residuals: NDArray[np.uint16] | None,
    table8: NDArray[np.uint8],
    table: NDArray[np.float32],
    limits: tuple[float, float, float],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> int:
    """Keep the best of rows ``first``…, to the bit as ``scan_one``; return the rows rescored.

    ``factors`` σ [n]; ``residuals`` ρ [n], if they count, are bits of float16; ``limits`` 1/Δ, h,
    and √(1 / 2Δ) and a little; ``table8`` [m] holds u = rint(T / Δ); α = 8; the k-th score is
    positive. Rows after the last whole sixteen are all scored in float32.
    """
    packed = np.empty(PACKED_ROWS, np.uint64)
    flat, flat_atoms = weights.reshape(-1), atoms.reshape(-1)
    whole = factors.size - factors.size % 16
    rescored = factors.size - whole
    per_step, extra, root = limits[0], np.float32(limits[1] * 1024), np.float32(limits[2])
    least = np.float32(scores[0, -1] * per_step)
    for start in range(0, whole, PACKED_ROWS):
        stop = min(whole, start + PACKED_ROWS)
        for i in range(np.uint64(start), np.uint64(stop), np.uint64(8)):
            ahead = i + np.uint64(AHEAD)
            prefetch(flat_atoms, ahead * np.uint64(8))
            prefetch(flat_atoms, (ahead + np.uint64(4)) * np.uint64(8))
            prefetch(flat, ahead * np.uint64(8))
            prefetch(factors, ahead)
            if residuals is not None:
                prefetch(residuals, ahead)
            for j in range(i, i + np.uint64(8)):
                packed[j - np.uint64(start)] = look_up_eight(table8, flat_atoms, j * np.uint64(8))
        for i in range(np.uint64(start), np.uint64(stop), np.uint64(16)):
            at = i - np.uint64(start)
            hits = np.uint64(
                rows_reaching(packed, at, flat, factors, residuals, i, (extra, root, least))
            )
            if hits:
                while hits:
                    row = np.int64(i + lowest_bit(hits))
                    hits &= hits - np.uint64(1)
                    score_one(atoms, weights, factors, residuals, row, table, first, scores, ids)
                    rescored += 1
                least = np.float32(scores[0, -1] * per_step)
    for row in range(whole, factors.size):
        score_one(atoms, weights, factors, residuals, row, table, first, scores, ids)
    return rescored


@jit
def score_one(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.int8],
    factors: NDArray[np.float32],
    residuals: NDArray[np.uint16] | None,
    i: int,
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score row i of a block in float32 and insert it if it is among the k best."""
    total, scale = np.float32(0), factors[i]
    for a in range(atoms.shape[1]):
        total = total + np.float32(weights[i, a]) * scale * table[atoms[i, a]]
    if residuals is not None:
        total = total + half_square(residuals[i])
    if total > scores[0, -1]:
        insert(scores, ids, ZERO, total, first + i)

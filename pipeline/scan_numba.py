"""Scan loops over sparse codes: α look-ups a row and query, the k best kept as they pass."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.best_numba import insert


@njit(nogil=True, cache=True)
def scan_batch(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.float32],
    table: NDArray[np.float32],
    first: int,
    sums: NDArray[np.float32],
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score rows ``first``… for Q queries at once and keep the best.

    ``atoms``, ``weights`` [n, α]; ``table`` [m, Q], so that one atom loads Q neighbouring entries; ``sums`` [Q] is room
    to work; ``scores``, ``ids`` [Q, k]. Products are added atom by atom, as ``scan_one`` does: the same bits.
    """
    n, alpha = atoms.shape
    least = scores[:, -1].copy()
    for i in range(n):
        sums[:] = 0
        for a in range(0, alpha - 3, 4):
            p, q = table[atoms[i, a]], table[atoms[i, a + 1]]
            r, s = table[atoms[i, a + 2]], table[atoms[i, a + 3]]
            w, x, y, z = weights[i, a], weights[i, a + 1], weights[i, a + 2], weights[i, a + 3]
            for j in range(sums.size):
                sums[j] = sums[j] + w * p[j] + x * q[j] + y * r[j] + z * s[j]
        for a in range(alpha - alpha % 4, alpha):
            p = table[atoms[i, a]]
            w = weights[i, a]
            for j in range(sums.size):
                sums[j] = sums[j] + w * p[j]
        hits = 0
        for j in range(sums.size):
            hits += sums[j] > least[j]
        if hits:
            for j in range(sums.size):
                if sums[j] > least[j]:
                    insert(scores, ids, j, sums[j], first + i)
                    least[j] = scores[j, -1]


@njit(nogil=True, cache=True)
def scan_one(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.float32],
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score rows ``first``… for one query, ``table`` [m], and keep the best in ``scores``, ``ids`` [1, k]."""
    n, alpha = atoms.shape
    least = scores[0, -1]
    for i in range(n):
        total = np.float32(0)
        for a in range(alpha):
            total = total + weights[i, a] * table[atoms[i, a]]
        if total > least:
            insert(scores, ids, 0, total, first + i)
            least = scores[0, -1]

"""Exact intersections of rows of bytes."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.kernels import integers_numba
from mercore.pipeline.kernels.integers_numba import PANEL, TILE_ROWS
from mercore.pipeline.simd.aligned import aligned

MOST_DIMS = (2**31 - 1) // 255  # whose sums an int32 holds
WORD = 4


def integer_intersection(X: NDArray[np.uint8], Y: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return Σ min(x, y) of rows of bytes, int32[n, m], exact.

    Where all rows of X and Y have one sum S, the intersection kernel is this divided by S, so these integers rank as
    its true scores do. Rows of different sums it does not serve: the kernel scales each row by its own.

    Parameters
    ----------
    X : uint8[n, d]
    Y : uint8[m, d], d ≤ 8 421 504
    """
    assert X.shape[1] == Y.shape[1] <= MOST_DIMS
    out = np.empty((len(X), len(Y)), np.int32)
    rows, columns = _words(X), _words(Y)
    panel, totals = aligned(columns.shape[1] * PANEL, np.int32), aligned(TILE_ROWS * PANEL, np.int32)
    integers_numba.intersections(rows, columns, panel, totals, out)
    return out


def _words(rows: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return rows as words of four bytes, zeros behind, int32[n, ⌈d / 4⌉]."""
    n, d = rows.shape
    padded = np.zeros((n, -(-d // WORD) * WORD), np.uint8)
    padded[:, :d] = rows
    return padded.view(np.int32)

"""Sums of a kernel's float64 terms in one fixed order: a pair's sum is the same in every block."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.kernels.terms_numba import (
    CHI2_BY_TWOS,
    SQUARED,
    Real,
    term,
    two_chi2_terms,
)

Reals = NDArray[np.floating]

TILE = 512  # columns of a tile: four rows of them and their sums stay in L1


@jit(constants=("terms",), error_model="numpy")
def sum_terms(terms: int, X: Reals, YT: Reals, tiny: Real, out: Reals) -> None:
    """Set ``out[i, j]`` to the sum of the terms of ``X[i]`` and ``YT[:, j]``, dimensions ascending.

    ``X`` [n, d], ``YT`` [d, m] and ``out`` [n, m] are C-contiguous and of one dtype. Dimensions
    where X is zero are skipped: their terms are zero, except squared differences. So the time grows
    with the non-zero values of a row.
    """
    n, d = X.shape
    m = YT.shape[1]
    dims = np.empty(d, np.int64)
    for i in range(n):
        count = filled(X[i], terms == SQUARED, dims)
        for first in range(0, m, TILE):
            last = min(m, first + TILE)
            sums = out[i, first:last]
            sums[:] = 0
            for c in range(0, count - 3, 4):
                add_four(terms, X[i], YT, first, dims[c : c + 4], tiny, sums)
            for c in range(count - count % 4, count):
                x, y = X[i, dims[c]], YT[dims[c], first:last]
                for j in range(sums.size):
                    sums[j] = sums[j] + term(terms, x, y[j], tiny)


@jit(constants=("terms",), error_model="numpy")
def add_four(
    terms: int,
    x: Reals,
    YT: Reals,
    first: int,
    dims: NDArray[np.int64],
    tiny: Real,
    sums: Reals,
) -> None:
    """Add the terms of four dimensions, in order, to the sums of the columns from ``first`` on.

    Each sum is loaded and stored once.
    """
    a, b, c, e = x[dims[0]], x[dims[1]], x[dims[2]], x[dims[3]]
    last = first + sums.size
    p, q = YT[dims[0], first:last], YT[dims[1], first:last]
    r, s = YT[dims[2], first:last], YT[dims[3], first:last]
    if terms == CHI2_BY_TWOS:
        for j in range(sums.size):
            sums[j] = (
                sums[j]
                + two_chi2_terms(a, p[j], b, q[j], tiny)
                + two_chi2_terms(c, r[j], e, s[j], tiny)
            )
        return
    for j in range(sums.size):
        sums[j] = (
            sums[j]
            + term(terms, a, p[j], tiny)
            + term(terms, b, q[j], tiny)
            + term(terms, c, r[j], tiny)
            + term(terms, e, s[j], tiny)
        )


@jit(constants=("terms",), error_model="numpy")
def pairs(
    terms: int,
    X: NDArray[np.float64],
    Y: NDArray[np.float64],
    x_rows: NDArray[np.int64],
    y_rows: NDArray[np.int64],
    tiny: float,
    out: NDArray[np.float64],
) -> None:
    """Set ``out[p]`` to the sum of the terms of ``X[x_rows[p]]`` and ``Y[y_rows[p]]``.

    The sums have the same bits as those of ``sum_terms``. The non-zero dimensions of a row are
    listed once for pairs of that row that follow one another.
    """
    dims, count = np.empty(X.shape[1], np.int64), 0
    for p in range(out.size):
        x, y = X[x_rows[p]], Y[y_rows[p]]
        if p == 0 or x_rows[p] != x_rows[p - 1]:
            count = filled(x, terms == SQUARED, dims)
        total: Real = 0.0
        for c in range(count):
            k = dims[c]
            total = total + term(terms, x[k], y[k], tiny)
        out[p] = total


@jit
def filled(x: Reals, every: bool, dims: NDArray[np.int64]) -> int:
    """List the non-zero dimensions of ``x``, or ``every`` one, ascending; return their number."""
    count = 0
    for k in range(x.size):
        dims[count] = k
        count += every or x[k] != 0  # no branch: in sparse rows it would be mispredicted
    return count

"""Kernel loops: sums over dimensions in one fixed order, so that a pair's score is the same in whatever block."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.jit import jit

Real = float | np.floating
Reals = NDArray[np.floating]

# What is summed over the dimensions of a pair; the last is chi2 as ``cross`` alone has it, two terms to a division.
PRODUCT, CHI2, INTERSECTION, JENSEN_SHANNON, SQUARED, CHI2_BY_TWOS = range(6)

TILE = 512  # columns of a tile: four rows of them and their sums stay in L1
LN2 = 0.6931471805599453
LOG2_SERIES = tuple(2.0 / LN2 / (2 * power + 1) for power in range(12))
SQRT_HALF_BITS = np.int64(0x3FE6A09E667F3BCD)
MANTISSA_BITS = np.int64(52)


@jit(inline="always")
def log2(value: Real) -> Real:
    """Return log2 of a positive normal float64 to within 4 ulp; infinity gives 1024.

    Free of branches, so that it vectorises: ``value = 2^e (1 + f)`` with 1 + f in [√½, √2), and
    ``log2(1 + f) = 2 atanh(s) / ln 2``, s = f / (2 + f), by its Taylor series.
    """
    bits = np.float64(value).view(np.int64)
    exponent = (bits - SQRT_HALF_BITS) >> MANTISSA_BITS
    f = np.int64(bits - (exponent << MANTISSA_BITS)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = LOG2_SERIES[11]
    for power in range(10, -1, -1):
        series = series * z + LOG2_SERIES[power]
    return exponent + s * series


@jit(inline="always")
def chi2_term(x: Real, y: Real, tiny: Real) -> Real:
    """Return 2xy / (x + y); ``tiny`` makes it 0 where both are."""
    return (x + x) * y / ((x + y) + tiny)


@jit(inline="always")
def two_chi2_terms(x: Real, y: Real, second_x: Real, second_y: Real, tiny: Real) -> Real:
    """Return 2xy / (x + y) + 2x₂y₂ / (x₂ + y₂) with one division, which takes longer than all else."""
    s, t = (x + y) + tiny, (second_x + second_y) + tiny
    return ((x + x) * y * t + (second_x + second_x) * second_y * s) / (s * t)


@jit(inline="always")
def jensen_shannon_term(x: Real, y: Real) -> Real:
    """Return ½ [x log2((x+y)/x) + y log2((x+y)/y)] for x > 0, y ≥ 0."""
    total = np.float64(x) + np.float64(y)
    return 0.5 * (x * log2(total / x) + y * log2(total / y))


@jit(inline="always")
def squared_term(x: Real, y: Real) -> Real:
    """Return (x − y)²."""
    return (x - y) * (x - y)


@jit(constants=("terms",), error_model="numpy")
def cross(terms: int, X: Reals, YT: Reals, tiny: Real, out: Reals) -> None:
    """Set ``out[i, j]`` to the sum of the terms of ``X[i]`` and ``YT[:, j]``, dimensions ascending.

    ``X`` [n, d], ``YT`` [d, m], ``out`` [n, m]: C-contiguous, of one dtype. Dimensions where X is zero are passed
    over, for their terms are zero (squares apart): sparse rows cost what they hold.
    """
    n, d = X.shape
    m = YT.shape[1]
    dims = np.empty(d, np.int64)
    for i in range(n):
        count = filled(terms, X[i], dims)
        for first in range(0, m, TILE):
            last = min(m, first + TILE)
            sums = out[i, first:last]
            sums[:] = 0
            for c in range(0, count - 3, 4):
                add_four(terms, X[i], YT, first, dims[c : c + 4], tiny, sums)
            for c in range(count - count % 4, count):
                add_one(terms, X[i, dims[c]], YT[dims[c], first:last], tiny, sums)


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
    """Add four dimensions' terms of the columns from ``first`` on to the sums, in order, with one load and store."""
    a, b, c, e = x[dims[0]], x[dims[1]], x[dims[2]], x[dims[3]]
    last = first + sums.size
    p, q = YT[dims[0], first:last], YT[dims[1], first:last]
    r, s = YT[dims[2], first:last], YT[dims[3], first:last]
    if terms == PRODUCT:
        for j in range(sums.size):
            sums[j] = sums[j] + a * p[j] + b * q[j] + c * r[j] + e * s[j]
    elif terms == CHI2:
        for j in range(sums.size):
            sums[j] = (
                sums[j]
                + chi2_term(a, p[j], tiny)
                + chi2_term(b, q[j], tiny)
                + chi2_term(c, r[j], tiny)
                + chi2_term(e, s[j], tiny)
            )
    elif terms == CHI2_BY_TWOS:
        for j in range(sums.size):
            sums[j] = sums[j] + two_chi2_terms(a, p[j], b, q[j], tiny) + two_chi2_terms(c, r[j], e, s[j], tiny)
    elif terms == INTERSECTION:
        for j in range(sums.size):
            sums[j] = sums[j] + min(a, p[j]) + min(b, q[j]) + min(c, r[j]) + min(e, s[j])
    elif terms == SQUARED:
        for j in range(sums.size):
            sums[j] = (
                sums[j] + squared_term(a, p[j]) + squared_term(b, q[j]) + squared_term(c, r[j]) + squared_term(e, s[j])
            )
    else:
        add_one(terms, a, p, tiny, sums)
        add_one(terms, b, q, tiny, sums)
        add_one(terms, c, r, tiny, sums)
        add_one(terms, e, s, tiny, sums)


@jit(constants=("terms",), error_model="numpy")
def add_one(terms: int, x: Real, y: Reals, tiny: Real, sums: Reals) -> None:
    """Add the terms of one dimension to the sums."""
    if terms == JENSEN_SHANNON:
        for j in range(sums.size):
            sums[j] = sums[j] + jensen_shannon_term(x, y[j])
        return
    for j in range(sums.size):
        sums[j] = sums[j] + cheap_term(terms, x, y[j], tiny)


@jit(inline="always", error_model="numpy")
def cheap_term(terms: int, x: Real, y: Real, tiny: Real) -> Real:
    """Return one term that needs no logarithm."""
    if terms == PRODUCT:
        return x * y
    if terms in (CHI2, CHI2_BY_TWOS):
        return chi2_term(x, y, tiny)
    if terms == INTERSECTION:
        return min(x, y)
    return squared_term(x, y)


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
    """Set ``out[p]`` to the sum of the terms of ``X[x_rows[p]]`` and ``Y[y_rows[p]]``, to the bit as ``cross`` does.

    A row's dimensions that are not zero are found once for all its pairs, if they stand side by side.
    """
    dims, count = np.empty(X.shape[1], np.int64), 0
    for p in range(out.size):
        x, y = X[x_rows[p]], Y[y_rows[p]]
        if p == 0 or x_rows[p] != x_rows[p - 1]:
            count = filled(terms, x, dims)
        total: Real = 0.0
        for c in range(count):
            k = dims[c]
            if terms == JENSEN_SHANNON:
                total = total + jensen_shannon_term(x[k], y[k])
            else:
                total = total + cheap_term(terms, x[k], y[k], tiny)
        out[p] = total


@jit
def filled(terms: int, x: Reals, dims: NDArray[np.int64]) -> int:
    """List the dimensions whose terms may not be zero, ascending; return how many they are."""
    count = 0
    for k in range(x.size):
        dims[count] = k
        count += terms == SQUARED or x[k] != 0  # without a branch, which in sparse rows nobody foresees
    return count

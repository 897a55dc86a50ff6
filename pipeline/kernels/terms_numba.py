"""The terms of every kernel: of two numbers in float64, and of float32 vectors.

One place for all: ``pair_sums_numba`` adds the float64 terms, ``prefilter_numba`` and
``blocks_numba`` the float32 ones.
"""

# mypy: disable-error-code="call-arg, no-untyped-call, var-annotated"

from typing import Any

import numpy as np

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.kernels.elementary_numba import log2_vector
from mercore.pipeline.simd.vectors import (
    add,
    divide,
    lesser,
    multiply,
    multiply_add,
    splat_float32,
    subtract,
)

Real = float | np.floating

# Which terms are summed. The last is chi2 with two terms per division, for ``sum_terms`` alone.
PRODUCT, CHI2, INTERSECTION, JENSEN_SHANNON, SQUARED, CHI2_BY_TWOS = range(6)

TINY32 = np.float32(1e-18)  # keeps a product of two denominators of chi2 a normal float32
LN2 = 0.6931471805599453
LOG2_SERIES = tuple(2.0 / LN2 / (2 * power + 1) for power in range(12))
SQRT_HALF_BITS = np.int64(0x3FE6A09E667F3BCD)
MANTISSA_BITS = np.int64(52)


@jit(inline="always")
def log2(value: Real) -> Real:
    """Return log2 of a positive normal float64 to within 4 ulp; infinity gives 1024.

    It has no branches, so that it vectorises: ``value = 2^e (1 + f)`` with 1 + f in [√½, √2), and
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
    """Return 2xy / (x + y); ``tiny`` makes it 0 where both numbers are 0."""
    return (x + x) * y / ((x + y) + tiny)


@jit(inline="always")
def two_chi2_terms(x: Real, y: Real, second_x: Real, second_y: Real, tiny: Real) -> Real:
    """Return 2xy / (x + y) + 2x₂y₂ / (x₂ + y₂) with one division.

    The division takes longer than all the rest.
    """
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


# ``term`` and ``with_terms`` are inlined by LLVM: each of numba's inlinings compiles every branch.
@jit(constants=("terms",), forceinline=True, error_model="numpy")
def term(terms: int, x: Real, y: Real, tiny: Real) -> Real:
    """Return the term of two numbers of any kernel; Jensen–Shannon wants x > 0."""
    if terms == PRODUCT:
        return x * y
    if terms in (CHI2, CHI2_BY_TWOS):
        return chi2_term(x, y, tiny)
    if terms == INTERSECTION:
        return min(x, y)
    if terms == JENSEN_SHANNON:
        return jensen_shannon_term(x, y)
    return squared_term(x, y)


@jit(constants=("terms",), forceinline=True)
def with_terms(terms: int, total: Any, x: Any, y: Any) -> Any:
    """Return ``total`` plus the terms of sixteen pairs of numbers, in float32."""
    if terms == CHI2:
        return add(total, divide(multiply(add(x, x), y), add(add(x, y), splat_float32(TINY32))))
    if terms == INTERSECTION:
        return add(total, lesser(y, x))  # NaN where x is
    if terms == PRODUCT:
        return multiply_add(x, y, total)
    if terms == JENSEN_SHANNON:
        both = add(x, y)
        apart = multiply_add(x, log2_vector(x), multiply(y, log2_vector(y)))
        return add(total, subtract(multiply(both, log2_vector(both)), apart))
    apart = subtract(x, y)
    return multiply_add(apart, apart, total)


@jit(inline="always")
def two_shares(
    x: Any, y: Any, second_x: Any, second_y: Any, squares: Any, second_squares: Any
) -> Any:
    """Return x²/(x + y) + x₂²/(x₂ + y₂) with one division."""
    s, t = add(x, y), add(second_x, second_y)
    return divide(multiply_add(squares, t, multiply(second_squares, s)), multiply(s, t))


@jit(inline="always")
def add_divergences(total: Any, x: Any, gain: Any, y: Any, y_gain: Any) -> Any:
    """Return ``total`` + (x + y) log2(x + y) − x log2 x − y log2 y."""
    both = add(x, y)
    return add(total, add(multiply_add(both, log2_vector(both), y_gain), gain))


@jit(inline="always")
def add_lesser(sums: Any, x: Any, y: Any, one: Any) -> Any:
    """Return four sums, each with its min(x, y) · 1 added.

    Minima and additions share a unit of the processor, fused multiply-adds do not. LLVM must not
    know that ``one`` is 1, or it would emit additions.
    """
    return (
        multiply_add(lesser(x, y[0]), one, sums[0]),
        multiply_add(lesser(x, y[1]), one, sums[1]),
        multiply_add(lesser(x, y[2]), one, sums[2]),
        multiply_add(lesser(x, y[3]), one, sums[3]),
    )


@jit(inline="always")
def with_four_terms(terms: int, sums: Any, x: Any, y: Any, one: Any) -> Any:
    """Return four sums, each with the terms of x and one of four vectors added; ``one`` is 1."""
    if terms == INTERSECTION:
        return add_lesser(sums, x, y, one)
    return (
        with_terms(terms, sums[0], x, y[0]),
        with_terms(terms, sums[1], x, y[1]),
        with_terms(terms, sums[2], x, y[2]),
        with_terms(terms, sums[3], x, y[3]),
    )

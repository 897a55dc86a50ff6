"""Exponential and logarithm of float32 vectors: the same bits on every processor."""

# mypy: disable-error-code="call-arg, no-untyped-call, var-annotated"

from typing import Any

import numpy as np

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.vectors import (
    exponent_and_fraction,
    greater,
    multiply,
    multiply_add,
    power_of_two,
    splat_float32,
    subtract,
    zero_below,
)

LEAST = np.float32(-87)  # e^−87 is still a normal float32; smaller values count as zero
LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)  # ten bits long, so that n times it is a float32
LN2_LOW = np.float32(0.6931471805599453 - 0.693359375)
ROUNDER = np.float32(1.5 * 2**23)  # adding it leaves a whole number in the last bits
# 1/k! from k = 7 down: beyond it Taylor's series of e^r adds less than 6e-9 where |r| ≤ ½ ln 2.
E7, E6, E5, E4, E3, E2 = (np.float32(1 / factorial) for factorial in (5040, 720, 120, 24, 6, 2))
ONE = np.float32(1)
# log2(1 + f) / f by its polynomial of degree 8 of least |error| · f on [√½ − 1, √2 − 1]: within
# 1.8e-8 of log2.
L8, L7, L6 = (
    np.float32(0.12541241943836212),
    np.float32(-0.21030333638191223),
    np.float32(0.2173793911933899),
)
L5, L4, L3 = (
    np.float32(-0.23851944506168365),
    np.float32(0.28765666484832764),
    np.float32(-0.3607212007045746),
)
L2, L1, L0 = (
    np.float32(0.48092252016067505),
    np.float32(-0.7213471531867981),
    np.float32(1.442694902420044),
)


@jit(inline="always")
def exponential(t: Any) -> Any:
    """Return e^t of a vector, t ≤ 0, to within 3 u; zero below −87.

    t = n ln 2 + r with |r| ≤ ½ ln 2 (and a rounding), so e^t = 2^n e^r.
    """
    kept = greater(t, splat_float32(LEAST))
    shifted = multiply_add(kept, splat_float32(LOG2_E), splat_float32(ROUNDER))
    n = subtract(shifted, splat_float32(ROUNDER))
    r = multiply_add(n, splat_float32(-LN2_HIGH), kept)
    r = multiply_add(n, splat_float32(-LN2_LOW), r)
    series = multiply_add(r, splat_float32(E7), splat_float32(E6))
    series = multiply_add(series, r, splat_float32(E5))
    series = multiply_add(series, r, splat_float32(E4))
    series = multiply_add(series, r, splat_float32(E3))
    series = multiply_add(series, r, splat_float32(E2))
    series = multiply_add(series, r, splat_float32(ONE))
    series = multiply_add(series, r, splat_float32(ONE))
    return zero_below(t, splat_float32(LEAST), multiply(series, power_of_two(shifted)))


@jit(forceinline=True)
def log2_vector(value: Any) -> Any:
    """Return log2 of a vector of positive normal float32 to within 2 u (1 + |log2|).

    Finite for zero and subnormals.
    """
    exponent, fraction = exponent_and_fraction(value)
    f = subtract(fraction, splat_float32(ONE))
    series = multiply_add(f, splat_float32(L8), splat_float32(L7))
    series = multiply_add(series, f, splat_float32(L6))
    series = multiply_add(series, f, splat_float32(L5))
    series = multiply_add(series, f, splat_float32(L4))
    series = multiply_add(series, f, splat_float32(L3))
    series = multiply_add(series, f, splat_float32(L2))
    series = multiply_add(series, f, splat_float32(L1))
    series = multiply_add(series, f, splat_float32(L0))
    return multiply_add(series, f, exponent)

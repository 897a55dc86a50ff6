"""Normalisation of rows in float64, in NumPy's order of addition."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit

Values = NDArray[np.float64]

LANES, LONGEST = 8, 128  # of NumPy's pairwise summation


@jit(error_model="numpy")
def l1_normalise(values: Values, out: Values) -> None:
    """Set ``out`` [n, d] to rows that sum to one."""
    flat = out.reshape(-1)
    d = values.shape[1]
    for i in range(values.shape[0]):
        peak = greatest(values[i])  # without it, subnormal rows would lose digits in the sum
        for k in range(d):
            out[i, k] = values[i, k] / peak
        total = pairwise_sum(flat, i * d, d)
        for k in range(d):
            out[i, k] = out[i, k] / total


@jit(inline="always")
def larger(value: float, other: float) -> float:
    """Return the greater of two numbers, as one instruction does."""
    return value if value > other else other


@jit(inline="always")
def greatest(row: Values) -> float:
    """Return the greatest value of a row, through eight maxima that fit a vector."""
    a = b = c = d = e = f = g = h = row[0]
    done = row.size - row.size % LANES
    for k in range(0, done, LANES):
        a, b, c, d = (
            larger(row[k], a),
            larger(row[k + 1], b),
            larger(row[k + 2], c),
            larger(row[k + 3], d),
        )
        e, f, g, h = (
            larger(row[k + 4], e),
            larger(row[k + 5], f),
            larger(row[k + 6], g),
            larger(row[k + 7], h),
        )
    peak = larger(larger(larger(a, b), larger(c, d)), larger(larger(e, f), larger(g, h)))
    for k in range(done, row.size):
        peak = larger(row[k], peak)
    return peak


@jit
def pairwise_sum(values: Values, start: int, count: int) -> float:
    """Return the sum of ``values[start : start + count]`` to the bit as NumPy adds a row."""
    if count <= LONGEST:
        return short_sum(values, start, count)
    half = count // 2
    half -= half % LANES
    first: float = pairwise_sum(values, start, half)
    return first + pairwise_sum(values, start + half, count - half)


@jit(inline="always")
def short_sum(values: Values, start: int, count: int) -> float:
    """Return the sum of at most 128 values: eight interleaved sums, their sum, then the rest."""
    total, done = 0.0, 0
    if count >= LANES:
        a, b, c, d = values[start], values[start + 1], values[start + 2], values[start + 3]
        e, f, g, h = values[start + 4], values[start + 5], values[start + 6], values[start + 7]
        done = count - count % LANES
        for k in range(start + LANES, start + done, LANES):
            a += values[k]
            b += values[k + 1]
            c += values[k + 2]
            d += values[k + 3]
            e += values[k + 4]
            f += values[k + 5]
            g += values[k + 6]
            h += values[k + 7]
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for k in range(start + done, start + count):
        total += values[k]
    return total

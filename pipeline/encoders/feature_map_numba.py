"""The explicit feature map of rows, with the same bits on every processor."""

import math

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.kernels.terms_numba import log2

Values = NDArray[np.float64]

ROUNDER = 1.5 * 2.0**52  # adding it leaves a whole number in the last bits
# Taylor's series of sin x / x and cos x in x²: beyond, they add less than 3e-16 where |x| ≤ π / 2.
SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(10))
COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(11))


@jit(inline="always")
def circle(turns: float) -> tuple[float, float]:
    """Return cosine and sine of an angle in turns, from those of its half, to within 1e-15."""
    x = (turns - ((turns + ROUNDER) - ROUNDER)) * math.pi
    z = x * x
    sine, cosine = SINE[9], COSINE[10]
    for k in range(8, -1, -1):
        sine = sine * z + SINE[k]
    for k in range(9, -1, -1):
        cosine = cosine * z + COSINE[k]
    sine *= x
    return 1.0 - 2.0 * sine * sine, 2.0 * sine * cosine


@jit
def set_harmonic(sizes: Values, angles: Values, harmonic: int, root: float, out: Values) -> None:
    """Set ``out`` [2d] to the cosines, then the sines, of a harmonic."""
    d = sizes.size
    cosines, sines = out[:d], out[d:]
    for k in range(d):
        cosine, sine = circle(harmonic * angles[k])
        cosines[k], sines[k] = root * sizes[k] * cosine, root * sizes[k] * sine


@jit(error_model="numpy")  # without a test of every divisor, logarithms fill vectors
def map_rows(rows: Values, roots: Values, turns: float, out: Values) -> None:
    """Set ``out`` [n, (2m − 1) d] to the map of ``rows`` [n, d].

    ``roots`` [m] are √w, and ``turns`` is L of log2 in turns. A zero maps to zeros: its logarithm
    is finite here.
    """
    n, d = rows.shape
    sizes, angles = np.empty(d), np.empty(d)
    for i in range(n):
        row, at = rows[i], out[i]
        for k in range(d):
            sizes[k] = np.sqrt(row[k])
            angles[k] = log2(row[k]) * turns
        for k in range(d):
            at[k] = roots[0] * sizes[k]
        for j in range(1, roots.size):
            set_harmonic(sizes, angles, j, roots[j], at[(2 * j - 1) * d : (2 * j + 1) * d])

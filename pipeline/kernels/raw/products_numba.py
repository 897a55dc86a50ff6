"""Inner products whose relative error is bounded: cancellation costs them no digits.

The rows hold float32 values, so each product of two of them is an exact float64.
"""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit

Values = NDArray[np.float64]

U = 2.0**-53
PARTIALS = 64  # no sum of float64 numbers has more parts that do not overlap


@jit(error_model="numpy")
def multiply_rows(X: Values, Y: Values, out: Values) -> None:
    """Set ``out[i, j]`` to ⟨X[i], Y[j]⟩; X [n, d] and Y [m, d] are C-contiguous."""
    partials = np.empty(PARTIALS)
    for i in range(X.shape[0]):
        for j in range(Y.shape[0]):
            out[i, j] = product(X[i], Y[j], partials)


@jit(error_model="numpy")
def pairs(
    X: Values, Y: Values, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64], out: Values
) -> None:
    """Set ``out[p]`` to ⟨X[x_rows[p]], Y[y_rows[p]]⟩, with the bits of ``multiply_rows``."""
    partials = np.empty(PARTIALS)
    for p in range(out.size):
        out[p] = product(X[x_rows[p]], Y[y_rows[p]], partials)


@jit(error_model="numpy")
def product(x: Values, y: Values, partials: Values) -> float:
    """Return ⟨x, y⟩ within 2 u of it, relatively.

    The sum keeps what each addition loses, and adds that at the end. It is within u |⟨x, y⟩| +
    (d u)² Σ|xy| of the truth (Ogita, Rump & Oishi 2005, Prop. 4.5). Where the second term may
    exceed u / 2 of the result, through cancellation, all digits of the sum are kept instead.
    """
    total, lost, size, exact = 0.0, 0.0, 0.0, True
    for k in range(x.size):
        term = x[k] * y[k]
        after = total + term
        added = after - total
        error = (total - (after - added)) + (term - added)
        exact = exact and error == 0.0
        lost += error
        size += abs(term)
        total = after
    if exact:
        return total
    score = total + lost
    if 2.2 * (x.size * U) ** 2 * size <= U * abs(score):
        return score
    return sum_of_parts(x, y, partials)


@jit(error_model="numpy")
def sum_of_parts(x: Values, y: Values, partials: Values) -> float:
    """Return ⟨x, y⟩ from parts that do not overlap and whose sum is exact (Shewchuk 1997)."""
    count = 0
    for k in range(x.size):
        term, kept = x[k] * y[k], 0
        for j in range(count):
            other = partials[j]
            after = term + other
            added = after - term
            error = (term - (after - added)) + (other - added)
            if error != 0.0:
                partials[kept] = error
                kept += 1
            term = after
        partials[kept] = term
        count = kept + 1
    total = 0.0
    for j in range(count):
        total += partials[j]
    return total

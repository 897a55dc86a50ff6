"""The one jitted function that calls a custom kernel, so that a pair has one score."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Values = NDArray[np.float64]
Numbers = NDArray[np.int64]


@njit(nogil=True)
def score_pairs(
    function: Any, X: Values, Y: Values, rows: tuple[Numbers, Numbers], ordered: bool, out: Values
) -> None:
    """Set ``out[p]`` to the function of X[rows[0][p]] and Y[rows[1][p]].

    The lesser row comes first if ``ordered``.
    """
    for p in range(out.size):
        x, y = X[rows[0][p]], Y[rows[1][p]]
        if ordered and follows(x, y):
            out[p] = function(y, x)
        else:
            out[p] = function(x, y)


@njit(nogil=True)
def follows(x: Values, y: Values) -> bool:
    """Return whether x is the greater of two rows, by the first value in which they differ."""
    for k in range(x.size):
        if x[k] != y[k]:
            return bool(x[k] > y[k])
    return False

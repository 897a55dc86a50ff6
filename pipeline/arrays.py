"""The array types that signatures name, and the rounding of thresholds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


def float32_below(values: NDArray[np.floating[Any]]) -> Float32:
    """Return the greatest float32 below each value."""
    with np.errstate(over="ignore"):  # −∞ rules no row out
        return np.nextafter(values.astype(np.float32), np.float32(-np.inf))

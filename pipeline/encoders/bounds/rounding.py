"""Rounding of bounds: to a narrower type, never below."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64

LARGEST_FLOAT16 = 65504.0


def float16_above(values: Float64) -> NDArray[np.float16]:
    """Return the least float16 that is not below each value: at most 65 504, or ∞."""
    assert values.max(initial=0, where=values < np.inf) <= LARGEST_FLOAT16
    return _above(values, np.float16)


def float32_above(values: Float64) -> NDArray[np.float32]:
    """Return the least float32 that is not below each value."""
    return _above(values, np.float32)


def norms_above(values: Float64) -> Float64:
    """Return a little more than the norm of each row; rounding is at most 1e-13 of it."""
    return np.asarray(np.sqrt(np.square(values).sum(axis=1)) * (1 + 1e-12))


def _above(values: Float64, kind: Any) -> NDArray[Any]:  # noqa: ANN401 - NumPy's scalar types
    """Return values of a type, rounded up; beyond its greatest one, ∞."""
    with np.errstate(over="ignore"):
        nearest = values.astype(kind)
    np.nextafter(nearest, kind(np.inf), out=nearest, where=nearest.astype(np.float64) < values)
    return nearest

"""Rounding of weights that keeps their sum, and the distance of a row to its code."""

import math

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit


@jit
def round_keeping_sum(scaled: NDArray[np.float64], limit: int, rounded: NDArray[np.int8]) -> None:
    """Round to integers within ±limit that keep the rounded sum: values nearest a half give way.

    Dictionary atoms resemble each other, so scores show the error of the weights' *sum*.
    """
    total = 0.0
    rounded_total = 0
    for a in range(scaled.size):
        rounded[a] = min(limit, max(-limit, int(np.rint(scaled[a]))))
        total += scaled[a]
        rounded_total += int(rounded[a])
    surplus = rounded_total - int(np.rint(total))
    step = 1 if surplus < 0 else -1
    for _ in range(abs(surplus)):
        best, which = -2.0, -1
        for a in range(scaled.size):
            gain = step * (scaled[a] - rounded[a])
            if scaled[a] != 0 and gain > best and abs(int(rounded[a]) + step) <= limit:
                best, which = gain, a
        if which >= 0:
            rounded[which] += step


@jit
def quantise_int8(
    weights: NDArray[np.float64], scales: NDArray[np.float64], rounded: NDArray[np.int8]
) -> None:
    """Set ``rounded`` [b, α] to weights / scale, sums kept; ``scales`` [b] ≈ max |weight| / 127."""
    scaled = np.empty(weights.shape[1])
    for row in range(weights.shape[0]):
        scale = scales[row]
        for a in range(scaled.size):
            scaled[a] = weights[row, a] / scale if scale > 0 else 0.0
        round_keeping_sum(scaled, 127, rounded[row])


@jit
def residuals(
    start: NDArray[np.float32],
    gram: NDArray[np.float32],
    atoms: NDArray[np.int64],
    weights: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Set ``out[i]`` to ‖Φ(y) − Σ wₐ Φ(zₐ)‖ by stored weights: √(1 − 2 wᵀK(S, y) + wᵀ G_SS w)."""
    alpha = atoms.shape[1]
    for row in range(atoms.shape[0]):
        square = 1.0
        for i in range(alpha):
            atom, w = atoms[row, i], weights[row, i]
            if w != 0:
                cross = 0.5 * w * gram[atom, atom] - start[row, atom]
                for j in range(i):
                    cross += weights[row, j] * gram[atoms[row, j], atom]
                square += 2 * w * cross
        out[row] = math.sqrt(max(square, 0.0))

"""Explicit feature maps of additive kernels (Vedaldi & Zisserman 2012).

A kernel k(a, b) = √(ab) 𝒦(λ) of two numbers, λ = ln(b / a), has a spectrum κ(ω) ≥ 0 with 𝒦(λ) =
∫ κ(ω) cos(ωλ) dω. The map samples it at the frequencies 0, L, …, nL: ψ(a) = √a [√w₀, √wⱼ cos(jL ln
a), √wⱼ sin(jL ln a)], so that ⟨ψ(a), ψ(b)⟩ = √(ab) 𝒦̂(λ) with 𝒦̂(λ) = Σ wⱼ cos(jLλ) and Σ wⱼ = 1.
ψ(0) = 0. The map of a row is that of its values, and has norm 1 if they sum to one.

As √(ab) = ½ (a + b) / cosh(λ / 2) and Σ ½ (x + y) = 1, K(x, y) − ⟨ψ(x), ψ(y)⟩ is at most the
greatest (𝒦 − 𝒦̂) / cosh(λ / 2), whatever the ratios of the values are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.encoder import Model
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.sums import Chi2, Hellinger, Intersection, JensenShannon

MAX_HARMONICS = 16
STEPS = (0.05, 2.0)  # of frequencies: the best of every kernel lies between
FARTHEST = 60.0  # λ: beyond, 2 / cosh(λ / 2) is below ROUNDED
GRID, FINE = 1e-2, 1e-3  # steps of λ, to choose L and to prove
ROUNDED = 1e-12  # more than float64 can round in 𝒦 or 𝒦̂
Function = Callable[[Float64], Float64]


class Additive(NamedTuple):
    """𝒦(λ) for λ ≥ 0, and κ(ω), of a kernel that is a sum of k(a, b)."""

    signature: Function
    spectrum: Function


def _jensen_shannon(ratio: Float64) -> Float64:
    """Return 𝒦 = ½ [e^(λ/2) log2(1 + e^−λ) + e^(−λ/2) log2(1 + e^λ)]."""
    half, near = np.exp(ratio / 2), np.log1p(np.exp(-ratio))
    return np.asarray((half * near + (near + ratio) / half) / (2 * np.log(2)))


ADDITIVE = {
    Chi2.name: Additive(
        lambda ratio: 1 / np.cosh(ratio / 2), lambda frequency: 1 / np.cosh(np.pi * frequency)
    ),
    Intersection.name: Additive(
        lambda ratio: np.exp(-ratio / 2), lambda frequency: 2 / np.pi / (1 + 4 * frequency**2)
    ),
    JensenShannon.name: Additive(
        _jensen_shannon,
        lambda frequency: 2 / np.log(4) / np.cosh(np.pi * frequency) / (1 + 4 * frequency**2),
    ),
}
MAPPED = (*ADDITIVE, Hellinger.name)  # whose prepared rows are a map with K = ⟨ψ(x), ψ(y)⟩


class FeatureMap:
    """The map of prepared rows.

    Parameters
    ----------
    model : ``weights`` float64[n + 1], w; ``frequency`` float64[1], L
    """

    def __init__(self, model: Model) -> None:
        self._roots = np.sqrt(model["weights"])
        self._turns = float(model["frequency"][0]) * np.log(2) / (2 * np.pi)

    def __call__(self, prepared: Float64) -> Float64:
        """Return the map of prepared rows [b, d], float64[b, (2n + 1) d]; none depends on others.

        All values of one harmonic follow one another.
        """
        if len(self._roots) == 1:
            return prepared
        from mercore.pipeline.encoders.feature_map_numba import map_rows

        n, d = prepared.shape
        out = np.empty((n, (2 * len(self._roots) - 1) * d))
        map_rows(prepared, self._roots, self._turns, out)
        return out


def choose_map(kernel: Kernel, harmonics: int) -> dict[str, NDArray[Any]]:
    """Return the map of a kernel as model arrays.

    L makes the greatest |𝒦 − 𝒦̂| / cosh(λ / 2) least. ``excess`` float64[1] is more than K(x, y) −
    ⟨ψ(x), ψ(y)⟩ of any two rows.
    """
    if kernel.name == Hellinger.name:
        return {"weights": np.ones(1), "frequency": np.zeros(1), "excess": np.zeros(1)}
    from scipy.optimize import minimize_scalar

    additive, ratios = ADDITIVE[kernel.name], np.arange(0, FARTHEST / 2, GRID)

    def error(frequency: float) -> float:
        weights = _weights(additive, frequency, harmonics)
        return float(np.abs(_difference(additive, frequency, weights, ratios)).max())

    tried = np.geomspace(*STEPS, 64)
    best = int(np.argmin([error(frequency) for frequency in tried]))
    ends = tried[max(0, best - 1)], tried[min(best + 1, len(tried) - 1)]
    frequency = float(minimize_scalar(error, bounds=ends, method="bounded").x)
    weights = _weights(additive, frequency, harmonics)
    return {
        "weights": weights,
        "frequency": np.array([frequency]),
        "excess": np.array([_excess(additive, frequency, weights)]),
    }


def _weights(additive: Additive, frequency: float, harmonics: int) -> Float64:
    """Return w: κ at the frequencies, those above 0 twice, and their sum made 1."""
    weights = additive.spectrum(frequency * np.arange(harmonics + 1, dtype=np.float64))
    weights[1:] *= 2
    return np.asarray(weights / weights.sum())


def _difference(additive: Additive, frequency: float, weights: Float64, ratios: Float64) -> Float64:
    """Return (𝒦 − 𝒦̂) / cosh(λ / 2)."""
    left = additive.signature(ratios)
    for number, weight in enumerate(weights):
        left = left - weight * np.cos(number * frequency * ratios)
    return np.asarray(left / np.cosh(ratios / 2))


def _excess(additive: Additive, frequency: float, weights: Float64) -> float:
    """Return more than the greatest (𝒦 − 𝒦̂) / cosh(λ / 2), which is at least 0.

    Between points of a grid it exceeds theirs by at most M δ² / 8, M ≥ its second derivative. Those
    of 1 / cosh(λ / 2) are at most ¼, ¼ (the first) and 1. |𝒦 − 𝒦̂| ≤ 1, and its derivatives are at
    most ½ + nL and 1 + (nL)²: 𝒦' ≤ ½ and 𝒦'' ≤ 1 of all kernels. So M = (2 + nL)² is enough.
    """
    ratios = np.arange(0, FARTHEST + FINE, FINE)
    steepest = (2 + frequency * (len(weights) - 1)) ** 2
    greatest = float(_difference(additive, frequency, weights, ratios).max())
    return max(greatest, 0.0) + steepest * FINE**2 / 8 + 2 * ROUNDED

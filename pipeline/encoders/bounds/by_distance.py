"""Scores as functions of the squared distance of two points, with errors to the safe side."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.rbf import Rbf
from mercore.pipeline.kernels.transform import Transformed

if TYPE_CHECKING:
    from mercore.pipeline.scanners.bounds.grid import ScoreByDistance

ROUNDED = 1e-12  # more than the rounding of a few float64 operations on numbers up to 1


class FeatureSpace:
    """K(x, y) ≤ 1 − ‖Φ(x) − Φ(y)‖² / 2 + ``excess``, which is 0 unless Φ is an approximate map."""

    def __init__(self, excess: float = 0.0) -> None:
        self._excess = excess + ROUNDED

    def squared_reach(self, least: Float64) -> Float64:
        """Return 2 (1 − K)."""
        return 2 * (1 - least + self._excess)

    def most(self, squared: Float64, queries: NDArray[np.int64]) -> Float64:
        """Return K."""
        return 1 - squared / 2 + self._excess


class TransformedSpace:
    """κ inside K = exp(s (κ − 1)) = 1 − ‖Φ(x) − Φ(y)‖² / 2, or inside several such transforms.

    ``scales`` are s of the transforms, the innermost first.
    """

    def __init__(self, scales: tuple[float, ...]) -> None:
        self.scales = scales

    def squared_reach(self, least: Float64) -> Float64:
        """Return 2 (1 − K)."""
        score = np.minimum(least, 1)
        for scale in self.scales:
            score = np.exp(scale * (score - 1))
        return np.asarray(2 * (1 - score) + ROUNDED * (1 + sum(self.scales)))

    def most(self, squared: Float64, queries: NDArray[np.int64]) -> Float64:
        """Return κ; a K of 0, which has none, counts as 1e-300."""
        score = 1 - squared / 2 + ROUNDED
        for scale in reversed(self.scales):
            score = 1 + np.log(np.maximum(score, 1e-300)) / scale
            score += ROUNDED * (1 + 800 / scale)
        return np.asarray(score)


class Distance:
    """The score −‖x − y‖² of Euclidean distance."""

    def squared_reach(self, least: Float64) -> Float64:
        """Return the squared distance."""
        return -least

    def most(self, squared: Float64, queries: NDArray[np.int64]) -> Float64:
        """Return −‖x − y‖²."""
        return -squared * (1 - ROUNDED)


class Gaussian:
    """K(x, y) = exp(−γ ‖x − y‖²)."""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def squared_reach(self, least: Float64) -> Float64:
        """Return −ln K / γ, or ∞ for a K of 0."""
        with np.errstate(divide="ignore"):
            reach = -np.log(np.clip(least, 0, 1)) / self.gamma
        return np.asarray(reach * (1 + ROUNDED) + ROUNDED / self.gamma)

    def most(self, squared: Float64, queries: NDArray[np.int64]) -> Float64:
        """Return K."""
        return np.asarray(np.exp(-self.gamma * squared * (1 - ROUNDED)) * (1 + ROUNDED))


class Product:
    """⟨x, y⟩ = (‖x‖² + ‖y‖² − ‖x − y‖²) / 2; a scan subtracts ‖y‖² from squared distances."""

    def __init__(self, norms: Float64) -> None:
        self.squared = np.square(norms)

    def squared_reach(self, least: Float64) -> Float64:
        """Return ‖x‖² − 2 ⟨x, y⟩."""
        reach = self.squared - 2 * least
        return np.asarray(reach + 4 * ROUNDED * (self.squared + np.abs(least)))

    def most(self, squared: Float64, queries: NDArray[np.int64]) -> Float64:
        """Return ⟨x, y⟩."""
        whole = self.squared[queries]
        return np.asarray((whole - squared) / 2 + 4 * ROUNDED * (whole + np.abs(squared)))


def of_features(kernel: Kernel) -> "ScoreByDistance":
    """Return the score of the ranking kernel by distances in the feature space of a kernel."""
    scales: list[float] = []
    while isinstance(kernel, Transformed):
        scales.insert(0, kernel.scale)
        kernel = kernel.kernel
    return TransformedSpace(tuple(scales)) if scales else FeatureSpace()


def of_rows(kernel: Kernel, norms: Float64 | None) -> "ScoreByDistance":
    """Return the score by distances of prepared rows.

    With ``norms`` float64[nq] of the queries, the score is the inner product.
    """
    if norms is not None:
        return Product(norms)
    if isinstance(kernel, Rbf):
        return Gaussian(kernel.gamma)
    if kernel.normalised:
        return FeatureSpace()
    return Distance()

"""Rows as points of a Euclidean space in float64, with what the points leave out of them.

With x' the true point of a row and R' what it leaves out, ‖Φ(x) − Φ(y)‖² = ‖x' − y'‖² + ‖h − h'‖²
≥ ‖x' − y'‖² + (R'(x) − R'(y))². The computed point x̃ and R are off by known errors.
"""

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.bounds.kpca_bound import projected, projection_panels
from mercore.pipeline.encoders.bounds.rounding import norms_above
from mercore.pipeline.encoders.encoder import Model
from mercore.pipeline.encoders.feature_map import FeatureMap
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.sums import SumKernel

UNIT_ERROR = 1e-12  # more than float64 can round in a prepared row, or in its map, of norm 1
LEAST_NORM = 0.1  # of a point that is divided by its norm: its error is, too
MOST_SLACK = 1e-4  # of such points
TINY = 1e-200  # of a squared norm: less may have lost its digits


class EmbeddedRows(NamedTuple):
    """Points float64[b, E] and, for each, what it leaves out: R, a norm, or 0, float64[b].

    ``error`` float64[b] bounds the distance of a point from the true one: ∞ if nothing does.
    """

    coordinates: Float64
    apart: Float64
    error: Float64


class BoundedEmbedding(Protocol):
    """The map of raw rows to points.

    ``apart_error`` bounds the error of R where that of the point is finite. ``form`` says what R
    is: see ``PqBoundScanner``.
    """

    form: str
    apart_error: float

    def __call__(self, rows: NDArray[Any], *, first: int = 0, label: str = "row") -> EmbeddedRows:
        """Return the points of raw rows; none depends on its block."""
        ...


class KernelEmbedding:
    """Kernel PCA in float64: x̃ and R² = 1 − ‖x̃‖² (Bourrier et al. 2015, Eq. 11 and 21).

    Parameters
    ----------
    landmarks : dtype[M, d], raw rows
    projection : float64[M, E]
    slack : the error of a squared residual (``projection_slack``); a point is off by less.
    unit : whether points are divided by their norms, and residuals too: see ``of_unit_norm``
    """

    def __init__(
        self,
        kernel: Kernel,
        landmarks: NDArray[Any],
        projection: Float64,
        slack: float,
        *,
        unit: bool,
    ) -> None:
        self.kernel, self._slack = kernel, slack
        self.form = "ratio" if unit else "residual"
        self.apart_error = unit_error(slack) if unit else math.sqrt(slack)
        self._landmarks = np.ascontiguousarray(kernel.prepare(landmarks, label="landmark").T)
        self._panels, self._width = projection_panels(projection), projection.shape[1]

    def __call__(self, rows: NDArray[Any], *, first: int = 0, label: str = "row") -> EmbeddedRows:
        """Return x̃ and R of raw rows."""
        prepared = self.kernel.prepare(rows, first=first, label=label)
        values = self.kernel.landmark_values(prepared, self._landmarks)
        points = projected(values, self._panels)[:, : self._width]
        if self.form == "ratio":
            return of_unit_norm(points, self._slack)
        left = np.maximum(1 - np.square(points).sum(axis=1), 0)
        return EmbeddedRows(points, np.sqrt(left), np.full(len(points), self._slack))


class RowEmbedding:
    """Prepared rows themselves; for inner products with their norms, rounded up."""

    apart_error = 0.0

    def __init__(self, kernel: Kernel, form: str) -> None:
        self.kernel, self.form = kernel, form
        as_it_is = isinstance(kernel, SumKernel) and kernel.scaling == "AS_IT_IS"
        self._error = 0.0 if as_it_is else UNIT_ERROR

    def __call__(self, rows: NDArray[Any], *, first: int = 0, label: str = "row") -> EmbeddedRows:
        """Return the prepared rows."""
        points = self.kernel.prepare(rows, first=first, label=label)
        apart = norms_above(points) if self.form == "norm" else np.zeros(len(points))
        return EmbeddedRows(points, apart, np.full(len(points), self._error))


class PcaEmbedding:
    """Principal components of prepared rows, a = Pᵀ(x − c), and R = √(‖x − c‖² − ‖a‖²).

    Errors grow with ‖x − c‖. So rows with a greater one than ``largest`` have no bound; for the
    others, the errors are those of a row as large as that.

    Parameters
    ----------
    model : ``mean`` float64[d], c; ``projection`` float64[d, E], P; ``largest`` float64[1];
        ``slack`` float64[1], the error of R², and more than that of a, as a share of ‖x − c‖² and
        of ‖x − c‖ (``pca_bound.projection_slack``)
    form : "residual", or "norm" if R is to be the norm of the row, rounded up; c is then 0
    """

    def __init__(self, kernel: Kernel, model: Model, form: str) -> None:
        self.kernel, self.form = kernel, form
        slack, self._largest = float(model["slack"][0]), float(model["largest"][0])
        self.apart_error = math.sqrt(slack) * self._largest + UNIT_ERROR
        self._error = slack * self._largest + UNIT_ERROR
        self._mean, projection = model["mean"], model["projection"]
        self._panels, self._width = projection_panels(projection), projection.shape[1]

    def __call__(self, rows: NDArray[Any], *, first: int = 0, label: str = "row") -> EmbeddedRows:
        """Return a and R of raw rows."""
        centred = self.kernel.prepare(rows, first=first, label=label) - self._mean
        points = projected(centred, self._panels)[:, : self._width]
        squared = np.square(centred).sum(axis=1)
        if self.form == "norm":
            apart = norms_above(centred)
        else:
            apart = np.sqrt(np.maximum(squared - np.square(points).sum(axis=1), 0))
        error = np.where(squared <= self._largest**2, self._error, np.inf)
        return EmbeddedRows(points, apart, error)


class MapEmbedding:
    """Principal components a = Pᵀψ(x) of a map of norm 1, divided by their norm, and R / ‖a‖.

    Parameters
    ----------
    model : the map (``FeatureMap``); ``projection`` float64[(2n + 1) d, E], P; ``slack``
        float64[1], the error of R², and more than that of a (``pca_bound.projection_slack``)
    """

    form = "ratio"

    def __init__(self, kernel: Kernel, model: Model) -> None:
        self.kernel, self._map, projection = kernel, FeatureMap(model), model["projection"]
        self._slack = float(model["slack"][0]) + 4 * UNIT_ERROR
        self.apart_error = unit_error(self._slack)
        self._panels, self._width = projection_panels(projection), projection.shape[1]

    def __call__(self, rows: NDArray[Any], *, first: int = 0, label: str = "row") -> EmbeddedRows:
        """Return a / ‖a‖ and R / ‖a‖ of raw rows."""
        values = self._map(self.kernel.prepare(rows, first=first, label=label))
        return of_unit_norm(projected(values, self._panels)[:, : self._width], self._slack)


def of_unit_norm(points: Float64, slack: float) -> EmbeddedRows:
    """Return points a of unit vectors divided by their norms, and R / ‖a‖, R² = 1 − ‖a‖².

    ``slack`` ε bounds the errors of a and R². Points of a lesser norm than ``LEAST_NORM`` have no
    bound, nor has any if ε is too great. The others are off by 2 ε / ‖a‖, and R / ‖a‖ by less than
    (√ε + 10 ε) / ‖a‖.
    """
    squared = np.square(points).sum(axis=1)
    norms = np.where(squared > TINY, np.sqrt(squared), 1)
    near = (squared >= LEAST_NORM**2) & (slack <= MOST_SLACK)
    ratios = np.where(near, np.sqrt(np.maximum(1 - squared, 0)) / norms, 0)
    error = np.where(near, 2 * slack / LEAST_NORM, np.inf)
    return EmbeddedRows(points / norms[:, None], ratios, error)


def unit_error(slack: float) -> float:
    """Return the greatest error of R / ‖a‖ where ``of_unit_norm`` gives a bound."""
    return (math.sqrt(slack) + 10 * slack) / LEAST_NORM * (1 + 1e-3)

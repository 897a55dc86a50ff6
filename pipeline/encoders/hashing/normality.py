"""The normality of hyperplanes by the Anderson-Darling test (Kulis & Grauman 2012, §6.6)."""

from typing import NamedTuple

import numpy as np

from mercore.pipeline.arrays import Float64
from mercore.stores.errors import InputError, ShapeError

LEAST_ENTRIES = 8  # below them the critical value does not hold
CRITICAL = 0.752  # D'Agostino 1986: mean and variance are estimated, α = 0.05


class Normality(NamedTuple):
    """The statistics A² of hyperplanes, float64[count], and the share that passes at 5 %."""

    statistics: Float64
    success_rate: float


def hyperplane_normality(hyperplanes: Float64) -> Normality:
    """Return the Anderson-Darling statistic of each hyperplane, and the share of normal ones.

    The d entries of a hyperplane are one sample, whose mean and variance are estimated. A lower
    statistic is nearer to a normal distribution. A hyperplane passes if its statistic is below the
    critical value for α = 0.05 (Kulis & Grauman 2012, Fig. 7). In their experiment the kernel is
    linear, and a hyperplane is the sum of the landmarks with their weights.

    Statistic and critical value are those of ``scipy.stats.anderson``, whose results have another
    form from one version to the next.

    Parameters
    ----------
    hyperplanes : float64[count, d], count ≥ 1, d ≥ 8

    Returns
    -------
    Normality

    Raises
    ------
    ShapeError
        If the array is not of this shape.
    InputError
        If a number is not finite, or all entries of a hyperplane are equal.
    """
    if hyperplanes.ndim != 2 or not len(hyperplanes) or hyperplanes.shape[1] < LEAST_ENTRIES:
        raise ShapeError(
            f"the hyperplanes have shape {hyperplanes.shape}: expected (count, d), count ≥ 1, d ≥ "
            f"{LEAST_ENTRIES}. Fix: give one hyperplane per row."
        )
    if not np.isfinite(hyperplanes).all():
        row = int(np.argwhere(~np.isfinite(hyperplanes))[0, 0])
        raise InputError(
            f"hyperplane {row} has a number that is not finite: expected real numbers. Fix: "
            "compute it again."
        )
    constant = np.ptp(hyperplanes, axis=1) == 0
    if constant.any():
        raise InputError(
            f"all entries of hyperplane {int(constant.argmax())} are equal: expected a sample with "
            "a variance. Fix: leave it out."
        )
    statistics = _anderson_darling(hyperplanes)
    d = hyperplanes.shape[1]
    critical = round(CRITICAL / (1 + 0.75 / d + 2.25 / d**2), 3)
    return Normality(statistics, float((statistics < critical).mean()))


def _anderson_darling(samples: Float64) -> Float64:
    """Return A² = −d − Σ (2i − 1) [ln Φ(zᵢ) + ln Φ(−z_{d+1−i})] / d for sorted z, per sample."""
    from scipy.special import log_ndtr

    d = samples.shape[1]
    deviations = samples - samples.mean(axis=1, keepdims=True)
    z = np.sort(deviations / samples.std(axis=1, ddof=1, keepdims=True), axis=1)
    terms = log_ndtr(z) + log_ndtr(-z[:, ::-1])
    return np.asarray(-d - ((2 * np.arange(1, d + 1) - 1) * terms).mean(axis=1))

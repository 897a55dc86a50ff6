"""The normality of hyperplanes by the Anderson-Darling test (Kulis & Grauman 2012, §6.6)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Float64 = NDArray[np.float64]
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
    hyperplanes : float64[count, d], finite, d ≥ 8, each with two different entries
    """
    statistics = _anderson_darling(hyperplanes)
    d = hyperplanes.shape[1]
    critical = round(CRITICAL / (1 + 0.75 / d + 2.25 / d**2), 3)
    return Normality(statistics, float((statistics < critical).mean()))


def _anderson_darling(samples: Float64) -> Float64:
    """Return A² = −d − Σ (2i − 1) [ln Φ(zᵢ) + ln Φ(−z_{d+1−i})] / d for sorted z, per sample."""
    d = samples.shape[1]
    deviations = samples - samples.mean(axis=1, keepdims=True)
    z = np.sort(deviations / samples.std(axis=1, ddof=1, keepdims=True), axis=1)
    terms = log_ndtr(z) + log_ndtr(-z[:, ::-1])
    return np.asarray(-d - ((2 * np.arange(1, d + 1) - 1) * terms).mean(axis=1))

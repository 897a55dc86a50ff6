"""The Anderson-Darling test of hyperplanes against a slow form, and against scipy's."""

import math
import warnings
from statistics import fmean, stdev

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from tests.independent.normality import hyperplane_normality
from tests.support.cases import loop_over

KINDS = ("standard_normal", "standard_exponential", "standard_cauchy", "random")


def samples(kind: str, count: int, d: int) -> NDArray[np.float64]:
    """Hyperplanes whose entries follow one distribution."""
    rows: NDArray[np.float64] = getattr(np.random.default_rng(0), kind)((count, d))
    return rows


def slow_statistic(values: list[float]) -> float:
    """A² = −n − Σ (2i − 1) [ln Φ(zᵢ) + ln(1 − Φ(z_{n+1−i}))] / n."""
    n, mean, deviation = len(values), fmean(values), stdev(values)
    z = sorted((value - mean) / deviation for value in values)
    below = [math.log(math.erfc(-each / math.sqrt(2)) / 2) for each in z]
    above = [math.log(math.erfc(each / math.sqrt(2)) / 2) for each in z]
    terms = ((2 * i + 1) * (below[i] + above[n - 1 - i]) for i in range(n))
    return -n - math.fsum(terms) / n


@loop_over(("kind", "d"), [(kind, d) for kind in KINDS for d in (8, 31, 128)])
def test_statistics_are_those_of_the_slow_form_and_of_scipy(kind: str, d: int) -> None:
    rows = samples(kind, 5, d)
    found = hyperplane_normality(rows).statistics
    assert found == pytest.approx([slow_statistic(row) for row in rows.tolist()], rel=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # scipy 1.17 wants a method named
        theirs = [scipy.stats.anderson(row).statistic for row in rows]
    assert found == pytest.approx(theirs, rel=1e-9)


def test_normal_hyperplanes_pass_and_others_do_not() -> None:
    rates = [hyperplane_normality(samples(kind, 1000, 128)).success_rate for kind in KINDS]
    assert 0.93 < rates[0] < 0.97  # α = 0.05
    assert max(rates[1:3]) == 0
    assert rates[3] < 0.5


def test_the_rate_counts_statistics_below_the_critical_value() -> None:
    """For d = 128: 0.752 / (1 + 0.75 / 128 + 2.25 / 128²) = 0.748."""
    statistics, rate = hyperplane_normality(samples("standard_normal", 500, 128))
    assert rate == sum(each < 0.748 for each in statistics.tolist()) / 500


def test_neither_place_nor_scale_matters() -> None:
    rows = samples("standard_normal", 3, 20)
    moved = hyperplane_normality(3 - 5 * rows[:, ::-1]).statistics
    assert moved == pytest.approx(hyperplane_normality(rows).statistics, rel=1e-9)

"""The share of rows whose bounds reach the best score, on numbers worked out by hand."""

import numpy as np
import pytest

from mercore.pipeline.encoders.bounds.sample import expected_share, measured_shares
from mercore.testing.cases import loop_over


def test_shares_are_of_the_bounds_that_reach_the_best_score_of_all_rows_and_of_the_first_eighth() -> (
    None
):
    scores, bounds = np.full((2, 16), 0.1), np.full((2, 16), 0.2, np.float32)
    scores[:, 1], scores[:, 9] = 0.5, 0.75  # the best of the first two, and of all
    bounds[0, [1, 9, 10, 15]] = 0.75, 0.75, 0.8, 0.7  # three of sixteen; one of two
    bounds[1, [0, 1, 9]] = 0.5, 0.6, 0.9  # one of sixteen; two of two
    np.testing.assert_array_equal(measured_shares(bounds, scores), [4 / 32, 3 / 4, 16])


def test_of_fewer_than_eight_rows_the_first_is_the_eighth() -> None:
    scores = np.array([[0.25, 0.5, 0.5]])
    np.testing.assert_array_equal(
        measured_shares(np.array([[0.25, 0.5, 0.4]], np.float32), scores), [1 / 3, 1, 3]
    )


@loop_over(
    ("shares", "rows", "expected"),
    [
        ([0.25, 0.5, 1000], 1000, 0.25),
        ([0.25, 0.5, 1000], 8000, 0.125),  # an eighth of the rows left twice as much
        ([0.25, 0.5, 1000], 125, 0.5),
        ([0.25, 0.5, 1000], 1, 1.0),
        ([0.5, 0.25, 1000], 8000, 0.5),  # more rows are not expected to leave more
        ([0.0625, 1.0, 64], 512, 0.00390625),
    ],
)
def test_the_share_falls_by_the_power_of_the_rows_that_the_sample_shows(
    shares: list[float], rows: float, expected: float
) -> None:
    assert expected_share(np.array(shares), rows) == pytest.approx(expected, rel=1e-12)

"""What relaxed bounds take for granted of near rows, and how often that may fail: both as the
formulas have it."""

import numpy as np
import pytest

from mercore.pipeline.encoders.bounds.kpca_bound import (
    KpcaBoundSpec,
    Projected,
    landmark_scores,
    relaxation,
)
from mercore.pipeline.encoders.bounds.sample import Sample, sample_scores
from mercore.pipeline.kernels import make_kernel
from mercore.stores.rows import SourceVectors
from mercore.testing.stores import Rows, histograms
from tests.independent import reference


def test_what_a_relaxed_bound_may_miss_is_the_share_that_is_left_and_what_a_sample_may_be_off() -> (
    None
):
    cosines = np.linspace(-1, 0.5, 257) ** 3
    beta, failure = relaxation({"cosines": cosines}, 0.25)
    assert beta == cosines[64]
    pairs = 64 * 32  # queries, and near rows of each
    assert failure == pytest.approx(0.75 + np.sqrt(np.log(40) / (2 * pairs)), rel=1e-12)


def test_cosines_of_near_rows_are_those_of_what_the_components_leave() -> None:
    rows, kernel = histograms(300, 12, seed=1), make_kernel("chi2")
    model = KpcaBoundSpec(n_landmarks=60, n_components=8).fit(SourceVectors(Rows(rows)), kernel)
    prepared, landmarks = (
        reference.prepare("chi2", rows),
        reference.prepare("chi2", model["landmarks"]),
    )
    points = (
        reference.kernel("chi2", prepared, landmarks)
        @ model["projection"][:, : model["centre"].size]
    )
    scores = reference.kernel("chi2", prepared, prepared)
    left = np.sqrt(1 - (points**2).sum(axis=1))
    cosines: list[float] = []
    for query in range(64):
        others = np.where(np.arange(300) == query, -np.inf, scores[query])
        near = np.argsort(-others, kind="stable")[:32]
        cosines += (
            (scores[query, near] - points[near] @ points[query]) / (left[query] * left[near])
        ).tolist()
    values = kernel.prepare(rows)
    sample = Sample(
        landmark_scores(kernel, values, model["landmarks"]), sample_scores(kernel, values)
    )
    expected = np.quantile(cosines, np.linspace(0, 1, 257))
    np.testing.assert_allclose(Projected(model).near_cosines(sample), expected, rtol=0, atol=1e-6)

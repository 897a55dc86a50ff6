"""Transformer, classifier and regressor: those of scikit-learn under Euclid, votes by hand else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.cluster import DBSCAN
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    KNeighborsTransformer,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

import mercore
from mercore import (
    KernelNeighbors,
    KernelNeighborsClassifier,
    KernelNeighborsRegressor,
    KernelNeighborsTransformer,
)
from mercore.stores.errors import InputError
from mercore.testing.stores import histograms

ROWS, QUERIES = histograms(300, 12, seed=1), histograms(40, 12, seed=2)
CLASSES = np.array(["a", "b", "c"])[np.random.default_rng(0).integers(3, size=300)]
TARGETS = np.random.default_rng(1).normal(size=(300, 2))


@pytest.mark.parametrize(
    "estimator",
    [KernelNeighborsClassifier(), KernelNeighborsRegressor(), KernelNeighborsTransformer()],
)
def test_scikit_learn_accepts_it(estimator: BaseEstimator) -> None:
    check_estimator(estimator, on_skip=None)


@pytest.mark.parametrize("weights", ["uniform", "distance", lambda d: np.exp(-d)])
def test_predictions_are_those_of_scikit_learn(weights: Any) -> None:
    rows, queries = ROWS.astype(np.float64), np.concatenate([QUERIES, ROWS[:5]]).astype(np.float64)
    for ours, theirs, y in (
        (KernelNeighborsClassifier, KNeighborsClassifier, CLASSES),
        (KernelNeighborsRegressor, KNeighborsRegressor, TARGETS),
        (KernelNeighborsRegressor, KNeighborsRegressor, TARGETS[:, 0]),
    ):
        found = ours(7, weights=weights).fit(rows, y)
        expected = theirs(7, weights=weights, algorithm="brute").fit(rows, y)
        for method in ("predict", "predict_proba"):
            if hasattr(expected, method):
                values = getattr(found, method)(queries), getattr(expected, method)(queries)
                if values[0].dtype.kind == "f":
                    np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-6)
                else:
                    np.testing.assert_array_equal(*values)
        assert found.score(queries[-5:], y[:5]) == pytest.approx(
            expected.score(queries[-5:], y[:5]), rel=1e-4
        )


@pytest.mark.parametrize("encoder", [None, "bin-bound:groups=8"])
def test_votes_by_the_kernel(encoder: str | None) -> None:
    nearest = KernelNeighbors(5, kernel="chi2", encoder=encoder).fit(ROWS)
    distances, ids = nearest.kneighbors(QUERIES)
    votes = np.array([[(1 - d**2 / 2)[CLASSES[i] == c].sum() for c in "abc"]
                      for d, i in zip(distances, ids, strict=True)])  # fmt: skip
    options: Any = {"kernel": "chi2", "weights": "kernel", "encoder": encoder}
    model = KernelNeighborsClassifier(5, **options).fit(ROWS, CLASSES)
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    np.testing.assert_allclose(model.predict_proba(QUERIES), votes / votes.sum(1, keepdims=True))
    np.testing.assert_array_equal(model.predict(QUERIES), model.classes_[votes.argmax(1)])
    weights = 1 - distances**2 / 2
    means = np.einsum("qk,qkt->qt", weights, TARGETS[ids]) / weights.sum(1, keepdims=True)
    regressor = KernelNeighborsRegressor(5, **options).fit(ROWS, TARGETS)
    np.testing.assert_allclose(regressor.predict(QUERIES), means)


def test_the_graph_is_that_of_scikit_learn_and_feeds_other_estimators() -> None:
    rows = ROWS.astype(np.float64)
    for mode in ("distance", "connectivity"):
        ours = KernelNeighborsTransformer(4, mode=mode).fit_transform(rows)
        theirs = KNeighborsTransformer(n_neighbors=4, mode=mode).fit_transform(rows)
        np.testing.assert_allclose(ours.toarray(), theirs.toarray(), rtol=1e-4, atol=1e-4)
    graph = KernelNeighborsTransformer(40, kernel="chi2")
    labels = make_pipeline(graph, DBSCAN(eps=0.5, metric="precomputed")).fit_predict(ROWS)
    assert len(labels) == 300


def test_a_pipeline_is_chosen_by_cross_validation() -> None:
    rows, classes = load_digits(return_X_y=True)
    model = make_pipeline(MinMaxScaler(), KernelNeighborsClassifier(kernel="intersection"))
    grid = {"kernelneighborsclassifier__n_neighbors": [1, 5]}
    search = GridSearchCV(model, grid, cv=2).fit(rows[:400], classes[:400])
    assert search.score(rows[400:800], classes[400:800]) > 0.85


def test_a_store_is_labelled_by_id(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[[0, 7]] = 0
    mercore.ingest(rows, tmp_path / "v", drop_zero_rows=True)
    kept = np.delete(np.arange(300), [0, 7])
    stored = KernelNeighborsClassifier(3, kernel="chi2").fit(tmp_path / "v", CLASSES)
    expected = KernelNeighborsClassifier(3, kernel="chi2").fit(rows[kept], CLASSES[kept])
    np.testing.assert_array_equal(stored.predict(QUERIES), expected.predict(QUERIES))
    with pytest.raises(InputError, match="y has 298 targets: expected 300"):
        KernelNeighborsClassifier(kernel="chi2").fit(tmp_path / "v", CLASSES[kept])


def test_what_does_not_fit_is_refused() -> None:
    for weights, message in (("near", "weights is 'near'"), ("kernel", "K\\(x, x\\) = 1")):
        model = KernelNeighborsClassifier(weights=weights).fit(ROWS, CLASSES)
        with pytest.raises(InputError, match=message):
            model.predict(QUERIES)

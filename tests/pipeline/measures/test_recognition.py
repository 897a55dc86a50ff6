"""Recognition, coverage and overlap against slow forms in plain Python, and what is refused."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.measures import checks
from mercore.pipeline.measures.coverage import coverage, coverages
from mercore.pipeline.measures.overlap import (
    NearPairs,
    Overlap,
    hamming_distances,
    overlap,
    threshold_score,
)
from mercore.pipeline.measures.recall import Recall, k_recall
from mercore.pipeline.measures.recognition import Classifier, recognition_rate, recognition_rates
from mercore.stores.errors import InputError, ShapeError
from mercore.testing.cases import loop_over
from tests.independent import measures as slow_forms

Ids = NDArray[np.int64]
BITS = 5


@dataclass(frozen=True, kw_only=True)
class Found:
    ids: Ids
    scores: NDArray[Any] | None = None


def ids(*rows: list[int]) -> Ids:
    return np.array(rows, dtype=np.int64)


def draw_ids(draw: st.DrawFn, nq: int, most: int = 8) -> Ids:
    """Ids of few rows, so that they meet and repeat; some are absent."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(-1, most, (nq, draw(st.integers(1, 8))))


@st.composite
def labelled(draw: st.DrawFn) -> tuple[Ids, Ids, Ids]:
    """Hits, labels of rows and labels of queries: few labels, so that many are equally frequent."""
    found = draw_ids(draw, draw(st.integers(1, 6)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    names = np.array([-7, 0, 3, 2**40])
    return found, names[rng.integers(0, 3, 8)], names[rng.integers(0, 4, len(found))]


@st.composite
def sides(draw: st.DrawFn) -> tuple[Ids, Ids]:
    """Returned and true ids of different widths."""
    nq = draw(st.integers(1, 6))
    return draw_ids(draw, nq), draw_ids(draw, nq)


@st.composite
def hashed(draw: st.DrawFn) -> tuple[Ids, Ids, NDArray[np.float64]]:
    """Hits, their Hamming distances, and true scores of few values, so that some tie."""
    found = draw_ids(draw, draw(st.integers(1, 6)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return found, rng.integers(0, BITS + 1, found.shape), rng.integers(0, 5, found.shape) / 4


# Recognition


@given(labelled())
@pytest.mark.promise("Recognition, coverage and overlap follow the papers")
def test_recognition_rates_equal_their_slow_form(case: tuple[Ids, Ids, Ids]) -> None:
    found, labels, query_labels = case
    for k in range(1, found.shape[1] + 1):
        classifier = Classifier(labels=labels, query_labels=query_labels, neighbours=k)
        for r in range(1, k + 1):
            slow = slow_forms.recognition_rate(
                found.tolist(), labels.tolist(), query_labels.tolist(), k=k, r=r
            )
            assert recognition_rate(found, classifier, r) == pytest.approx(slow)


def test_of_equally_frequent_labels_the_one_met_first_wins() -> None:
    labels = np.array([7, 7, 9, 9])
    for hits, winner in (([2, 0, 1, 3], 9), ([0, 2, 3, 1], 7)):
        for label in (7, 9):
            classifier = Classifier(labels=labels, query_labels=np.array([label]), neighbours=4)
            assert recognition_rate(ids(hits), classifier, 1) == (label == winner)
            assert recognition_rate(ids(hits), classifier, 2) == 1


def test_a_query_without_hits_or_with_an_unknown_label_is_not_recognised() -> None:
    classifier = Classifier(labels=np.array([1, 2]), query_labels=np.array([1, 3]), neighbours=2)
    assert recognition_rate(ids([-1, -1], [0, 1]), classifier, 2) == 0


def test_recognition_rates_are_given_up_to_the_neighbours_that_vote() -> None:
    found = ids([0, 1, 1], [1, 0, 1])
    classifier = Classifier(labels=np.array([4, 5]), query_labels=np.array([4, 4]), neighbours=2)
    rates = recognition_rates(found, classifier, [2, 1, 2, 100])
    assert rates == [
        Recall(definition="recognition", rank=1, value=0.5, queries=2),
        Recall(definition="recognition", rank=2, value=1.0, queries=2),
    ]
    assert [each.rank for each in recognition_rates(found, classifier)] == [1]
    assert all(type(each.value) is float for each in rates)


# Coverage


@given(sides())
@pytest.mark.promise("Recognition, coverage and overlap follow the papers")
def test_coverage_equals_its_slow_form(case: tuple[Ids, Ids]) -> None:
    found, true = case
    for n in range(1, found.shape[1] + 1):
        for r in range(1, true.shape[1] + 1):
            slow = slow_forms.coverage(found.tolist(), true.tolist(), n, r)
            assert coverage(found, true, n, r) == pytest.approx(slow)
            if n == r:
                assert coverage(found, true, n, r) == k_recall(found, true, n)


def test_coverages_are_given_at_the_ranks_of_the_truth() -> None:
    found, true = ids([4, 8, 1, 2]), ids([1, 4, 8])
    assert coverages(found, true, [1, 2], [1, 3, 4]) == [
        Recall(definition="coverage-1", rank=1, value=0.0, queries=1),
        Recall(definition="coverage-1", rank=3, value=1.0, queries=1),
        Recall(definition="coverage-2", rank=1, value=0.0, queries=1),
        Recall(definition="coverage-2", rank=3, value=1.0, queries=1),
    ]


# Overlap


@given(hashed(), st.integers(0, BITS), st.sampled_from([0.0, 0.25, 0.6, 1.0]))
@pytest.mark.promise("Recognition, coverage and overlap follow the papers")
def test_overlap_equals_its_slow_form(
    case: tuple[Ids, Ids, NDArray[np.float64]], radius: int, threshold: float
) -> None:
    found, distances, scores = case
    slow = slow_forms.overlap(
        found.tolist(), distances.tolist(), scores.tolist(), radius=radius, threshold=threshold
    )
    for rows, cut in ((100, slow[2]), (found.shape[1], 0)):
        near = NearPairs(distances=distances, radius=radius, threshold=threshold, rows=rows)
        assert overlap(Found(ids=found, scores=scores), near) == Overlap(
            definition=f"overlap-{radius}",
            rank=found.shape[1],
            value=slow[0] / slow[1] if slow[1] else None,
            queries=len(found),
            pairs=slow[1],
            queries_cut=cut,
        )


@given(hashed(), st.sampled_from([np.float32, np.float64]))
def test_distances_are_read_from_scores(
    case: tuple[Ids, Ids, NDArray[np.float64]], dtype: type[Any]
) -> None:
    found, distances, _ = case
    for bits in (BITS, 300, 4096):
        scores = np.where(found >= 0, 1 - distances / bits, -np.inf).astype(dtype)
        read = hamming_distances(Found(ids=found, scores=scores), bits)
        np.testing.assert_array_equal(read, np.where(found >= 0, distances, -1))


def test_every_distance_of_the_longest_code_is_read() -> None:
    distances = np.arange(4097)
    scores = (1 - distances / 4096).astype(np.float32)
    found = Found(ids=distances[None], scores=scores[None])
    np.testing.assert_array_equal(hamming_distances(found, 4096), distances[None])


def test_the_threshold_is_the_score_at_the_mean_distance() -> None:
    scores = np.array([[1.0, 0.9, 0.5], [0.8, 0.82 - 0.1, 0.1]])
    true = Found(ids=np.arange(6).reshape(2, 3), scores=scores)
    for neighbour in (1, 2, 3):
        distances = [math.sqrt(2 - 2 * row[neighbour - 1]) for row in scores.tolist()]
        slow = 1 - (sum(distances) / 2) ** 2 / 2
        assert threshold_score(true, neighbour) == pytest.approx(slow)


@loop_over("score", [0.1, 0.3, 0.7, 1.0, np.float32(0.9).item()])
def test_a_hit_exactly_at_the_threshold_is_true(score: float) -> None:
    true = Found(ids=np.zeros((7, 1), np.int64), scores=np.full((7, 1), score))
    near = NearPairs(
        distances=np.zeros((7, 1), np.int64), radius=3, threshold=threshold_score(true, 1), rows=9
    )
    assert overlap(true, near).value == 1


# Blocks


def test_the_size_of_a_block_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    found, true = rng.integers(-1, 8, (37, 6)), rng.integers(-1, 8, (37, 5))
    classifier = Classifier(labels=rng.integers(0, 3, 8), query_labels=rng.integers(0, 3, 37))

    def measure() -> list[Recall]:
        ranks = range(1, 6)
        return recognition_rates(found, classifier, ranks) + coverages(found, true, [2, 6], ranks)

    whole = measure()
    for cells in (1, 20, 50):
        monkeypatch.setattr(checks, "BLOCK_IDS", cells)
        assert measure() == whole


# What is refused


def refused(error: type[Exception], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()


def classify(found: Ids, *, labels: int = 9, queries: int = 1, k: int = 2, r: int = 1) -> float:
    classifier = Classifier(
        labels=np.zeros(labels, np.int64), query_labels=np.zeros(queries, np.int64), neighbours=k
    )
    return recognition_rate(found, classifier, r)


def test_labels_that_do_not_fit_are_refused() -> None:
    for k in (0, 3):
        message = (
            f"neighbours is out of range: found {k}, expected 1 to 2, the returned neighbours of a "
            "query. Fix: neighbours=2, or search with a greater k."
        )
        refused(ShapeError, message, lambda k=k: classify(ids([1, 2]), k=k))  # type: ignore[misc]
    message = (
        "the query labels do not fit the hits: found 3 labels, expected 1, one per query. Fix: "
        "give the labels of these queries."
    )
    refused(ShapeError, message, lambda: classify(ids([1, 2]), queries=3))
    message = (
        "a returned id has no label: found row 9, expected a row below 9, the number of labels; "
        "query 0, rank 2. Fix: give one label per row of the vectors that were searched."
    )
    refused(InputError, message, lambda: classify(ids([1, 9])))
    for r in (0, 3):
        message = (
            f"the rank is out of range: found {r}, expected 1 to 2, the neighbours that vote. Fix: "
            "ask for a rank within it, or let more neighbours vote."
        )
        refused(ShapeError, message, lambda r=r: classify(ids([1, 2]), r=r))  # type: ignore[misc]


def test_coverage_beyond_a_side_is_refused() -> None:
    message = (
        "the rank is out of range: found 3, expected 1 to 2, the {side} neighbours of a query. "
        "Fix: ask for a rank within it, or give more {side} neighbours."
    )
    short = ids([1, 2])
    refused(ShapeError, message.format(side="returned"), lambda: coverage(short, short, 3, 1))
    refused(ShapeError, message.format(side="true"), lambda: coverage(short, short, 1, 3))


@loop_over("score", [0.55, 1.25, -0.25])
def test_scores_of_no_binary_code_are_refused(score: float) -> None:
    message = (
        f"a score is no share of equal bits: found {score}, expected 1 − h / 8 for a whole h; "
        "query 0, rank 2. Fix: give hits of a search of these codes without rerank."
    )
    found = Found(ids=ids([1, 2]), scores=np.array([[0.5, score]]))
    refused(InputError, message, lambda: hamming_distances(found, 8))


def test_a_truth_that_is_too_short_is_refused() -> None:
    message = (
        "the truth is too short: found {}, expected at least 50. Fix: search for 50 true "
        "neighbours: k=50."
    )
    short = Found(ids=np.arange(49)[None], scores=np.ones((1, 49)))
    refused(ShapeError, message.format("49 neighbours of a query"), lambda: threshold_score(short))
    absent = Found(ids=np.arange(50)[None].copy(), scores=np.ones((1, 50)))
    absent.ids[0, 47:] = -1
    refused(InputError, message.format("47 neighbours of query 0"), lambda: threshold_score(absent))


def test_distances_of_other_hits_are_refused() -> None:
    near = NearPairs(distances=ids([1]), radius=1, threshold=0.5, rows=9)
    message = (
        "the distances do not fit the hits: found shape (1, 1), expected (1, 2). Fix: give the "
        "distances of these hits."
    )
    found = Found(ids=ids([1, 2]), scores=np.ones((1, 2)))
    refused(ShapeError, message, lambda: overlap(found, near))

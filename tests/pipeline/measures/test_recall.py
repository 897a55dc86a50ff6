"""Recall by each definition: by hand, against the slow forms, and what is refused."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.measures import checks
from mercore.pipeline.measures.recall import (
    Evaluation,
    Recall,
    aska_recall,
    evaluate,
    k_recall,
    texmex_recall,
    tie_aware_recall,
)
from mercore.stores.errors import InputError, ShapeError
from mercore.testing.cases import loop_over
from tests.independent import reference

Ids = NDArray[np.int64]
Scores = NDArray[np.floating]
DEFINITIONS = ("k-recall", "texmex", "aska", "tie-aware")


@dataclass(frozen=True, kw_only=True)
class Found:
    ids: Ids
    scores: Scores | None = None


def ids(*rows: list[int]) -> Ids:
    return np.array(rows, dtype=np.int64)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Ids, Ids]:
    """Both sides' ids, few enough to meet often; absent and repeated ones anywhere."""
    nq, k, kt = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return rng.integers(-1, 7, (nq, k)), rng.integers(-1, 7, (nq, kt))


@st.composite
def scored(draw: st.DrawFn) -> tuple[Found, Found, int]:
    """A truth over a handful of scores, so that ties abound, and a result with the true scores of
    its ids."""
    nq, n = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scores = rng.integers(0, 4, (nq, n)) / 4
    best, order = reference.top_k(scores, n)
    absent = draw(st.integers(0, n))
    order[:, n - absent :], best[:, n - absent :] = -1, np.nan
    returned = rng.integers(-1, n, (nq, draw(st.integers(1, n))))
    theirs = np.where(
        returned >= 0, np.take_along_axis(scores, np.maximum(returned, 0), axis=1), np.nan
    )
    k = draw(st.integers(1, returned.shape[1]))
    return Found(ids=returned, scores=theirs), Found(ids=order, scores=best), k


# By hand


def test_k_recall_counts_the_shared_ids_whatever_their_order() -> None:
    assert k_recall(ids([7, 3, 9]), ids([9, 7, 5]), 3) == 2 / 3
    assert k_recall(ids([7, 3, 9]), ids([9, 7, 5]), 2) == 1 / 2
    assert k_recall(ids([1, 2], [3, 4]), ids([2, 1], [5, 6]), 2) == 1 / 2


def test_texmex_recall_looks_for_the_true_first() -> None:
    returned, true = ids([4, 8, 1], [2, 3, 5]), ids([1, 4], [2, 9])
    assert [texmex_recall(returned, true, r) for r in (1, 2, 3)] == [0.5, 0.5, 1.0]


def test_aska_recall_looks_for_the_returned_first() -> None:
    returned, true = ids([4, 8], [2, 3]), ids([1, 4, 8], [2, 9, 3])
    assert [aska_recall(returned, true, r) for r in (1, 2, 3)] == [0.5, 1.0, 1.0]


def test_a_tie_counts_where_ids_alone_would_not() -> None:
    returned = Found(ids=ids([0, 5]), scores=np.array([[0.9, 0.5]]))
    true = Found(ids=ids([0, 3]), scores=np.array([[0.9, 0.5]]))
    assert k_recall(returned.ids, true.ids, 2) == 0.5
    assert tie_aware_recall(returned, true, 2) == 1.0


def test_absent_ids_match_nothing_not_even_each_other() -> None:
    nobody, some = ids([-1, -1]), ids([-1, 4])
    assert (
        k_recall(nobody, nobody, 2)
        == texmex_recall(nobody, nobody, 2)
        == aska_recall(nobody, nobody, 2)
        == 0
    )
    assert k_recall(some, some, 2) == 0.5
    assert texmex_recall(some, some, 2) == aska_recall(some, some, 2) == 0


def test_an_absent_row_never_reaches_the_threshold() -> None:
    returned = Found(ids=ids([-1, 4]), scores=np.array([[1.0, 0.5]]))
    true = Found(ids=ids([4, 6]), scores=np.array([[0.5, 0.5]]))
    assert tie_aware_recall(returned, true, 2) == 0.5


def test_a_truth_with_nobody_is_reached_by_nobody() -> None:
    returned = Found(ids=ids([4]), scores=np.array([[1.0]]))
    true = Found(ids=ids([-1]), scores=np.array([[np.nan]]))
    assert tie_aware_recall(returned, true, 1) == 0


@loop_over("filler", [0.0, 9.0, np.inf, -np.inf, np.nan])
def test_whatever_stands_beside_an_absent_id_is_not_read(filler: float) -> None:
    returned = Found(ids=ids([4, -1, 6]), scores=np.array([[-0.5, filler, -0.75]]))
    true = Found(ids=ids([-1, 4, -1]), scores=np.array([[filler, -0.5, filler]]))
    assert tie_aware_recall(returned, true, 3) == 1 / 3


def test_a_repeated_id_counts_where_it_stands_first() -> None:
    n = 300  # long and mixed enough for an unstable sort to show
    repeated = np.random.default_rng(0).integers(0, 5, (1, n))
    falling = np.ones((1, n))
    for i in range(5):
        falling[repeated == i] = np.linspace(1, 0, int((repeated == i).sum()))
    true = Found(ids=np.arange(n)[None, :], scores=np.ones((1, n)))
    assert tie_aware_recall(Found(ids=repeated, scores=falling), true, n) == 5 / n
    assert tie_aware_recall(Found(ids=repeated[:, ::-1], scores=falling[:, ::-1]), true, n) == 0


def test_repeated_ids_count_once() -> None:
    returned, true = ids([4, 4, 4, 1]), ids([4, 1, 2, 2])
    assert k_recall(returned, true, 3) == 1 / 3
    assert k_recall(returned, true, 4) == 1 / 2
    same = Found(ids=returned, scores=np.ones((1, 4)))
    assert tie_aware_recall(same, Found(ids=true, scores=np.ones((1, 4))), 4) == 1 / 2


@pytest.mark.parametrize("swap", [False, True])
def test_a_true_neighbour_stored_as_float32_is_not_lost_to_rounding(swap: bool) -> None:
    exact = np.array([[0.7, 0.3]])  # float32 rounds the first down, the second up
    stored = exact.astype(np.float32)
    assert stored[0, 0] < exact[0, 0]
    assert stored[0, 1] > exact[0, 1]
    one, other = Found(ids=ids([4, 5]), scores=stored), Found(ids=ids([4, 5]), scores=exact)
    returned, true = (other, one) if swap else (one, other)
    assert tie_aware_recall(returned, true, 1) == tie_aware_recall(returned, true, 2) == 1


# Against the slow forms


@given(pairs())
@pytest.mark.promise("Recall follows its four definitions")
def test_recalls_by_ids_equal_their_slow_forms(pair: tuple[Ids, Ids]) -> None:
    returned, true = pair
    k, kt = returned.shape[1], true.shape[1]
    for rank in range(1, min(k, kt) + 1):
        assert k_recall(returned, true, rank) == pytest.approx(
            reference.k_recall(returned, true, rank)
        )
    for rank in range(1, k + 1):
        assert texmex_recall(returned, true, rank) == pytest.approx(
            reference.texmex_recall(returned, true, rank)
        )
    for rank in range(1, kt + 1):
        assert aska_recall(returned, true, rank) == pytest.approx(
            reference.aska_recall(returned, true, rank)
        )


@given(scored())
@pytest.mark.promise("Recall follows its four definitions")
def test_tie_aware_recall_equals_its_slow_form(case: tuple[Found, Found, int]) -> None:
    returned, true, k = case
    assert returned.scores is not None
    assert true.scores is not None
    slow = reference.tie_aware_recall(returned.ids, returned.scores, true.ids, true.scores, k)  # type: ignore[arg-type]
    assert tie_aware_recall(returned, true, k) == pytest.approx(slow)


@given(scored())
def test_tie_aware_recall_is_at_least_k_recall(case: tuple[Found, Found, int]) -> None:
    returned, true, k = case
    assert tie_aware_recall(returned, true, k) >= k_recall(returned.ids, true.ids, k)


@given(pairs())
def test_recalls_lie_between_0_and_1_and_agree_at_rank_1(pair: tuple[Ids, Ids]) -> None:
    returned, true = pair
    assert (
        k_recall(returned, true, 1)
        == texmex_recall(returned, true, 1)
        == aska_recall(returned, true, 1)
    )
    assert all(
        0 <= recall.value <= 1 for recall in evaluate(Found(ids=returned), Found(ids=true)).recalls
    )


@given(scored())
def test_the_truth_is_its_own_recall_of_1(case: tuple[Found, Found, int]) -> None:
    _, true, _ = case
    if (true.ids >= 0).all():
        recalls = evaluate(true, true, range(1, true.ids.shape[1] + 1), exact_scores=True).recalls
        assert {recall.value for recall in recalls} == {1.0}


def test_the_size_of_a_block_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 5, (37, 8)) / 4
    best, order = reference.top_k(scores, 8)
    returned = rng.integers(-1, 8, (37, 6))
    theirs = np.take_along_axis(scores, np.maximum(returned, 0), axis=1)
    arguments = Found(ids=returned, scores=theirs), Found(ids=order, scores=best), range(1, 9)
    whole = evaluate(*arguments, exact_scores=True)
    for cells in (1, 20, 50):
        monkeypatch.setattr(checks, "BLOCK_IDS", cells)
        assert evaluate(*arguments, exact_scores=True) == whole


# The table


def test_evaluate_gives_the_ranks_that_each_side_holds() -> None:
    returned, true = Found(ids=ids([4, 8, 1])), Found(ids=ids([1, 4]))
    got = evaluate(returned, true, [3, 1, 2, 2])
    assert [(recall.definition, recall.rank, recall.value) for recall in got.recalls] == [
        ("k-recall", 1, 0.0),
        ("k-recall", 2, 0.5),
        ("texmex", 1, 0.0),
        ("texmex", 2, 0.0),
        ("texmex", 3, 1.0),
        ("aska", 1, 0.0),
        ("aska", 2, 1.0),
    ]


def test_evaluate_without_ranks_takes_the_usual_ones() -> None:
    both = Found(ids=np.arange(100)[None, :].copy())
    recalls = evaluate(both, both).recalls
    assert [recall.rank for recall in recalls] == [1, 10, 100] * 3


def test_tie_aware_needs_both_scores_and_the_word_that_they_are_exact() -> None:
    bare, full = Found(ids=ids([1])), Found(ids=ids([1]), scores=np.array([[0.5]]))
    combinations = [(full, full, True), (full, full, False), (bare, full, True), (full, bare, True)]
    offered = [
        "tie-aware"
        in {recall.definition for recall in evaluate(returned, true, exact_scores=exact).recalls}
        for returned, true, exact in combinations
    ]
    assert offered == [True, False, False, False]


def test_an_evaluation_is_plain_data_whose_definitions_have_meanings() -> None:
    full = Found(ids=ids([1], [2]), scores=np.array([[0.5], [0.25]], dtype=np.float32))
    got = evaluate(full, full, exact_scores=True)
    assert got == Evaluation(
        queries=2,
        recalls=tuple(
            Recall(definition=name, rank=1, value=1.0, queries=2) for name in DEFINITIONS
        ),
    )
    assert asdict(got)["recalls"][0] == {
        "definition": "k-recall",
        "rank": 1,
        "value": 1.0,
        "queries": 2,
    }
    assert all(type(recall.value) is float for recall in got.recalls)


def test_narrower_ids_are_widened() -> None:
    narrow = np.array([[3, 1]], dtype=np.uint32)
    assert k_recall(narrow, ids([1, 2]), 2) == 0.5  # type: ignore[arg-type]


# What is refused


def refused(error: type[Exception], message: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize("measure", [k_recall, texmex_recall, aska_recall])
def test_different_numbers_of_queries_are_refused(
    measure: Callable[[Ids, Ids, int], float],
) -> None:
    message = (
        "the two sides answer different numbers of queries: found 2 returned and 1 true, "
        "expected equal. "
        "Fix: give the true neighbours of the queries that were searched."
    )
    refused(ShapeError, message, lambda: measure(ids([1], [2]), ids([1]), 1))
    refused(ShapeError, message, lambda: evaluate(Found(ids=ids([1], [2])), Found(ids=ids([1]))))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3,)])
def test_a_side_without_neighbours_is_refused(shape: tuple[int, ...]) -> None:
    empty = np.zeros(shape, dtype=np.int64)
    message = (
        "the {} ids are not a table of neighbours: found shape {}, expected (nq, k), each ≥ 1. "
        "Fix: give one line of ids per query."
    )
    some = ids([1], [2], [3])
    refused(ShapeError, message.format("returned", shape), lambda: k_recall(empty, some, 1))
    refused(
        ShapeError,
        message.format("true", shape),
        lambda: evaluate(Found(ids=some), Found(ids=empty)),
    )


@pytest.mark.parametrize("rank", [0, -1, 3])
def test_a_rank_that_is_not_held_is_refused(rank: int) -> None:
    short, long = ids([1, 2]), ids([1, 2, 3])
    message = (
        "the rank is out of range: found {}, expected 1 to 2, the {side} neighbours of a query. "
        "Fix: ask for a rank within it, or give more {side} neighbours."
    )
    refused(ShapeError, message.format(rank, side="returned"), lambda: k_recall(short, long, rank))
    refused(ShapeError, message.format(rank, side="true"), lambda: k_recall(long, short, rank))
    refused(
        ShapeError, message.format(rank, side="returned"), lambda: texmex_recall(short, long, rank)
    )
    refused(ShapeError, message.format(rank, side="true"), lambda: aska_recall(long, short, rank))


@pytest.mark.parametrize(("ranks", "told"), [([0, 1], "0"), ([1, 4, 9], "4, 9"), ([], "none")])
def test_ranks_that_neither_side_holds_are_refused(ranks: list[int], told: str) -> None:
    message = (
        f"the ranks are out of range: found {told}, expected 1 to 3, the most neighbours of a "
        "query "
        "that either side holds. Fix: ask for ranks within it, or search with a greater k."
    )
    refused(
        ShapeError,
        message,
        lambda: evaluate(Found(ids=ids([1, 2])), Found(ids=ids([1, 2, 3])), ranks),
    )


def test_ids_that_are_no_row_numbers_are_refused() -> None:
    message = (
        "a true id is not a row number: found -7, expected 0 or more, or -1 for an absent one; "
        "query 1, rank 2. "
        "Fix: write the file again as int64 ids."
    )
    refused(InputError, message, lambda: k_recall(ids([1, 2], [3, 4]), ids([1, 2], [3, -7]), 1))
    message = (
        "the returned ids have the wrong type: found float32, expected int64. Fix: give "
        "row numbers, not scores."
    )
    wrong = np.ones((1, 1), dtype=np.float32)
    refused(InputError, message, lambda: k_recall(wrong, ids([1]), 1))  # type: ignore[arg-type]


def test_scores_that_are_missing_or_misshapen_are_refused() -> None:
    full = Found(ids=ids([1]), scores=np.array([[0.5]]))
    message = (
        "the true neighbours have no scores: found ids alone, expected both. "
        "Fix: give a file that holds scores, or use a definition of recall by ids."
    )
    refused(InputError, message, lambda: tie_aware_recall(full, Found(ids=ids([1])), 1))
    message = (
        "the returned scores do not fit their ids: found shape (1, 2), expected (1, 1). "
        "Fix: give the scores that belong to these ids."
    )
    wide = Found(ids=ids([1]), scores=np.array([[0.5, 0.4]]))
    refused(ShapeError, message, lambda: tie_aware_recall(wide, full, 1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_refused_with_its_place(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "BLOCK_IDS", 2)
    good = Found(ids=ids([1, 2], [3, 4]), scores=np.full((2, 2), 0.5))
    bad = Found(ids=good.ids, scores=np.array([[0.5, 0.5], [0.5, value]]))
    message = (
        f"a returned score is not finite: found {value}, expected a kernel value; query 1, rank 2. "
        "Fix: compute the scores again."
    )
    refused(InputError, message, lambda: tie_aware_recall(bad, good, 1))


def test_distances_in_place_of_scores_are_refused_with_their_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "BLOCK_IDS", 2)
    good = Found(ids=ids([1, 2], [3, 4]), scores=np.full((2, 2), 0.5))
    rising = Found(ids=good.ids, scores=np.array([[0.5, 0.5], [0.25, 0.75]]))
    message = (
        "the true scores rise: found 0.25 before 0.75, expected descending kernel values; query "
        "1, rank 1. "
        "Fix: give kernel values, best first, not distances."
    )
    refused(InputError, message, lambda: tie_aware_recall(good, rising, 2))

"""Near ties are ordered by decimals: whatever float64 made of them, and by row where real scores
are equal."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.pipeline.kernels.decimals import decimal_score
from mercore.pipeline.kernels.sums import Chi2
from mercore.pipeline.search import ties as deciding
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.ties import Candidates, ResolvedTopK, order_near_equal, resolve_ties
from mercore.stores.rows import SourceVectors
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows, histograms
from tests.independent import exact_truth
from tests.support.adversarial import adversary

KERNELS = ("chi2", "intersection", "hellinger", "jensen_shannon", "cosine", "rbf")
N, NQ, K = 40, 3, 7
each_kernel = pytest.mark.parametrize("name", KERNELS)


class Plain(Chi2):
    """A kernel without a formula in decimals."""

    name = "plain"
    shared_terms = False

    def decimal(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        return None


def kernel_of(name: str) -> Kernel:
    return make_kernel(name, gamma=1.0 if name == "rbf" else None)


def scorer_of(kernel: Kernel, rows: NDArray[Any]) -> ExactScorer:
    return ExactScorer(vectors=SourceVectors(Rows(rows)), kernel=kernel)


def candidates(
    kernel: Kernel, rows: NDArray[Any], queries: NDArray[Any], *, noise: int | None = None
) -> Candidates:
    """Every pair in disorder, its score off by nearly as much as one may be: that of equal rows the
    same."""
    rng = np.random.default_rng(noise)
    scores = kernel.exact(kernel.prepare(queries), np.ascontiguousarray(kernel.prepare(rows).T))
    if noise is not None:
        error = 0.4 * kernel.exact_error(rows.shape[1])
        distinct, place = np.unique(rows, axis=0, return_inverse=True)
        scores += rng.choice([-error, 0, error], (len(queries), len(distinct)))[:, place.ravel()]
    order = rng.permutation(scores.size)
    of, at = np.divmod(order, len(rows))
    return Candidates(of, at, scores.ravel()[order])


def resolved(
    kernel: Kernel, rows: NDArray[Any], queries: NDArray[Any], k: int, *, noise: int | None = None
) -> ResolvedTopK:
    return resolve_ties(
        scorer_of(kernel, rows),
        queries,
        candidates(kernel, rows, queries, noise=noise),
        k,
        rows.__getitem__,
    )


@each_kernel
@loop_over("adversary_name", ["one ulp apart", "permuted", "small counts", "duplicated"])
@loop_over("noise", [None, 1, 2])
@pytest.mark.promise("Decimals decide what float64 leaves open; equal scores go to the lower id")
def test_the_order_is_that_of_real_scores(
    name: str, adversary_name: str, noise: int | None
) -> None:
    kernel, found = kernel_of(name), adversary(adversary_name, N, NQ, seed=4)
    result = resolved(kernel, found.rows, found.queries, K, noise=noise)
    np.testing.assert_array_equal(
        result.ids, exact_truth.nearest(name, found.rows, found.queries, K)
    )
    assert (np.diff(result.scores, axis=1) <= 0).all()
    error = kernel.exact_error(found.rows.shape[1])
    for ids, scores, query in zip(result.ids, result.scores, found.queries, strict=True):
        for row, score in zip(ids, scores, strict=True):
            real = decimal_score(kernel, found.rows[row], query)
            assert real is not None
            assert abs(float(real) - score) <= 1.4 * error


@each_kernel
@loop_over("raw_bytes", [1, 500, 3_000])
def test_as_few_rows_at_a_time_as_memory_asks_for_change_no_order(
    name: str, raw_bytes: int
) -> None:
    kernel, found = kernel_of(name), adversary("one ulp apart", N, NQ, seed=4)
    expected = resolved(kernel, found.rows, found.queries, K, noise=1)
    with patch.object(deciding, "RAW_BYTES", raw_bytes):
        result = resolved(kernel, found.rows, found.queries, K, noise=1)
    for values, others in zip(result, expected, strict=True):
        np.testing.assert_array_equal(values, others)


@loop_over("k", [1, K, N])
def test_whole_scores_tie_where_they_are_equal(k: int) -> None:
    rng, kernel = np.random.default_rng(6), make_kernel("euclidean")
    rows, queries = rng.integers(0, 4, (N, 4), np.uint8), rng.integers(0, 4, (NQ, 4), np.uint8)
    squares = ((queries[:, None].astype(int) - rows) ** 2).sum(axis=2)
    order = np.argsort(squares, axis=1, kind="stable")
    with patch.object(deciding, "decimal_score", side_effect=AssertionError):
        result = resolved(kernel, rows, queries, k)
    np.testing.assert_array_equal(result.ids, order[:, :k])
    kth = np.take_along_axis(squares, order[:, k - 1 : k], axis=1)
    np.testing.assert_array_equal(result.ties, (squares <= kth).sum(axis=1) - k)


@each_kernel
@loop_over("noise", [None, 3])
@pytest.mark.promise("Decimals decide what float64 leaves open; equal scores go to the lower id")
def test_rows_of_one_real_score_tie_and_go_by_row(name: str, noise: int | None) -> None:
    found = adversary("permuted", N, NQ)
    for k in (1, K, N):
        result = resolved(kernel_of(name), found.rows, found.queries, k, noise=noise)
        np.testing.assert_array_equal(result.ids, np.tile(np.arange(k), (NQ, 1)))
        assert result.ties.tolist() == [N - k] * NQ
        assert (result.scores == result.scores[:, :1]).all()


def test_ties_are_counted_beyond_the_kth_alone() -> None:
    levels = histograms(4, 12, seed=1)
    kernel, queries = make_kernel("chi2"), levels[:1]
    order = np.argsort(
        -kernel.exact(kernel.prepare(queries), np.ascontiguousarray(kernel.prepare(levels).T))[0]
    )
    rows = levels[order][[3, 1, 0, 1, 2, 1, 0, 2, 1]]  # how near each is
    for k, ties in enumerate((1, 0, 3, 2, 1, 0, 1, 0, 0), 1):
        result = resolved(kernel, rows, queries, k)
        assert result.ids[0].tolist() == [2, 6, 1, 3, 5, 8, 4, 7, 0][:k]
        assert result.ties.tolist() == [ties]


def test_queries_have_candidates_of_their_own_number() -> None:
    rows, queries, kernel = (
        histograms(40, 12, seed=2),
        histograms(6, 12, seed=3),
        make_kernel("hellinger"),
    )
    every = candidates(kernel, rows, queries)
    scores = np.empty((6, 40))
    scores[every.queries, every.rows] = every.scores
    fewest = 3 + np.arange(6) * 5
    least = -np.take_along_axis(np.sort(-scores, axis=1), fewest[:, None], axis=1)[:, 0]
    kept = every.scores >= least[every.queries]
    some = Candidates(every.queries[kept], every.rows[kept], every.scores[kept])
    result = resolve_ties(scorer_of(kernel, rows), queries, some, 3, rows.__getitem__)
    np.testing.assert_array_equal(result.ids, np.argsort(-scores, axis=1)[:, :3])
    np.testing.assert_array_equal(result.scores, -np.sort(-scores, axis=1)[:, :3])


def test_decimals_are_not_asked_where_float64_proves_the_order() -> None:
    rows, queries = histograms(60, 12, seed=4), histograms(3, 12, seed=5)
    with patch.object(deciding, "decimal_score", side_effect=AssertionError):
        resolved(make_kernel("chi2"), rows, queries, 9)
        tied = np.concatenate([rows, rows])  # equal rows tie without them
        result = resolved(make_kernel("chi2"), tied, queries, 4)
    assert (result.ids[:, 1::2] == result.ids[:, ::2] + 60).all()
    assert result.ties.tolist() == [0, 0, 0]


def test_decimals_are_asked_of_the_first_k_alone() -> None:
    near = adversary("permuted", 40, 1)
    query = near.queries
    rows = np.concatenate([near.rows, query, query])  # the query itself is nearest
    with patch.object(deciding, "decimal_score", side_effect=AssertionError):
        assert resolved(make_kernel("chi2"), rows, query, 2).ids.tolist() == [[40, 41]]
        with pytest.raises(AssertionError):
            resolved(make_kernel("chi2"), rows, query, 3)


@pytest.mark.promise("Near-equal scores of a custom kernel are in the order of float64, and tie")
def test_without_a_formula_near_scores_are_in_the_order_of_float64_and_tie() -> None:
    found = adversary("permuted", N, NQ)
    rows, queries = found.rows, found.queries
    every = candidates(Plain(), rows, queries).ordered()
    result = resolve_ties(
        scorer_of(Plain(), rows), queries, candidates(Plain(), rows, queries), K, rows.__getitem__
    )
    np.testing.assert_array_equal(result.ids, every.rows.reshape(NQ, N)[:, :K])
    scores = every.scores.reshape(NQ, N)
    np.testing.assert_array_equal(result.scores, scores[:, :K])
    assert (
        result.ties.tolist() == [N - K] * NQ
    )  # so none of the order among them is said to be proved
    assert (result.ids != np.arange(K)).any()  # float64 does tell some of them apart


class TestSettle:
    """The order of one run."""

    def test_equal_rows_and_kernels_without_a_formula_are_left_alone(self) -> None:
        rows, query = histograms(3, 8), histograms(1, 8, seed=1)[0]
        ids = np.arange(3)
        assert order_near_equal(make_kernel("chi2"), [rows[[0, 0, 0]]], query, ids) is None
        assert order_near_equal(Plain(), [rows], query, ids) is None

    def test_the_best_comes_first_and_ties_go_by_id(self) -> None:
        rows, query = histograms(2, 8), histograms(1, 8, seed=1)[0]
        kernel = make_kernel("chi2")
        scores = [float(decimal_score(kernel, row, query) or 0) for row in rows]
        near, far = (0, 1) if scores[0] > scores[1] else (1, 0)
        ordered = order_near_equal(
            kernel, [rows[[far, near]], rows[[far, near]]], query, np.array([9, 8, 3, 4])
        )
        assert ordered is not None
        order, values, apart = ordered
        assert order.tolist() == [3, 1, 2, 0]
        assert values.tolist() == [scores[near], scores[near], scores[far], scores[far]]
        assert apart.tolist() == [False, True, False]

    def test_signs_of_zero_do_not_count(self) -> None:
        rows = np.array([[1, 0, 2], [1, -0.0, 2]], np.float32)
        ordered = order_near_equal(
            make_kernel("cosine"), [rows], np.array([3, 1, 1], np.float32), np.array([5, 2])
        )
        assert ordered is not None
        assert ordered[0].tolist() == [1, 0]
        assert ordered[2].tolist() == [False]

    def test_scores_that_differ_in_the_thirtieth_digit_do_not_tie(self) -> None:
        kernel, query = make_kernel("cosine"), np.ones(3)
        rows = np.array(
            [[1 - 2.0**-32, 1, 1], [1 + 2.0**-32, 1, 1]]
        )  # whose cosines differ by the cube of that
        first, second = (decimal_score(kernel, row, query) for row in rows)
        assert first is not None
        assert second is not None
        assert 1e-32 < abs(first - second) < 1e-28
        order = [0, 1] if first > second else [1, 0]
        for ids in ([0, 1], [1, 0]):
            ordered = order_near_equal(kernel, [rows[ids]], query, np.array(ids))
            assert ordered is not None
            assert [ids[place] for place in ordered[0]] == order
            assert ordered[2].tolist() == [True]

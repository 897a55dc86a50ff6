"""Verdicts on claims: whatever is wrong is found at its rank, ties may stand for each other, and
the truth is told."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.pipeline.kernels.sums import Chi2
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.search.verify import Verdicts, verify
from mercore.stores.rows import SourceVectors
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows, histograms, make_codes, make_vectors
from tests.independent import exact_truth
from tests.support.adversarial import adversary
from tests.support.tiers import slow_unless

Ids = NDArray[np.int64]
N, D, NQ, K = 1200, 24, 8, 6
SEARCHES = {
    "every row": None,
    "kpca-bound": KpcaBoundSpec(n_landmarks=200, n_components=96),
    "bin-bound": BinBoundSpec(n_groups=24),
    "kpca-pq": KpcaPqSpec(n_landmarks=200, n_components=96, n_subquantizers=48),
}


class Plain(Chi2):
    """A kernel without a formula in decimals."""

    name = "plain"
    shared_terms = False

    def decimal(self, x: NDArray[Any], y: NDArray[Any]) -> None:
        return None


def unbounded(kernel: Kernel, rows: NDArray[Any]) -> ExactSearch:
    return ExactSearch(scorer=ExactScorer(vectors=SourceVectors(Rows(rows)), kernel=kernel))


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    return histograms(N, D, seed=1)


@pytest.fixture(scope="module")
def queries() -> NDArray[Any]:
    return histograms(NQ, D, seed=2)


@pytest.fixture(scope="module", params=slow_unless({"every row", "kpca-pq"}.__contains__, SEARCHES))
def search(
    request: pytest.FixtureRequest, rows: NDArray[Any], tmp_path_factory: pytest.TempPathFactory
) -> ExactSearch:
    spec, kernel, folder = (
        SEARCHES[request.param],
        make_kernel("hellinger"),
        tmp_path_factory.mktemp("verify"),
    )
    vectors = make_vectors(folder / "vectors", rows, part_rows=128)
    scorer = ExactScorer(vectors=vectors, kernel=kernel)
    if spec is None:
        return ExactSearch(scorer=scorer)
    codes = make_codes(folder / "codes", vectors, kernel, spec, part_rows=64)
    return ExactSearch(scorer=scorer, bounds=OpenCodes(codes, encoder_of(codes)))


@pytest.fixture(scope="module")
def true(rows: NDArray[Any], queries: NDArray[Any]) -> Ids:
    return exact_truth.nearest("hellinger", rows, queries, K + 1)


def verdicts(search: ExactSearch, queries: NDArray[Any], claimed: Ids, true: Ids) -> Verdicts:
    """What is found of claims; the truth comes with it whatever is claimed, and whatever scores
    are."""
    found = verify(search, queries, claimed)
    np.testing.assert_array_equal(found.answers.ids, true[:, : claimed.shape[1]])
    assert [word == "refuted" for word in found.words()] == (found.ranks >= 0).tolist()
    for scores in said_of(found.answers.scores):
        again = verify(search, queries, claimed, scores)
        assert (again.words(), again.ranks.tolist()) == (found.words(), found.ranks.tolist())
        np.testing.assert_array_equal(again.answers.ids, found.answers.ids)
        np.testing.assert_array_equal(again.answers.scores, found.answers.scores)
        assert (again.answers.greatest < again.answers.scores[:, -1]).all()
    return found


def said_of(scores: NDArray[np.float64]) -> list[NDArray[Any]]:
    """What someone may say scores are: those, rounded, too high or too low, of one query only, or
    no scores at all."""
    mixed = scores.copy()
    mixed[::2] += 0.01
    wrong = np.full_like(scores, np.nan)
    others = (
        scores.astype(np.float32),
        scores + 2e-5,
        mixed,
        scores / 2,
        0 * scores,
        -scores,
        40 * scores,
        wrong,
    )
    return [scores, *others]


def test_true_claims_are_proved(search: ExactSearch, queries: NDArray[Any], true: Ids) -> None:
    for k in (1, K):
        found = verdicts(search, queries, true[:, :k], true)
        assert found.words() == ["proved"] * NQ
        assert (found.ranks == -1).all()


@loop_over("rank", range(K))
@pytest.mark.parametrize("wrong", ["another", "next", "missing", "repeated"])
@pytest.mark.promise("`verify` proves true neighbours, and refutes every error with its rank")
def test_one_wrong_id_is_found_at_its_rank(
    search: ExactSearch, queries: NDArray[Any], true: Ids, rank: int, wrong: str
) -> None:
    claimed = true[:, :K].copy()
    planted = {"another": (true[:, 0] + 1) % N, "next": true[:, K], "missing": np.full(NQ, -1)}
    at = max(rank, 1) if wrong == "repeated" else rank
    claimed[::2, at] = planted.get(wrong, true[:, at - 1])[::2]
    ranks = np.where(claimed != true[:, :K], np.arange(K), K).min(axis=1)
    found = verdicts(search, queries, claimed, true)
    assert found.words()[1::2] == ["proved"] * (NQ // 2)
    assert found.ranks.tolist() == np.where(ranks < K, ranks, -1).tolist()
    assert found.words()[::2] == ["refuted"] * (NQ // 2)


def test_the_right_rows_in_another_order_are_refuted(
    search: ExactSearch, queries: NDArray[Any], true: Ids
) -> None:
    claimed = true[:, :K].copy()
    claimed[3, [2, 3]] = claimed[3, [3, 2]]
    assert verdicts(search, queries, claimed, true).ranks.tolist() == [
        -1,
        -1,
        -1,
        2,
        -1,
        -1,
        -1,
        -1,
    ]


@pytest.mark.parametrize("claims", ["none", "same", "any"])
def test_claims_of_which_none_is_whole_are_refuted(
    search: ExactSearch, queries: NDArray[Any], true: Ids, claims: str
) -> None:
    nonsense = {
        "none": np.full((NQ, K), -1),
        "same": np.repeat(true[:, :1], K, axis=1),
        "any": np.random.default_rng(1).integers(-1, 5, (NQ, K)),
    }
    found = verdicts(search, queries, nonsense[claims], true)
    assert found.words() == ["refuted"] * NQ
    if claims != "any":
        assert found.ranks.tolist() == [0 if claims == "none" else 1] * NQ


def test_a_missing_neighbour_behind_a_wrong_one_does_not_hide_it(
    search: ExactSearch, queries: NDArray[Any], true: Ids
) -> None:
    claimed = true[:, :K].copy()
    claimed[:, 4], claimed[:, 1] = -1, true[:, K]
    assert verdicts(search, queries, claimed, true).ranks.tolist() == [1] * NQ


class TestTies:
    """Rows of one real score stand for each other."""

    @pytest.mark.parametrize("name", ["chi2", "hellinger", "cosine", "intersection"])
    @pytest.mark.promise("Any rows that tie are right")
    def test_any_rows_that_tie_are_right(self, name: str) -> None:
        found = adversary("permuted", 40, 3)
        search, rng = unbounded(make_kernel(name), found.rows), np.random.default_rng(1)
        claimed = np.stack([rng.permutation(40)[:5] for _ in range(3)])
        said = verify(search, found.queries, claimed)
        assert said.words() == ["tied"] * 3
        assert (said.ranks == -1).all()
        np.testing.assert_array_equal(said.answers.ids, np.tile(np.arange(5), (3, 1)))

    def test_the_first_of_ties_are_tied_too_unless_all_are_named(self, rows: NDArray[Any]) -> None:
        copies = np.concatenate([rows[:50], rows[:1], rows[:1]])
        search = unbounded(make_kernel("chi2"), copies)
        claims = {
            (0,): "tied",
            (50,): "tied",
            (0, 50): "tied",
            (0, 50, 51): "proved",
            (51, 0, 50): "tied",
        }
        for claim, word in claims.items():
            said = verify(search, rows[:1], np.array([claim]))
            assert said.words() == [word], claim
        assert verify(search, rows[:1], np.array([[50, 50]])).ranks.tolist() == [1]

    def test_near_ties_that_are_swapped_are_refuted(self) -> None:
        found = adversary("one ulp apart", 60, 4, seed=2)
        for name in ("cosine", "chi2"):
            kernel, near = (
                make_kernel(name),
                exact_truth.nearest(name, found.rows, found.queries, 60),
            )
            search = unbounded(kernel, found.rows)
            assert set(verify(search, found.queries, near).words()) <= {"proved", "tied"}
            swapped = near[:, ::-1].copy()
            assert verify(search, found.queries, swapped).words() == ["refuted"] * 4

    def test_scores_that_float64_cannot_tell_apart_are_told_by_decimals(self) -> None:
        rows = np.ones((3, 3), np.float32)
        rows[1, 0] = np.nextafter(np.float32(1), np.float32(0))
        rows[2, 0] = np.nextafter(np.float32(1), np.float32(2))
        query = np.ones((1, 3), np.float32)
        kernel = make_kernel("cosine")
        prepared = kernel.prepare(rows)
        scores = kernel.exact(prepared[:1], np.ascontiguousarray(prepared.T))
        assert np.ptp(scores) < 2 * kernel.exact_error(3)
        true = exact_truth.nearest("cosine", rows, query, 3)
        search = unbounded(kernel, rows)
        assert verify(search, query, true).words() == ["proved"]
        assert verify(search, query, true[:, [0, 2, 1]]).ranks.tolist() == [1]

    def test_without_a_formula_what_float64_cannot_tell_apart_is_right(self) -> None:
        found = adversary("permuted", 40, 3)
        search = unbounded(Plain(), found.rows)
        said = verify(search, found.queries, np.tile(np.arange(5, 0, -1), (3, 1)))
        assert said.words() == ["tied"] * 3


@pytest.mark.promise("A claimed score decides no verdict")
def test_a_query_that_is_refuted_costs_the_others_nothing(
    queries: NDArray[Any], rows: NDArray[Any], tmp_path: Path
) -> None:
    """Whatever seeds a claim makes, the verdicts of the other queries are the same."""
    kernel, vectors = (
        make_kernel("intersection"),
        make_vectors(tmp_path / "vectors", rows, part_rows=128),
    )
    codes = make_codes(tmp_path / "codes", vectors, kernel, BinBoundSpec(n_groups=24), part_rows=64)
    search = ExactSearch(
        scorer=ExactScorer(vectors=vectors, kernel=kernel),
        bounds=OpenCodes(codes, encoder_of(codes)),
    )
    true = exact_truth.nearest("intersection", rows, queries, K)
    farthest = np.argsort(
        kernel.exact(kernel.prepare(queries), np.ascontiguousarray(kernel.prepare(rows).T)), axis=1
    )
    claimed = true.copy()
    claimed[::3] = farthest[::3, :K]
    found = verdicts(search, queries, claimed, true)
    assert found.ranks.tolist() == [0 if query % 3 == 0 else -1 for query in range(NQ)]

"""Exact search by bounds: the true neighbours whatever the bounds, the seeds, the threads, and a
proof that holds."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.pipeline.scanners.bounds.byte_bounds import BoundScanner
from mercore.pipeline.scanners.scanner import select_pairs
from mercore.pipeline.search import bounded, thread_executor
from mercore.pipeline.search.answers import ExactAnswers, Scored
from mercore.pipeline.search.bounded import Bounded
from mercore.pipeline.search.collect import Collected, PairBudget
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes
from mercore.stores.codes import CodeStore
from mercore.stores.vector_views import VectorCache
from mercore.stores.vectors import VectorStore
from mercore.testing.cases import loop_over
from mercore.testing.stores import histograms, make_codes, make_vectors
from tests.independent import exact_truth
from tests.support.adversarial import MAKERS, adversary
from tests.support.tiers import slow_unless

N, D, NQ, K, COPIES = 2000, 24, 15, 10, 150
KPCA, BINS = KpcaBoundSpec(n_landmarks=256, n_components=96), BinBoundSpec(n_groups=20)
CASES: dict[str, tuple[str, EncoderSpec]] = {
    "kpca-chi2": ("chi2", KPCA),
    "kpca-jensen_shannon": ("jensen_shannon", KPCA),
    "kpca-cosine": ("cosine", replace(KPCA, n_components=23)),
    "kpca-rbf": ("rbf", KPCA),
    "bin-intersection": ("intersection", BINS),
    "bin-hellinger": ("hellinger", BINS),
    "bin-chi2": ("chi2", replace(BINS, n_groups=24)),
}
GAMMA = {"rbf": 0.05}


class Made(NamedTuple):
    """A search by bounds, and the vectors, codes and kernel that it is of."""

    name: str
    spec: EncoderSpec
    vectors: VectorStore
    codes: CodeStore
    kernel: Kernel

    def search(self, *, threads: int = 1, codes: CodeStore | None = None) -> ExactSearch:
        found = codes or self.codes
        scorer = ExactScorer(vectors=self.vectors, kernel=self.kernel, threads=threads)
        return ExactSearch(scorer=scorer, bounds=OpenCodes(found, encoder_of(found)))

    def bounds(self, queries: NDArray[Any]) -> NDArray[np.float32]:
        """Every bound, float32[nq, n]."""
        scanner = encoder_of(self.codes).scanner(queries)
        assert isinstance(scanner, BoundScanner)
        read = self.codes.store.read_chunk
        codes, terms = (
            np.concatenate([read(r, name) for r in self.codes.receipts]) for name in scanner.names
        )
        return scanner.bounds(codes, terms.astype(np.float32)).T

    def true_ids(self, queries: NDArray[Any], k: int) -> NDArray[np.int64]:
        rows = np.concatenate([self.vectors.read_part(part) for part in range(self.vectors.parts)])
        return exact_truth.nearest(
            self.kernel.name, rows, queries, k, gamma=GAMMA.get(self.name, 1.0)
        )


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
    rows = histograms(N, D, seed=1)
    rows[-COPIES:] = rows[:COPIES]
    return make_vectors(tmp_path_factory.mktemp("exact") / "vectors", rows, part_rows=128)


@pytest.fixture(scope="module")
def queries(vectors: VectorStore) -> NDArray[Any]:
    """Other histograms, and some that are rows; one of those is there twice."""
    return np.concatenate(
        [histograms(NQ - 4, D, seed=2), vectors.read_part(0)[[3, 100]], vectors.read_part(9)[:2]]
    )


@pytest.fixture(
    scope="module", params=slow_unless({"kpca-chi2", "bin-intersection"}.__contains__, CASES)
)
def made(
    request: pytest.FixtureRequest, vectors: VectorStore, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    name, spec = CASES[request.param]
    kernel = make_kernel(name, gamma=GAMMA.get(name))
    path = tmp_path_factory.mktemp("exact") / "codes"
    return Made(name, spec, vectors, make_codes(path, vectors, kernel, spec, part_rows=64), kernel)


def same(found: ExactAnswers, expected: ExactAnswers) -> None:
    """Equal answers; what was evaluated on the way may differ."""
    for name in ("ids", "scores", "ties"):
        np.testing.assert_array_equal(found.arrays()[name], expected.arrays()[name], strict=True)


def test_the_true_neighbours_are_found_by_few_scores(made: Made, queries: NDArray[Any]) -> None:
    answers = made.search().prove(queries, K)
    np.testing.assert_array_equal(answers.ids, made.true_ids(queries, K))
    same(answers, ExactSearch(scorer=made.search().scorer).prove(queries, K))
    assert np.median(answers.evaluated) < N / 10
    assert answers.evaluated.min() >= K
    assert (np.diff(answers.scores, axis=1) <= 0).all()


def test_vectors_are_read_soon_if_the_last_window_had_rows_of_most_parts(
    made: Made, queries: NDArray[Any]
) -> None:
    """Parts of vectors have 128 rows, those of codes 64."""
    asked: list[Iterable[int]] = []
    batch = made.search().executor.batch(queries, beta=1.0)
    none, budget = np.full(NQ, np.inf, np.float32), PairBudget.of(K, roomy=True)
    with patch.object(VectorStore, "read_soon", lambda _, parts: asked.append(parts)):
        batch.collect(range(3), none, budget)
        batch.fetch_to_score(np.array([5, 600]))
        batch.collect(range(3), none, budget)
        assert asked == []
        batch.fetch_to_score(np.array([5, 130, 131, 400]))
        batch.collect(range(4, 7), none, budget)
        assert asked == [range(2, 4)]
        row_bytes = made.vectors.dims * made.vectors.dtype.itemsize
        with patch.object(thread_executor, "AHEAD_BYTES", 258 * row_bytes):
            batch.collect(range(4, 31), none, budget)
        assert asked[1:] == [range(2, 5)]
        held = VectorCache(made.vectors, 1 << 20)
        held.read_part(2)
        held.read_soon(range(2, 5))
        assert asked[2:] == [[3, 4]]


@loop_over("k", [1, K])
@pytest.mark.promise("No row that was left out has a bound above the one in the certificate")
def test_no_row_that_was_not_scored_has_a_bound_above_the_greatest(
    made: Made, queries: NDArray[Any], k: int
) -> None:
    search = made.search()
    assert search.bounds is not None
    once = Bounded(search.scorer, search.bounds.store, search.executor.batch(queries), k)
    once.score_initial_topk_by_bounds()
    once.scan()
    queries = queries[~once.failing]  # that bounds answer at once
    scored: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    add = Scored.add

    def watched(
        self: Scored, of: NDArray[np.int64], rows: NDArray[np.int64], scores: NDArray[np.float64]
    ) -> None:
        scored.append((of, rows))
        add(self, of, rows, scores)

    with patch.object(Scored, "add", watched):
        answers = made.search().prove(queries, k)
    of, rows = (np.concatenate(values) for values in zip(*scored, strict=True))
    times = np.zeros((len(queries), N), np.int64)
    np.add.at(times, (of, rows), 1)
    assert times.max() == 1
    np.testing.assert_array_equal(times.sum(axis=1), answers.evaluated)
    left = np.where(times == 1, -np.inf, made.bounds(queries))
    assert (left.max(axis=1) <= answers.greatest).all()
    kth = answers.scores[:, -1]
    assert (answers.greatest < kth - made.search().scorer.slack(kth)).all()


def test_batches_threads_and_parts_change_no_answer(
    made: Made, queries: NDArray[Any], tmp_path: Path
) -> None:
    expected = made.search().prove(queries, K)
    again = made.search(threads=2).prove(queries, K)
    for name, values in expected.arrays().items():  # evaluated and greatest too
        np.testing.assert_array_equal(again.arrays()[name], values, strict=True)
    for size in (1, 7):
        for at in range(0, NQ, size):
            found = made.search().prove(queries[at : at + size], K)
            for name in ("ids", "scores", "ties"):
                np.testing.assert_array_equal(
                    found.arrays()[name], expected.arrays()[name][at : at + size]
                )
    for part_rows in (37, N):
        codes = make_codes(
            tmp_path / str(part_rows), made.vectors, made.kernel, made.spec, part_rows=part_rows
        )
        same(made.search(threads=2, codes=codes).prove(queries, K), expected)


def test_pairs_of_large_windows_are_fetched_twice_for_the_same_answer(
    made: Made, queries: NDArray[Any]
) -> None:
    expected = made.search().prove(queries, K).arrays()
    with patch.object(bounded, "ROWS_PER_PAIR", 0):  # as if all windows were large
        for name, values in made.search().prove(queries, K).arrays().items():
            np.testing.assert_array_equal(values, expected[name], strict=True)


@loop_over("k", [1, 2, N // 2 - 1, N // 2, N - 1, N])
def test_any_number_of_neighbours(made: Made, queries: NDArray[Any], k: int) -> None:
    few = queries[[0, 1, -3, -1]]
    answers = made.search().prove(few, k)
    expected = ExactSearch(scorer=made.search().scorer).prove(few, k)
    same(answers, expected)
    assert (expected.evaluated == N).all()
    assert np.isneginf(expected.greatest).all()
    assert sorted(answers.ids[0].tolist()) == sorted(set(answers.ids[0].tolist()))


def seeds_of(kind: str, true: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows to begin with: the neighbours, far more than those, or any."""
    rng = np.random.default_rng(3)
    drawn = np.stack([rng.permutation(N) for _ in true])
    if kind == "any":
        return drawn[:, :K]
    if kind == "neighbours":
        return true[:, ::-1].copy()
    others = [row[~np.isin(row, known)][: 3 * K] for row, known in zip(drawn, true, strict=True)]
    return np.concatenate([np.stack(others), true], axis=1)


@pytest.mark.parametrize("kind", ["any", "neighbours", "more"])
def test_whatever_rows_a_search_begins_with(made: Made, queries: NDArray[Any], kind: str) -> None:
    expected = made.search().prove(queries, K)
    same(made.search().prove(queries, K, seeds=seeds_of(kind, expected.ids)), expected)


def test_neighbours_to_begin_with_leave_the_least(made: Made, queries: NDArray[Any]) -> None:
    expected = made.search().prove(queries, K)
    seeded = made.search().prove(queries, K, seeds=expected.ids)
    answered = (expected.evaluated < N) & (seeded.evaluated < N)
    assert (seeded.evaluated[answered] <= expected.evaluated[answered]).all()
    assert (seeded.evaluated >= K).all()


def small(path: Path, name: str, spec: EncoderSpec, rows: NDArray[Any]) -> Made:
    vectors, kernel = make_vectors(path / "vectors", rows), make_kernel(name)
    return Made(
        name, spec, vectors, make_codes(path / "codes", vectors, kernel, spec, part_rows=32), kernel
    )


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("intersection", BinBoundSpec(n_groups=1)),
        ("chi2", KpcaBoundSpec(n_landmarks=1, n_components=1)),
    ],
)
def test_bounds_that_rule_nothing_out_leave_every_row(
    name: str, spec: EncoderSpec, tmp_path: Path
) -> None:
    made, queries = (
        small(tmp_path, name, spec, histograms(700, 16, seed=4)),
        histograms(9, 16, seed=5),
    )
    answers = made.search().prove(queries, K)
    np.testing.assert_array_equal(answers.ids, made.true_ids(queries, K))
    assert (answers.evaluated == 700).all()
    assert np.isneginf(answers.greatest).all()
    same(made.search().prove(queries, K, seeds=answers.ids), answers)


@pytest.mark.parametrize("many", [0.25, 0.9])
@pytest.mark.promise("Where bounds fail, every row is scored, and the command says so")
def test_queries_whose_bounds_fail_are_answered_beside_the_others_if_they_are_few(
    many: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "MANY_FAILING", many)
    made = small(tmp_path, "intersection", BinBoundSpec(n_groups=12), histograms(N, D, seed=6))
    queries = histograms(160, D, seed=7)
    answers = made.search().prove(queries, 5)
    every = answers.evaluated == N
    assert 40 < every.sum() <= 160
    assert every.all() == (many < 0.5)
    np.testing.assert_array_equal(np.isneginf(answers.greatest), every)
    np.testing.assert_array_equal(answers.ids, made.true_ids(queries, 5))


def test_a_query_that_a_part_gave_up_is_answered_from_every_row(
    made: Made, queries: NDArray[Any]
) -> None:
    expected = made.search().prove(queries, K)
    kind: Any = type(encoder_of(made.codes).scanner(queries))
    collect = kind.collect

    def gives_up(scanner: Any, columns: Any, first: int, *about: Any) -> Collected:
        pairs, failing = collect(scanner, columns, first, *about)
        given_up = (np.arange(len(failing)) == 0) & (first == 640)
        return Collected(select_pairs(pairs, ~given_up[pairs.queries]), failing | given_up)

    with patch.object(kind, "collect", gives_up):
        found = made.search().prove(queries, K)
    same(found, expected)
    assert found.evaluated[0] == N


@loop_over("name", MAKERS)
@pytest.mark.parametrize(
    ("kernel", "spec"),
    [
        ("chi2", KpcaBoundSpec(n_landmarks=100, n_components=24)),
        ("cosine", KpcaBoundSpec(n_landmarks=100, n_components=24)),
        ("intersection", BinBoundSpec(n_groups=16)),
        ("hellinger", BinBoundSpec(n_groups=16)),
    ],
)
@pytest.mark.promise(
    "Exact search returns the true neighbours, under every kernel and on adversarial rows"
)
def test_rows_that_mislead(name: str, kernel: str, spec: EncoderSpec, tmp_path: Path) -> None:
    found = adversary(name, 120, 3, seed=8)
    made = small(tmp_path, kernel, spec, found.rows)
    queries = np.concatenate([found.queries, found.rows[:2]])
    for k in (1, 7):
        answers = made.search().prove(queries, k)
        same(answers, ExactSearch(scorer=made.search().scorer).prove(queries, k))
        every = answers.evaluated == len(found.rows)
        np.testing.assert_array_equal(np.isneginf(answers.greatest), every)
    np.testing.assert_array_equal(made.search().prove(queries, 7).ids, made.true_ids(queries, 7))


@loop_over("batch", [1, NQ])
def test_what_was_scored_depends_on_no_thread(
    made: Made, queries: NDArray[Any], batch: int
) -> None:
    for start in range(0, NQ, batch):
        some = queries[start : start + batch]
        expected = made.search(threads=1).prove(some, K).arrays()
        for _ in range(3):
            for name, values in made.search(threads=4).prove(some, K).arrays().items():
                np.testing.assert_array_equal(values, expected[name], strict=True)

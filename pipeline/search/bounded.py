"""Search by bounds: compute the true kernel where an upper bound reaches the k-th score so far."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.scanners.bounds.layout import FEW_ROWS
from mercore.pipeline.scanners.scanner import Pairs, joined, select_pairs
from mercore.pipeline.search.answers import ExactAnswers, Scored
from mercore.pipeline.search.collect import PairBudget, too_many
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.executor import QueryBatch, ScorePairs
from mercore.pipeline.search.rerank import Threshold
from mercore.pipeline.topk import TopK
from mercore.stores.codes import CodeStore

# seeds: 1 row in 64; of small stores more, up to 1 in 8
SEED_SHARE, SEED_ROWS, MIN_ROWS_PER_SEED = 64, 1 << 14, 8
# seeds come from 8 parts; from 2 if 8 were over a third of all
SEED_PARTS, FEW_PARTS, READ_SHARE = 8, 2, 3
WINDOW_PAIRS = 1 << 26  # pairs (query, row) whose bounds are compared before k-th scores are raised
FIRST_SHARE, GROWTH = 4, 4  # the first window is 4 times smaller; later ones grow by 4
MANY_FAILING = 0.5  # share of a batch
ROWS_PER_PAIR = 256  # of a window: where pairs are fewer, most blocks of vectors hold no row of one
PARTS_AT_ONCE = 16  # parts of a window at least: enough for the threads to share


class Bounded:
    """A search by bounds for a batch: the scored pairs, and the greatest bound of all others.

    ``failing`` bool[nq] are the queries for which the bounds rule too few rows out: they are given
    up, sooner where memory is short and windows are small.

    All thresholds are fixed here before a window passes: the pairs of a part depend on no other
    part of its window, so the executor and its number of workers change no score.
    """

    def __init__(self, scorer: ExactScorer, codes: CodeStore, batch: QueryBatch, k: int) -> None:
        self.scorer, self.codes, self.batch, self.k = scorer, codes, batch, k
        self.nq = len(batch.queries)
        self.budget = PairBudget.of(k, roomy=scorer.window is None)
        self.scored = Scored(self.nq, k, scorer)
        self.greatest = np.full(self.nq, -np.inf)
        self.failing = np.zeros(self.nq, np.bool_)
        self._seeds = np.empty(0, np.int64)  # the seeds, scored or claimed, as query · n + row
        self._seed_rows = np.empty(0, np.int64)  # the rows of seeds, ascending
        self._first_share = 1  # with near seeds given, k-th scores hardly rise in the first window
        self._claims = pairs_of(np.empty((self.nq, 0), np.int64))
        self._claimed_kth = np.full(self.nq, np.float32(-np.inf))

    def score_initial_topk_by_bounds(self) -> None:
        """Score the rows of greatest bounds in a sample from all over the store."""
        most = max(FEW_PARTS, self.scorer.vectors.parts // READ_SHARE)
        codes = self.codes
        parts, first_rows = seed_parts(codes.parts, codes.part_rows, codes.rows, most)
        width = min(
            2 * self.k, sum(min(first_rows, self._rows_of(range(part, part + 1))) for part in parts)
        )
        rows, queries = pairs_of(self.batch.scan(parts, width, rows=first_rows).ids)
        distinct, positions = np.unique(rows, return_inverse=True)
        scores = self.batch.fetch_to_score(distinct)(
            positions, queries, Threshold(self.k, self.scored.least)
        )
        self.scored.add(queries, rows, scores)
        self._remember(rows, queries)
        self._first_share = FIRST_SHARE

    def score_initial_topk(self, lists: NDArray[np.int64]) -> None:
        """Score the given rows of each query, int64[nq, R], no row twice, −1 for none."""
        rows, queries = pairs_of(lists)
        self.scored.add(queries, rows, self.batch.scores(rows, queries))
        self._remember(rows, queries)

    def accept_thresholds(self, lists: NDArray[np.int64], kth: Float32) -> None:
        """Take claimed k-th scores as thresholds until the claimed rows are scored.

        So the rows are fetched once. A query whose claim proves too high is given up at the end.

        Parameters
        ----------
        lists : int64[nq, k], the claimed rows, distinct for each query
        kth : float32[nq], the claimed k-th scores
        """
        rows, queries = pairs_of(lists)
        order = np.argsort(rows, kind="stable")
        self._claims, self._claimed_kth = (rows[order], queries[order]), kth
        self._remember(rows, queries)

    def scan(self) -> None:
        """Score the pairs that the bounds leave, window by window.

        Give all queries up once many are failing.
        """
        codes = self.codes
        for parts in windows(
            codes.parts, codes.part_rows, self.nq, self.scorer.window, self._first_share
        ):
            # every row must be scored for them; the others add little
            if self.failing.mean() > MANY_FAILING:
                self.failing[:] = True
                return
            least = np.where(
                self.failing, np.float32(np.inf), np.maximum(self.scored.least, self._claimed_kth)
            )
            self._score(self._collect(parts, least), parts)
        self.failing |= self._claimed_kth > self.scored.least

    def answers(self) -> ExactAnswers:
        """Return the exact answers; those to queries that were given up are not proved."""
        every = self.scored.counts == self.scorer.vectors.rows
        greatest = np.where(every, -np.inf, self.greatest)
        return self.scored.answers(self.scorer, self.batch.queries, greatest, self.batch.raw)

    def _remember(self, rows: NDArray[np.int64], queries: NDArray[np.int64]) -> None:
        """Remember the seeds: pairs that bounds need not find."""
        self._seeds = queries * self.scorer.vectors.rows + rows
        self._seed_rows = np.unique(rows)

    def _collect(self, parts: range, least: Float32) -> Pairs:
        """Return the pairs of some parts whose bound reaches ``least``.

        Give up queries that have too many.
        """
        collected = self.batch.collect(parts, least, self.budget)
        counts, rows = np.bincount(collected.pairs.queries, minlength=self.nq), self._rows_of(parts)
        self.failing |= collected.failing | too_many(counts, rows, self.budget)
        return collected.pairs

    def _score(self, pairs: Pairs, parts: range) -> None:
        """Score the pairs of a window: the greatest bounds first, then those that still reach.

        Only rows that are scored are fetched. But where those of the greatest bounds lie in most
        blocks of the vectors, all rows are fetched together: else these blocks were read twice.
        """
        first, end = self.codes.bounds(parts[0])[0], self.codes.bounds(parts[-1])[1]
        known = self._known(pairs, first, end)
        pairs = joined(
            [self._claimed(first, end), select_pairs(pairs, ~known) if known.any() else pairs]
        )
        greatest = TopK(self.nq, 2 * self.k, np.float32)
        greatest.insert(pairs.queries, pairs.rows, pairs.bounds)

        ahead = self._few(pairs, pairs.bounds >= greatest.kth[pairs.queries])
        few = np.count_nonzero(ahead) * ROWS_PER_PAIR < end - first
        together = None if few else self._fetch(pairs.rows, first, end)

        def score(some: Pairs) -> None:
            threshold = Threshold(self.k, self.scored.least)
            score_pairs = together or self._fetch(some.rows, first, end)
            self.scored.add(
                some.queries, some.rows, score_pairs(some.rows, some.queries, threshold)
            )

        score(select_pairs(pairs, ahead))
        least = self.scored.least
        left = ~ahead & (pairs.bounds >= least[pairs.queries])
        self.failing |= too_many(
            np.bincount(pairs.queries[left], minlength=self.nq), end - first, self.budget
        )
        score(select_pairs(pairs, left & ~self.failing[pairs.queries]))
        self.greatest = np.maximum(self.greatest, np.maximum(least, self._claimed_kth))

    def _fetch(self, rows: NDArray[np.int64], first: int, end: int) -> ScorePairs:
        """Fetch rows of [first, end); return a function that scores pairs of them by their rows."""
        fetched = np.zeros(end - first, np.bool_)
        fetched[rows - first] = True
        distinct = np.flatnonzero(fetched)
        positions = np.empty(end - first, np.int64)  # of the rows that are fetched
        positions[distinct] = np.arange(len(distinct))
        score_pairs = self.batch.fetch_to_score(distinct + first)

        def scores(
            rows: NDArray[np.int64], queries: NDArray[np.int64], threshold: Threshold
        ) -> Float64:
            return score_pairs(positions[rows - first], queries, threshold)

        return scores

    def _claimed(self, first: int, end: int) -> Pairs:
        """Return the claimed pairs of rows [first, end), with bounds of ∞: they come first."""
        rows, queries = self._claims
        window = slice(*np.searchsorted(rows, [first, end]))
        return Pairs(queries[window], rows[window], np.full(len(rows[window]), np.inf, np.float32))

    def _few(self, pairs: Pairs, some: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Keep those of some pairs whose query has few of them: equal bounds may make them many."""
        counts = np.bincount(pairs.queries[some], minlength=self.nq)
        return some & (counts <= FEW_ROWS + 2 * self.k)[pairs.queries]

    def _known(self, pairs: Pairs, first: int, end: int) -> NDArray[np.bool_]:
        """Return which pairs of rows [first, end) are seeds, scored or claimed, bool[p]."""
        rows = self.scorer.vectors.rows
        # a fast test, by the row alone: most rows are seeds of no query
        seeded = np.zeros(end - first, np.bool_)
        window = slice(*np.searchsorted(self._seed_rows, [first, end]))
        seeded[self._seed_rows[window] - first] = True
        known = seeded[pairs.rows - first]
        some = np.flatnonzero(known)
        known[some] = np.isin(pairs.queries[some] * rows + pairs.rows[some], self._seeds)
        return known

    def _rows_of(self, parts: range) -> int:
        return self.codes.bounds(parts[-1])[1] - self.codes.bounds(parts[0])[0]


def pairs_of(lists: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs (rows, queries) of lists of rows, int64[nq, R], −1 for none."""
    present = lists >= 0
    return lists[present], np.nonzero(present)[0]


def seed_parts(
    parts: int, part_rows: int, rows: int, most: int = SEED_PARTS
) -> tuple[list[int], int]:
    """Return at most ``most`` parts from all over a store, and the number of seeds from each."""
    count = min(parts, SEED_PARTS, most)
    each = -(-max(min(SEED_ROWS, rows // MIN_ROWS_PER_SEED), rows // SEED_SHARE, 1) // count)
    return [number * parts // count for number in range(count)], min(each, part_rows)


def window_rows(part_rows: int, queries: int, parts: int | None = None) -> int:
    """Return the rows of a window of ``parts`` parts; by default, fewer for larger batches."""
    if parts is not None:
        return parts * part_rows
    return part_rows * max(PARTS_AT_ONCE, WINDOW_PAIRS // (part_rows * queries))


def windows(
    parts: int, part_rows: int, queries: int, window: int | None = None, first_share: int = 1
) -> Iterator[range]:
    """Yield windows: ascending runs of parts.

    The first is ``first_share`` times smaller, the next ones grow.

    K-th scores are raised between windows, and rise most in the first.
    """
    start, most = 0, window_rows(part_rows, queries, window) // part_rows
    size = max(1, min(most, parts) // first_share)
    while start < parts:
        stop = min(parts, start + size)
        yield range(start, stop)
        start, size = stop, min(most, GROWTH * size)

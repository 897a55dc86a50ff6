"""Search by bounds: the true kernel is computed where an upper bound reaches the k-th score so far."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.scanners.bounds import FEW_ROWS, Pairs, chosen, joined
from mercore.pipeline.search.answers import ExactAnswers, Scored
from mercore.pipeline.search.collect import PairBudget, too_many
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.executor import QueryBatch
from mercore.pipeline.search.rerank import Threshold
from mercore.pipeline.topk import TopK
from mercore.stores.codes import CodeStore

SEED_SHARE, SEED_ROWS, MOST_SEEDS = 64, 1 << 14, 8  # seeds are one row in 64, of small stores more: one in 8 at most
SEED_PARTS, FEW_PARTS, READ_SHARE = 8, 2, 3  # of so many parts, or of two if more are over a third of the vectors'
WINDOW_PAIRS = 1 << 26  # of rows and queries whose bounds are compared before k-th scores are raised
FIRST_SHARE, GROWTH = 4, 4  # the first window is so many times smaller, the next ones grow
MANY_FAILING = 0.5  # of a batch
PARTS_AT_ONCE = 16  # at least, so that threads have enough to share


class Bounded:
    """A batch of queries in a search by bounds: what was scored, and the greatest bound that was not.

    ``failing`` bool[nq] are the queries for which bounds rule too little out: they are given up, sooner where
    memory is short and windows are small.

    All decisions are made here: what a window's parts are asked depends on no other part of that window, so that
    what is scored does not depend on who works on the parts.
    """

    def __init__(self, truth: ExactScorer, codes: CodeStore, batch: QueryBatch, k: int) -> None:
        self.truth, self.codes, self.batch, self.k = truth, codes, batch, k
        self.nq = len(batch.queries)
        self.budget = PairBudget.of(k, roomy=truth.window is None)
        self.scored = Scored(self.nq, k, truth.slack)
        self.greatest = np.full(self.nq, -np.inf)
        self.failing = np.zeros(self.nq, np.bool_)
        self._seeds = np.empty(0, np.int64)  # the pairs scored first, or claimed, as query · n + row
        self._seed_rows = np.zeros(truth.vectors.rows, np.bool_)
        self._first_share = 1  # where it is said which rows are near, k-th scores hardly rise
        self._claims, self._said = pairs_of(np.empty((self.nq, 0), np.int64)), np.full(self.nq, np.float32(-np.inf))

    def seed(self) -> None:
        """Score the rows of greatest bounds among some from all over the store."""
        most = max(FEW_PARTS, self.truth.vectors.parts // READ_SHARE)
        parts, rows = seeds(self.codes.parts, self._part_rows, self.codes.rows, most)
        width = min(2 * self.k, sum(min(rows, self._rows_of(range(part, part + 1))) for part in parts))
        queries, named = pairs_of(self.batch.scan(parts, width, rows=rows).ids)
        every, places = np.unique(named, return_inverse=True)
        scores = self.batch.fetched(every)(places, queries, Threshold(self.k, self.scored.least))
        self.scored.add(queries, named, scores)
        self._know(queries, named)
        self._first_share = FIRST_SHARE

    def start(self, rows: NDArray[np.int64]) -> None:
        """Score the first rows of each query, int64[nq, R]: no row twice, −1 for none."""
        queries, named = pairs_of(rows)
        self.scored.add(queries, named, self.batch.scores(queries, named))
        self._know(queries, named)

    def expect(self, rows: NDArray[np.int64], least: Float32) -> None:
        """Take the word of a claim for scores, until its rows are scored in their windows: so they are fetched once.

        Queries of which too much was said are given up in the end.

        Parameters
        ----------
        rows : int64[nq, k], distinct for each query
        least : float32[nq]
            What the k-th score is said to reach.
        """
        queries, named = pairs_of(rows)
        order = np.argsort(named, kind="stable")
        self._claims, self._said = (queries[order], named[order]), least
        self._know(queries, named)

    def sweep(self) -> None:
        """Score what the bounds leave, window by window; give all queries up once bounds fail for many of them."""
        for parts in windows(self.codes.parts, self._part_rows, self.nq, self.truth.window, self._first_share):
            if self.failing.mean() > MANY_FAILING:  # every row's score costs others little more than it does those
                self.failing[:] = True
                return
            least = np.where(self.failing, np.float32(np.inf), np.maximum(self.scored.least, self._said))
            self._score(self._collect(parts, least), parts)
        self.failing |= self._said > self.scored.least

    def proved(self) -> ExactAnswers:
        """Return the proofs; those of queries that were given up prove nothing."""
        every = self.scored.counts == self.truth.vectors.rows
        greatest = np.where(every, -np.inf, self.greatest)
        return self.scored.proved(self.truth, self.batch.queries, greatest, self.batch.raw)

    def _know(self, queries: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        """Remember pairs that bounds need not find."""
        self._seeds = queries * self.truth.vectors.rows + rows
        self._seed_rows[rows] = True

    def _collect(self, parts: range, least: Float32) -> Pairs:
        """Return the pairs of some parts whose bound reaches the query's least; give up queries that have too many."""
        found = self.batch.collect(parts, least, self.budget)
        counts, rows = np.bincount(found.pairs.queries, minlength=self.nq), self._rows_of(parts)
        self.failing |= found.failing | too_many(counts, rows, self.budget)
        return found.pairs

    def _score(self, pairs: Pairs, parts: range) -> None:
        """Score the pairs of a window: of each query the greatest bounds first, then what still reaches."""
        first, behind = self._bounds(parts[0])[0], self._bounds(parts[-1])[1]
        known = self._known(pairs)
        pairs = joined([self._claimed(first, behind), chosen(pairs, ~known) if known.any() else pairs])
        wanted = np.zeros(behind - first, np.bool_)
        wanted[pairs.rows - first] = True
        places = np.cumsum(wanted) - 1
        true_scores = self.batch.fetched(np.flatnonzero(wanted) + first)
        greatest = TopK(self.nq, 2 * self.k, np.float32)
        greatest.insert(pairs.queries, pairs.rows, pairs.bounds)

        def score(some: Pairs) -> None:
            threshold = Threshold(self.k, self.scored.least)
            self.scored.add(some.queries, some.rows, true_scores(places[some.rows - first], some.queries, threshold))

        ahead = self._few(pairs, pairs.bounds >= greatest.kth[pairs.queries])
        score(chosen(pairs, ahead))
        least = self.scored.least
        left = ~ahead & (pairs.bounds >= least[pairs.queries])
        self.failing |= too_many(np.bincount(pairs.queries[left], minlength=self.nq), behind - first, self.budget)
        score(chosen(pairs, left & ~self.failing[pairs.queries]))
        self.greatest = np.maximum(self.greatest, np.maximum(least, self._said))

    def _claimed(self, first: int, behind: int) -> Pairs:
        """Return the pairs that are claimed of rows from ``first`` to ``behind``, before all others."""
        queries, rows = self._claims
        here = slice(*np.searchsorted(rows, [first, behind]))
        return Pairs(queries[here], rows[here], np.full(len(rows[here]), np.inf, np.float32))

    def _few(self, pairs: Pairs, some: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of some pairs are of queries that have few such: equal bounds may make them many."""
        counts = np.bincount(pairs.queries[some], minlength=self.nq)
        return some & (counts <= FEW_ROWS + 2 * self.k)[pairs.queries]

    def _known(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Return which pairs were scored already, or are claimed."""
        rows = self.truth.vectors.rows
        known = self._seed_rows[pairs.rows]  # of most no query is known, which is fast to tell
        some = np.flatnonzero(known)
        known[some] = np.isin(pairs.queries[some] * rows + pairs.rows[some], self._seeds)
        return known

    @property
    def _part_rows(self) -> int:
        return self.codes.store.layout.part_rows

    def _bounds(self, part: int) -> tuple[int, int]:
        return self.codes.store.bounds(part)

    def _rows_of(self, parts: range) -> int:
        return self._bounds(parts[-1])[1] - self._bounds(parts[0])[0]


def pairs_of(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the queries and the rows of int64[nq, R], −1 for none."""
    found = rows >= 0
    return np.nonzero(found)[0], rows[found]


def seeds(parts: int, part_rows: int, rows: int, most: int = SEED_PARTS) -> tuple[list[int], int]:
    """Return parts from all over a store, at most so many, and how many rows of each to begin with."""
    count = min(parts, SEED_PARTS, most)
    each = -(-max(min(SEED_ROWS, rows // MOST_SEEDS), rows // SEED_SHARE, 1) // count)
    return [place * parts // count for place in range(count)], min(each, part_rows)


def window_rows(part_rows: int, queries: int, parts: int | None = None) -> int:
    """Return the rows whose bounds are compared before k-th scores are raised: whole parts, so many if that is said."""
    if parts is not None:
        return parts * part_rows
    return part_rows * max(PARTS_AT_ONCE, WINDOW_PAIRS // (part_rows * queries))


def windows(
    parts: int, part_rows: int, queries: int, window: int | None = None, first_share: int = 1
) -> Iterator[range]:
    """Yield runs of parts for a batch of queries, ascending, the first so many times smaller than they become.

    K-th scores are raised between them, and rise most in the first.
    """
    start, most = 0, window_rows(part_rows, queries, window) // part_rows
    size = max(1, min(most, parts) // first_share)
    while start < parts:
        stop = min(parts, start + size)
        yield range(start, stop)
        start, size = stop, min(most, GROWTH * size)

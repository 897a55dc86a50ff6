"""Search by bounds: the true kernel is computed where an upper bound reaches the k-th score so far."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.best import Best, merge
from pipeline.encoders.encoder import Encoder
from pipeline.encoders.kpca_bound import KpcaBound
from pipeline.kernels.kernel import Float32, Float64
from pipeline.parallel import over_parts, read_ahead
from pipeline.proofs import Proved, Scored
from pipeline.rerank import fetch, pair_scores, true_scores
from pipeline.scan import OpenCodes, part_reader
from pipeline.scanners.bounds import FEW_ROWS, BoundScanner, Pairs, chosen, joined
from pipeline.truth import Truth

SEED_PARTS, SEED_SHARE, SEED_ROWS = 8, 64, 4096  # one row in 64, and at least 4 096, of so many parts are seeds
WINDOW_PAIRS = 1 << 26  # of rows and queries whose bounds are compared before k-th scores are raised
FIRST_SHARE = 16  # the first window is so many times smaller
PARTS_AT_ONCE = 16  # at least, so that threads have enough to share
FAILING, A_ROW = 0.05, 2  # the true score of every row costs so much of a pair a query, and so many pairs a row


class Bounded:
    """A batch of queries in a search by bounds: what was scored, and the greatest bound that was not.

    ``failing`` bool[nq] are the queries for which bounds rule too little out: they are given up, sooner where
    memory is short and windows are small.
    """

    def __init__(self, truth: Truth, codes: OpenCodes, queries: NDArray[Any], k: int, *, beta: float) -> None:
        scanner = scanner_of(codes.encoder, queries, beta)
        self.truth, self.codes, self.raw, self.k, self.scanner = truth, codes, queries, k, scanner
        self.prepared = truth.kernel.prepare(queries, label="query")
        self.scored = Scored(len(queries), k, truth.slack)
        self.greatest = np.full(len(queries), -np.inf)
        self.failing = np.zeros(len(queries), np.bool_)
        self._seeds = np.empty(0, np.int64)  # the pairs scored first, as query · n + row
        self._seed_rows = np.zeros(truth.vectors.rows, np.bool_)

    def seed(self) -> None:
        """Score the rows of greatest bounds among some from all over the store."""
        parts, rows = seeds(self.codes.store.parts, self._part_rows, self.codes.store.rows)
        shape = len(self.raw), min(2 * self.k, sum(min(rows, self._rows_of(part)) for part in parts))

        def work(taken: Iterator[int]) -> Best:
            best = Best(*shape, np.float32)
            for part, columns in read_ahead(taken, part_reader(self.codes, self.scanner.names)):
                some = {name: values[:rows] for name, values in columns.items()}
                self.scanner.scan(some, self._bounds(part)[0], best)
            return best

        self.start(merge(over_parts(parts, self.truth.threads, work)).ids)

    def start(self, rows: NDArray[np.int64]) -> None:
        """Score the first rows of each query, int64[nq, R]: no row twice, −1 for none."""
        scores = true_scores(self.truth.vectors, self.truth.kernel, self.raw, rows, threads=self.truth.threads)
        found = rows >= 0
        queries = np.nonzero(found)[0]
        self.scored.add(queries, rows[found], scores[found])
        self._seeds = queries * self.truth.vectors.rows + rows[found]
        self._seed_rows[rows[found]] = True

    def sweep(self) -> None:
        """Score what the bounds leave, window by window."""
        for parts in windows(self.codes.store.parts, self._part_rows, len(self.raw), self.truth.window):
            least = np.where(self.failing, np.float32(np.inf), self.scored.least)
            pairs = self._collect(parts, least)
            self._score(pairs, parts)

    def proved(self) -> Proved:
        """Return the proofs; those of queries that were given up prove nothing."""
        every = self.scored.counts == self.truth.vectors.rows
        return self.scored.proved(self.truth, self.raw, np.where(every, -np.inf, self.greatest))

    def _collect(self, parts: range, least: Float32) -> Pairs:
        """Return the pairs of some parts whose bound reaches the query's least; give up queries that have too many."""
        rows = self._bounds(parts[-1])[1] - self._bounds(parts[0])[0]

        def work(taken: Iterator[int]) -> list[Pairs]:
            read = part_reader(self.codes, self.scanner.names)
            found: list[Pairs] = []

            for part, columns in read_ahead(taken, read):
                if self.failing.all():
                    return found
                limits = np.where(self.failing, np.float32(np.inf), least) if self.failing.any() else least
                pairs, failing = self.scanner.collect(columns, self._bounds(part)[0], limits, self._too_many)
                self.failing |= failing
                found.append(pairs)
            return found

        pairs = joined([pairs for found in over_parts(list(parts), self.truth.threads, work) for pairs in found])
        self.failing |= self._too_many(np.bincount(pairs.queries, minlength=len(self.raw)), rows)
        return pairs

    def _score(self, pairs: Pairs, parts: range) -> None:
        """Score the pairs of a window: of each query the greatest bounds first, then what still reaches."""
        pairs = chosen(pairs, ~self._scored(pairs))
        first, behind = self._bounds(parts[0])[0], self._bounds(parts[-1])[1]
        wanted = np.zeros(behind - first, np.bool_)
        wanted[pairs.rows - first] = True
        places = np.cumsum(wanted) - 1
        values = fetch(self.truth.vectors, np.flatnonzero(wanted) + first, threads=self.truth.threads)
        greatest = Best(len(self.raw), 2 * self.k, np.float32)
        greatest.insert(pairs.queries, pairs.rows, pairs.bounds)
        ahead = self._few(pairs, pairs.bounds >= greatest.kth[pairs.queries])
        self._add(chosen(pairs, ahead), values, places, first)
        least = self.scored.least
        left = ~ahead & (pairs.bounds >= least[pairs.queries])
        self.failing |= self._too_many(np.bincount(pairs.queries[left], minlength=len(self.raw)), behind - first)
        self._add(chosen(pairs, left & ~self.failing[pairs.queries]), values, places, first)
        self.greatest = np.maximum(self.greatest, least)

    def _few(self, pairs: Pairs, some: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of some pairs are of queries that have few such: equal bounds may make them many."""
        counts = np.bincount(pairs.queries[some], minlength=len(self.raw))
        return some & (counts <= FEW_ROWS + 2 * self.k)[pairs.queries]

    def _too_many(self, pairs: NDArray[np.int64], rows: int) -> NDArray[np.bool_]:
        """Return the queries with most pairs among so many rows, if every row's score is cheaper than all of theirs."""
        many = pairs > FEW_ROWS + 2 * self.k + FAILING * rows
        a_row = A_ROW if self.truth.window is None else 0
        cheaper = int(pairs[many].sum()) > (FAILING * int(many.sum()) + a_row) * rows
        return many if cheaper else np.zeros_like(many)

    def _add(self, pairs: Pairs, values: NDArray[Any], places: NDArray[np.int64], first: int) -> None:
        """Score pairs, the raw rows of which are ``values`` at the ``places`` of their numbers from ``first`` on."""
        scores = self._true_scores(values, places[pairs.rows - first], pairs.queries)
        self.scored.add(pairs.queries, pairs.rows, scores)

    def _true_scores(self, values: NDArray[Any], at: NDArray[np.int64], queries: NDArray[np.int64]) -> Float64:
        """Return the true scores of pairs (values[at], queries)."""
        return pair_scores(self.truth.kernel, values, self.prepared, (at, queries), threads=self.truth.threads)

    def _scored(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Return which pairs were scored already."""
        rows = self.truth.vectors.rows
        scored = self._seed_rows[pairs.rows]  # of most no query is scored, which is fast to tell
        some = np.flatnonzero(scored)
        scored[some] = np.isin(pairs.queries[some] * rows + pairs.rows[some], self._seeds)
        return scored

    @property
    def _part_rows(self) -> int:
        return self.codes.store.store.layout.part_rows

    def _bounds(self, part: int) -> tuple[int, int]:
        return self.codes.store.store.bounds(part)

    def _rows_of(self, part: int) -> int:
        first, last = self._bounds(part)
        return last - first


def scanner_of(encoder: Encoder, queries: NDArray[Any], beta: float) -> BoundScanner:
    """Return queries ready to be bounded, or (β < 1) to be scored by a relaxed bound of kernel PCA."""
    if beta < 1:
        assert isinstance(encoder, KpcaBound)
        return encoder.relaxed_scanner(queries, beta)
    scanner = encoder.scanner(queries)
    assert isinstance(scanner, BoundScanner)
    return scanner


def seeds(parts: int, part_rows: int, rows: int) -> tuple[list[int], int]:
    """Return parts from all over a store, and how many rows of each to begin with."""
    count = min(parts, SEED_PARTS)
    each = -(-max(SEED_ROWS, rows // SEED_SHARE) // count)
    return [place * parts // count for place in range(count)], min(each, part_rows)


def window_rows(part_rows: int, queries: int, parts: int | None = None) -> int:
    """Return the rows whose bounds are compared before k-th scores are raised: whole parts, so many if that is said."""
    if parts is not None:
        return parts * part_rows
    return part_rows * max(PARTS_AT_ONCE, WINDOW_PAIRS // (part_rows * queries))


def windows(parts: int, part_rows: int, queries: int, window: int | None = None) -> Iterator[range]:
    """Yield runs of parts for a batch of queries, ascending; the first is small, for k-th scores rise most there."""
    start, size = 0, window_rows(part_rows, queries, window) // part_rows
    while start < parts:
        stop = min(parts, start + (size if start else max(1, min(size, parts) // FIRST_SHARE)))
        yield range(start, stop)
        start = stop

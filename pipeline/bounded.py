"""Search by bounds: the true kernel is computed where an upper bound reaches the k-th score so far."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.best import Best
from pipeline.encoders.encoder import Encoder
from pipeline.encoders.kpca_bound import KpcaBound
from pipeline.kernels.kernel import Float32, Float64
from pipeline.parallel import over_parts, read_ahead
from pipeline.proofs import Proved, Scored
from pipeline.rerank import fetch, pair_scores, true_scores
from pipeline.scan import OpenCodes, part_reader, scan_parts
from pipeline.scanners.bounds import BoundScanner, Pairs, chosen, joined
from pipeline.truth import Truth

SEED_SHARE, SEED_ROWS = 32, 4096  # one in so many parts, and at least so many rows, give the first k-th scores
WINDOW_PAIRS = 1 << 26  # of rows and queries whose bounds are compared before k-th scores are raised
PARTS_AT_ONCE = 16  # at least, so that threads have enough to share
EARLY = 8  # the first window is so many times smaller than the store: bounds that fail are noticed there
GIVEN_UP, EARLY_FAILING, FAILING = 0.10, 0.05, 0.02  # shares of rows above which scoring every row is cheaper
FEW_ROWS = 64  # that a query may always score in a window


class Bounded:
    """A batch of queries in a search by bounds: what was scored, and the greatest bound that was not."""

    def __init__(self, truth: Truth, codes: OpenCodes, queries: NDArray[Any], k: int, *, beta: float) -> None:
        scanner = scanner_of(codes.encoder, queries, beta)
        self.truth, self.codes, self.raw, self.k, self.scanner = truth, codes, queries, k, scanner
        self.prepared = truth.kernel.prepare(queries, label="query")
        self.scored = Scored(len(queries), k, truth.slack)
        self.greatest = np.full(len(queries), -np.inf)
        self._seeds = np.empty(0, np.int64)  # the pairs scored first, as query · n + row
        self._seed_rows = np.zeros(truth.vectors.rows, np.bool_)

    def seed(self) -> None:
        """Score the rows of greatest bounds in parts from all over the store."""
        parts = seed_parts(self.codes.store.parts, self._part_rows)
        shape = len(self.raw), min(2 * self.k, sum(self._rows_of(part) for part in parts))
        self.start(scan_parts(self.codes, self.scanner, parts, shape, threads=self.truth.threads).ids)

    def start(self, rows: NDArray[np.int64]) -> None:
        """Score the first rows of each query, int64[nq, R]: no row twice, −1 for none."""
        scores = true_scores(self.truth.vectors, self.truth.kernel, self.raw, rows, threads=self.truth.threads)
        found = rows >= 0
        queries = np.nonzero(found)[0]
        self.scored.add(queries, rows[found], scores[found])
        self._seeds = queries * self.truth.vectors.rows + rows[found]
        self._seed_rows[rows[found]] = True

    def sweep(self, *, early: bool) -> NDArray[np.bool_]:
        """Score what the bounds leave, window by window; return the queries whose bounds fail, which are given up."""
        failing = np.zeros(len(self.raw), np.bool_)
        for parts in windows(self.codes.store.parts, self._part_rows, len(self.raw), early=early):
            least = np.where(failing, np.float32(np.inf), self.scored.least)
            collected, failed = self._collect(parts, least, EARLY_FAILING if early else FAILING)
            failing |= failed
            self._score(chosen(collected, ~failing[collected.queries]), parts)
            self.greatest = np.maximum(self.greatest, least)
        return failing

    def proved(self) -> Proved:
        """Return the proofs."""
        return self.scored.proved(self.truth, self.raw, self.greatest)

    def _collect(self, parts: range, least: Float32, most: float) -> tuple[Pairs, NDArray[np.bool_]]:
        """Return the pairs of some parts whose bound reaches the query's least, and which queries have too many.

        Too many are more than a share ``most`` of the rows.
        """
        bounds, nq = self.codes.store.store.bounds, len(self.raw)

        def work(taken: Iterator[int]) -> list[tuple[Pairs, NDArray[np.bool_]]]:
            found = []
            for part, columns in read_ahead(taken, part_reader(self.codes, self.scanner.names)):
                found.append(self.scanner.collect(columns, bounds(part)[0], least, GIVEN_UP))
            return found

        found = [one for each in over_parts(list(parts), self.truth.threads, work) for one in each]
        pairs = joined([one for one, _ in found])
        failing = np.logical_or.reduce([failed for _, failed in found])
        rows = bounds(parts[-1])[1] - bounds(parts[0])[0]
        return pairs, failing | (np.bincount(pairs.queries, minlength=nq) > FEW_ROWS + most * rows)

    def _score(self, pairs: Pairs, parts: range) -> None:
        """Score the pairs of a window: of each query the greatest bounds first, then what still reaches."""
        pairs = chosen(pairs, ~self._scored(pairs))
        first = self.codes.store.store.bounds(parts[0])[0]
        wanted = np.zeros(self.codes.store.store.bounds(parts[-1])[1] - first, np.bool_)
        wanted[pairs.rows - first] = True
        rows_wanted = np.flatnonzero(wanted)
        places = np.cumsum(wanted) - 1
        values = fetch(self.truth.vectors, rows_wanted + first, threads=self.truth.threads)
        greatest = Best(len(self.raw), 2 * self.k, np.float32)
        greatest.insert(pairs.queries, pairs.rows, pairs.bounds)
        ahead = pairs.bounds >= greatest.kth[pairs.queries]
        for some in (np.flatnonzero(ahead), np.flatnonzero(~ahead)):
            reaching = pairs.bounds[some] >= self.scored.least[pairs.queries[some]]
            queries, rows = pairs.queries[some][reaching], pairs.rows[some][reaching]
            at = places[rows - first]
            self.scored.add(queries, rows, self._true_scores(values, at, queries))

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

    def _rows_of(self, part: int) -> int:
        first, last = self.codes.store.store.bounds(part)
        return last - first


def scanner_of(encoder: Encoder, queries: NDArray[Any], beta: float) -> BoundScanner:
    """Return queries ready to be bounded, or (β < 1) to be scored by a relaxed bound of kernel PCA."""
    if beta < 1:
        assert isinstance(encoder, KpcaBound)
        return encoder.relaxed_scanner(queries, beta)
    scanner = encoder.scanner(queries)
    assert isinstance(scanner, BoundScanner)
    return scanner


def seed_parts(parts: int, part_rows: int) -> list[int]:
    """Return parts from all over a store: one in 32, and enough for 4 096 rows."""
    count = min(parts, max(-(-parts // SEED_SHARE), -(-SEED_ROWS // part_rows)))
    return sorted({place * parts // count for place in range(count)})


def window_rows(part_rows: int, queries: int) -> int:
    """Return the rows whose bounds are compared before k-th scores are raised: whole parts."""
    return part_rows * max(PARTS_AT_ONCE, WINDOW_PAIRS // (part_rows * queries))


def windows(parts: int, part_rows: int, queries: int, *, early: bool) -> Iterator[range]:
    """Yield runs of parts for a batch of queries: the early one alone, or all behind it."""
    first = max(1, parts // EARLY)
    if early:
        yield range(first)
        return
    size = window_rows(part_rows, queries) // part_rows
    for start in range(first, parts, size):
        yield range(start, min(start + size, parts))

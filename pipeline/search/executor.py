"""Who works on the parts of the stores that are searched: the contract, and threads of this process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBound
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.scanners.bounds import BoundScanner
from mercore.pipeline.scanners.scanner import Scanner
from mercore.pipeline.search import exhaustive
from mercore.pipeline.search.answers import ExactAnswers
from mercore.pipeline.search.collect import Collected, PairBudget, collect
from mercore.pipeline.search.rerank import Kept, Prepared, Threshold, fetch, pair_scores, scores_of_pairs
from mercore.pipeline.search.scan import OpenCodes, scan_parts
from mercore.pipeline.topk import TopK, top_k_of
from mercore.stores.vectors import VectorCache, Vectors, WatchedVectors

HELD_BYTES = 1 << 24  # of the parts that rows are fetched from first: those of a small store are read once a batch
Ids = NDArray[np.int64]
ScorePairs = Callable[[Ids, Ids, Threshold], Float64]


class QueryBatch(Protocol):
    """A batch of raw queries in the hands of a crew.

    What it answers is the same to the bit whoever works, and however many do; rows are shared out by parts.
    """

    @property
    def queries(self) -> NDArray[Any]:
        """The raw queries, dtype[nq, d]."""
        ...

    def scan(self, parts: Sequence[int], width: int, *, rows: int | None = None) -> TopK:
        """Return the ``width`` best by code among some parts of the codes, or the first ``rows`` rows of each."""
        ...

    def collect(self, parts: Sequence[int], least: Float32, budget: PairBudget) -> Collected:
        """Return the pairs in some parts of the codes whose bound reaches ``least`` float32[nq]."""
        ...

    def nearest(self, k: int) -> TopK:
        """Return the k best of all vectors by the true kernel, float64."""
        ...

    def scores(self, queries: Ids, rows: Ids) -> Float64:
        """Return the true scores of pairs, float64[p]; a part that holds a row of theirs is read once."""
        ...

    def fetched(self, rows: Ids) -> ScorePairs:
        """Fetch rows int64[p], ascending; return what scores pairs (see ``pair_scores``)."""
        ...

    def raw(self, rows: Ids) -> NDArray[Any]:
        """Return raw rows, dtype[p, d]; ``rows`` int64[p] ascend."""
        ...


class SingleExecutor(Protocol):
    """One worker of a crew, who searches for a whole batch of queries by itself."""

    def answer(self, queries: NDArray[Any], k: int, rerank: int | None) -> TopK:
        """Return what ``answer`` does."""
        ...

    def prove(
        self, queries: NDArray[Any], k: int, *, beta: float, seeds: Ids | None, least: Float32 | None
    ) -> ExactAnswers:
        """Return what ``ExactSearch.prove`` does."""
        ...


class Executor(Protocol):
    """Who searches, on vectors and codes that are open already."""

    @property
    def concurrent_batches(self) -> int:
        """Batches that are best worked on at the same time."""
        ...

    def alone(self) -> SingleExecutor | None:
        """Return who takes the next batch by itself, or None where all share its parts out, as ``batch`` does."""
        ...

    def batch(self, queries: NDArray[Any], *, beta: float = 1.0) -> QueryBatch:
        """Take in raw queries; with β < 1, bounds are relaxed."""
        ...

    def check_rest(self) -> None:
        """Read what nobody has read; raise ``IntegrityError`` if a byte of a store is not the one that was written."""
        ...


@dataclass(frozen=True, kw_only=True)
class ThreadExecutor:
    """Threads of this process: a crew. Without vectors it only scans, without codes it only scores."""

    kernel: Kernel
    threads: int = 1
    vectors: Vectors | None = None
    codes: OpenCodes | None = None
    concurrent_batches: ClassVar[int] = 1

    def alone(self) -> None:
        """Return None: threads share all parts out."""

    def batch(self, queries: NDArray[Any], *, beta: float = 1.0) -> "ThreadBatch":
        """Take in raw queries; with β < 1, bounds are relaxed."""
        return ThreadBatch(self, queries, beta)

    def check_rest(self) -> None:
        """Read what nobody has read; raise ``IntegrityError`` if a byte of a store is not the one that was written."""
        if isinstance(self.vectors, WatchedVectors):
            self.vectors.check_rest()
        if self.codes is not None:
            self.codes.check_rest()

    def check(self, codes: Sequence[int], vectors: Sequence[int]) -> None:
        """Read parts; raise ``IntegrityError`` if a byte is not the one that was written."""
        for part in vectors:
            assert self.vectors is not None
            self.vectors.read_part(part)
        if self.codes is not None:
            self.codes.check(codes)

    def fetch(self, rows: Ids) -> NDArray[Any]:
        """Return raw rows, dtype[len(rows), d]; ``rows`` ascend."""
        assert self.vectors is not None
        return fetch(self.vectors, rows, threads=self.threads)


class ThreadBatch:
    """A batch of queries, made ready for each kind of work when it is first asked for: see ``QueryBatch``."""

    def __init__(self, executor: ThreadExecutor, queries: NDArray[Any], beta: float) -> None:
        self.executor, self.queries, self.beta = executor, queries, beta
        self._lock = Lock()  # for a worker whose threads share the batch

    def scan(self, parts: Sequence[int], width: int, *, rows: int | None = None) -> TopK:
        """Return the ``width`` best by code among some parts of the codes, or the first ``rows`` rows of each."""
        shape = len(self.queries), width
        return scan_parts(self._codes, self.scanner, (parts, rows), shape, threads=self.executor.threads)

    def collect(self, parts: Sequence[int], least: Float32, budget: PairBudget) -> Collected:
        """Return the pairs in some parts of the codes whose bound reaches ``least`` float32[nq]."""
        scanner = self.scanner
        assert isinstance(scanner, BoundScanner)
        return collect(self._codes, scanner, parts, (least, budget), threads=self.executor.threads)

    def nearest(self, k: int) -> TopK:
        """Return the k best of all vectors by the true kernel, float64."""
        return self.nearest_of(range(self._vectors.parts), k)

    def nearest_of(self, parts: Sequence[int], k: int) -> TopK:
        """Return the k best of some parts of the vectors by the true kernel, float64."""
        return exhaustive.search_parts(self._vectors, self.packed, parts, k, threads=self.executor.threads)

    def scores(self, queries: Ids, rows: Ids) -> Float64:
        """Return the true scores of pairs, float64[p]; a part that holds a row of theirs is read once."""
        return scores_of_pairs(self._vectors, self.prepared, (queries, rows), threads=self.executor.threads)

    def fetched(self, rows: Ids) -> ScorePairs:
        """Fetch rows int64[p], ascending; return what scores pairs (see ``pair_scores``)."""
        values = fetch(self._held, rows, threads=self.executor.threads)

        def scores(at: Ids, queries: Ids, threshold: Threshold) -> Float64:
            found = self.scores_of(values, at, queries, threshold)
            near = np.zeros(len(rows), np.bool_)
            near[at[found > -np.inf]] = True
            self._kept.keep(rows, values, np.flatnonzero(near))
            return found

        return scores

    def raw(self, rows: Ids) -> NDArray[Any]:
        """Return raw rows, dtype[p, d]; those that came near a query are not read again."""
        return self._kept.fetch(rows)

    def scores_of(self, values: NDArray[Any], at: Ids, queries: Ids, threshold: Threshold) -> Float64:
        """Return the true scores of pairs (values[at], queries), −inf where the cut leaves one out."""
        return pair_scores(self.prepared, values, (at, queries), threshold, threads=self.executor.threads)

    @property
    def scanner(self) -> Scanner:
        """The queries, ready to be scored against codes or bounded."""
        with self._lock:
            return self._scanner

    @property
    def prepared(self) -> Prepared:
        """The queries, ready for pairs to be scored."""
        with self._lock:
            return self._prepared

    @property
    def packed(self) -> exhaustive.RowsBatch:
        """The queries, ready to be scored against every row."""
        with self._lock:
            return self._packed

    @cached_property
    def _scanner(self) -> Scanner:
        encoder = self._codes.encoder
        if self.beta == 1:
            return encoder.scanner(self.queries)
        assert isinstance(encoder, KpcaBound)
        return encoder.relaxed_scanner(self.queries, self.beta)

    @cached_property
    def _held(self) -> Vectors:
        return VectorCache(self._vectors, HELD_BYTES)

    @cached_property
    def _kept(self) -> Kept:
        return Kept(self._held, self.executor.threads)

    @cached_property
    def _prepared(self) -> Prepared:
        return Prepared(self.executor.kernel, self.queries)

    @cached_property
    def _packed(self) -> exhaustive.RowsBatch:
        return exhaustive.RowsBatch(self.executor.kernel, self.queries)

    @property
    def _codes(self) -> OpenCodes:
        assert self.executor.codes is not None
        return self.executor.codes

    @property
    def _vectors(self) -> Vectors:
        assert self.executor.vectors is not None
        return self.executor.vectors


def answer(batch: QueryBatch, parts: Sequence[int] | None, k: int, rerank: int | None) -> TopK:
    """Return the k best by code, or of the R best by code by the true kernel; of all vectors if there are no codes."""
    if parts is None:
        return batch.nearest(k)
    best = batch.scan(parts, rerank or k)
    return best if rerank is None else top_k_of(true_scores(batch, best.ids), best.ids, k)


def true_scores(batch: QueryBatch, rows: Ids) -> Float64:
    """Return the true score of each query and each of its rows int64[nq, R], float64[nq, R]; −inf where a row is −1."""
    scores = np.full(rows.shape, -np.inf)
    found = rows >= 0
    scores[found] = batch.scores(np.nonzero(found)[0], rows[found])
    return scores

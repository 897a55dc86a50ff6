"""An executor on threads of this process, for batches of queries that run at the same time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.collector import Kept, NewCollector
from mercore.pipeline.encoders.encoder import BoundEncoder
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.parallel import over_parts
from mercore.pipeline.scanners.scanner import Bounds, Scanner
from mercore.pipeline.search import exhaustive
from mercore.pipeline.search.collect import Collected, PairBudget, collect
from mercore.pipeline.search.executor import Ids, ScorePairs
from mercore.pipeline.search.fetch import RowCache, fetch
from mercore.pipeline.search.rerank import Prepared, Threshold, pair_scores, scores_of_pairs
from mercore.pipeline.search.scan import OpenCodes, scan_parts
from mercore.pipeline.topk import TopK
from mercore.stores.codes import SelectedCodes
from mercore.stores.selection import Selection
from mercore.stores.vector_views import VectorCache, WatchedVectors, selected_vectors
from mercore.stores.vectors import Vectors

PART_CACHE_BYTES = 1 << 24  # of vectors, kept per batch: a small store is read once per batch
AHEAD_BYTES = 1 << 28  # of vectors, at most, that the system reads while codes are scanned


def shares(batches: int, threads: int) -> list[int]:
    """Return the number of threads of each batch.

    A thread takes a complete batch where it can: little of that work waits for other threads. The
    last batches, too few for all threads, share them out.
    """
    last = batches % threads
    shared = [threads // last + (number < threads % last) for number in range(last)]
    return [1] * (batches - last) + shared


@dataclass(frozen=True, kw_only=True)
class ThreadExecutor:
    """An executor on ``threads`` threads of this process, for a number of ``batches``.

    Where there are several batches, each has a share of the threads (see ``shares``). The threads
    of a share take the parts of the open vectors and codes in turn. Without vectors it can only
    scan codes; without codes it can only score vectors.
    """

    kernel: Kernel
    threads: int = 1
    batches: int = 1
    vectors: Vectors | None = None
    codes: OpenCodes | None = None

    @property
    def rows(self) -> int:
        """The number of rows that are searched."""
        store = self.codes.store if self.codes else self.vectors
        assert store is not None
        return store.rows

    @property
    def concurrent_batches(self) -> int:
        """The number of batches to work on at the same time."""
        return min(self.batches, self.threads)

    def share(self) -> "ThreadExecutor":
        """Return the executor of the next batch, with its share of the threads."""
        if self.concurrent_batches == 1:
            return self
        return replace(self, threads=next(self._shares, 1), batches=1)

    @cached_property
    def _shares(self) -> Iterator[int]:
        return iter(shares(self.batches, self.threads))

    def among(self, selection: Selection) -> "ThreadExecutor":
        """Return the executor of one batch that meets selected rows alone, in their numbers."""
        codes = self.codes
        if codes is not None:
            codes = replace(codes, store=SelectedCodes(codes.store, selection), checked=set())
        vectors = selected_vectors(self.vectors, selection) if self.vectors else None
        return replace(self, vectors=vectors, codes=codes, batches=1)

    def single_worker(self) -> None:
        """Return None: the threads share the parts of every batch."""

    def batch(self, queries: NDArray[Any], *, beta: float | None = None) -> "ThreadBatch":
        """Return a batch of raw queries: see ``Executor``."""
        return ThreadBatch(self, queries, beta)

    def check_rest(self) -> None:
        """Read the parts that no search has read: see ``Executor``."""
        vectors = self.vectors.unread if isinstance(self.vectors, WatchedVectors) else []
        codes = self.codes.unread if self.codes else []
        over_parts(vectors, self.threads, lambda parts: self.check([], parts))
        over_parts(codes, self.threads, lambda parts: self.check(parts, []))

    def check(self, codes: Iterable[int], vectors: Iterable[int]) -> None:
        """Read the given parts.

        Raise ``IntegrityError`` if a byte differs from the byte that was written.
        """
        for part in vectors:
            assert self.vectors is not None
            self.vectors.check_part(part)
        if self.codes is not None:
            self.codes.check(codes)

    def fetch(self, rows: Ids) -> NDArray[Any]:
        """Return raw rows, dtype[len(rows), d]; ``rows`` ascend."""
        assert self.vectors is not None
        return fetch(self.vectors.look_up(rows), threads=self.threads)


class ThreadBatch:
    """A batch of queries (see ``QueryBatch``), prepared for each kind of work on its first use."""

    def __init__(self, executor: ThreadExecutor, queries: NDArray[Any], beta: float | None) -> None:
        self.executor, self.queries, self.beta = executor, queries, beta
        self._lock = Lock()  # for the threads of a Dask worker, which share the batch
        self._fetches_most = False  # whether the last rows were of most parts in their range

    def scan(self, parts: Sequence[int], width: int, rows: int | None = None) -> TopK:
        """Return each query's top ``width`` by code in parts, or in their first ``rows`` rows."""
        shape = len(self.queries), width
        return scan_parts(
            self._codes, self.scanner, (parts, rows), shape, threads=self.executor.threads
        )

    def collect(self, parts: Sequence[int], least: Float32, budget: PairBudget) -> Collected:
        """Return the pairs in some parts of the codes whose bound reaches ``least`` float32[nq]."""
        bounds = cast(Bounds, self.scanner)
        if self._fetches_most:
            self._read_vectors_soon(parts)
        return collect(self._codes, bounds, parts, (least, budget), threads=self.executor.threads)

    def score_every_row(self, new: NewCollector[Kept]) -> Kept:
        """Score every row by the true kernel in float64; return the filled collector."""
        return self.score_parts(range(self._vectors.parts), new)

    def score_parts(self, parts: Sequence[int], new: NewCollector[Kept]) -> Kept:
        """Score the rows of some parts by the true kernel; return the filled collector."""
        return exhaustive.search_parts(
            self._vectors, self.packed, parts, new, threads=self.executor.threads
        )

    def scores(self, rows: Ids, queries: NDArray[np.integer[Any]], k: int | None = None) -> Float64:
        """Return the true scores of pairs, float64[p].

        Each part that holds one of the rows is read once. With ``k``, the score of a pair that
        cannot be among the query's k best may be −inf.
        """
        pairs = rows, queries.astype(np.int64, copy=False)
        return scores_of_pairs(
            self._vectors, self.prepared, pairs, threads=self.executor.threads, k=k
        )

    def fetch_to_score(self, rows: Ids) -> ScorePairs:
        """Fetch rows int64[p], ascending.

        Return a function that scores pairs of them (see ``QueryBatch``).
        """
        lookup = self._part_cache.look_up(rows)
        values = fetch(lookup, threads=self.executor.threads)
        if len(rows):
            first, last = self._vectors.parts_of(rows[[0, -1]])[[0, -1]]
            self._fetches_most = bool(2 * lookup.whole_parts > last - first + 1)

        def scores(positions: Ids, queries: Ids, threshold: Threshold) -> Float64:
            result = self.scores_of(values, positions, queries, threshold)
            near = np.zeros(len(rows), np.bool_)
            near[positions[result > -np.inf]] = True
            self._row_cache.keep(rows, values, np.flatnonzero(near))
            return result

        return scores

    def raw(self, rows: Ids) -> NDArray[Any]:
        """Return raw rows, dtype[p, d]; rows that reached a threshold come from the cache."""
        return self._row_cache.fetch(rows)

    def scores_of(
        self,
        values: NDArray[Any],
        positions: Ids,
        queries: NDArray[np.integer[Any]],
        threshold: Threshold,
    ) -> Float64:
        """Return the true scores of pairs (values[position], query), −inf below the threshold."""
        pairs = positions, queries.astype(np.int64, copy=False)
        return pair_scores(self.prepared, values, pairs, threshold, threads=self.executor.threads)

    def _read_vectors_soon(self, parts: Sequence[int]) -> None:
        """Ask the system to read the vectors of consecutive parts of the codes."""
        vectors, of_part = self._vectors, self._codes.store.bounds
        first, end = of_part(parts[0])[0], of_part(parts[-1])[1]
        most = AHEAD_BYTES // (vectors.dims * vectors.dtype.itemsize)
        ahead = vectors.parts_of(np.array([first, min(end, first + most) - 1])).tolist()
        vectors.read_soon(range(ahead[0], ahead[-1] + 1))

    @property
    def scanner(self) -> Scanner:
        """The queries, prepared to be scored against codes or bounded."""
        with self._lock:
            return self._scanner

    @property
    def prepared(self) -> Prepared:
        """The queries, prepared for scores of pairs."""
        with self._lock:
            return self._prepared

    @property
    def packed(self) -> exhaustive.RowsBatch:
        """The queries, prepared to be scored against every row."""
        with self._lock:
            return self._packed

    @cached_property
    def _scanner(self) -> Scanner:
        encoder = self._codes.encoder
        if self.beta is None:
            return encoder.scanner(self.queries)
        assert isinstance(encoder, BoundEncoder)
        return encoder.bound_scanner(self.queries, self.beta)

    @cached_property
    def _part_cache(self) -> Vectors:
        return VectorCache(self._vectors, PART_CACHE_BYTES)

    @cached_property
    def _row_cache(self) -> RowCache:
        return RowCache(self._part_cache, self.executor.threads)

    @cached_property
    def _prepared(self) -> Prepared:
        return Prepared(self.executor.kernel, self.queries, self._vectors.dtype)

    @cached_property
    def _packed(self) -> exhaustive.RowsBatch:
        return exhaustive.RowsBatch(self.executor.kernel, self.queries, self._vectors.dtype)

    @property
    def _codes(self) -> OpenCodes:
        assert self.executor.codes is not None
        return self.executor.codes

    @property
    def _vectors(self) -> Vectors:
        assert self.executor.vectors is not None
        return self.executor.vectors

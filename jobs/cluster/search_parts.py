"""An executor on remote workers: each opens the stores, and runs methods of a thread executor."""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.cluster.workers import RemoteWorkers, Tasks, Work
from mercore.jobs.custom_kernel import load_custom
from mercore.jobs.resources.execution import SearchSize, WorkerPaths
from mercore.jobs.resources.limits import AT_ONCE
from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.collector import Kept, NewCollector
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.kernels import kernel_from_spec
from mercore.pipeline.linear_map import LinearMap, map_of, mapped_vectors
from mercore.pipeline.search.answers import ExactAnswers
from mercore.pipeline.search.batch_search import answer
from mercore.pipeline.search.collect import Collected, PairBudget, merge_collected
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.executor import Ids, ScorePairs
from mercore.pipeline.search.fetch import fetch
from mercore.pipeline.search.rerank import Threshold
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.search.thread_executor import ThreadBatch, ThreadExecutor
from mercore.pipeline.topk import TopK
from mercore.stores.codes import CodeStore, SelectedCodes, open_code_store
from mercore.stores.formats.linear_map import read_linear_map
from mercore.stores.indexes import open_index_store
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.rows import open_vectors
from mercore.stores.vector_views import SelectedVectors, WatchedVectors
from mercore.stores.vectors import Vectors

CACHED_BATCHES = AT_ONCE + 1  # per worker; queries given up by bounds are another batch
RUNS_PER_THREAD = 2  # runs of parts
PAIRS_PER_RUN = 1 << 34  # about half a minute of work: the most that is lost with a worker
MIN_TASK_PAIRS = 1 << 10  # true scores that are worth a task
FAN_IN = 4  # collectors that one task merges


class BatchKey(NamedTuple):
    """The key of a batch of queries on every worker: its number and the β of its bounds."""

    number: int
    beta: float | None = None


class PartsRead(NamedTuple):
    """The parts that a worker has read, and so checked."""

    codes: list[int]
    vectors: list[int]


@dataclass(frozen=True, kw_only=True)
class SearchWorker(ThreadExecutor):
    """The executor of one worker; it also answers whole batches, and keeps the last shared ones."""

    window: int | None = None
    prepared: OrderedDict[BatchKey, ThreadBatch] = field(default_factory=OrderedDict)
    lock: Lock = field(default_factory=Lock)

    def answer(self, queries: NDArray[Any], k: int, rerank: int | None) -> tuple[TopK, PartsRead]:
        """Return the top k of each query, and the parts read."""
        parts = range(self.codes.store.parts) if self.codes else None
        return answer(self.batch(queries), parts, k, rerank), self._parts_read()

    def prove(
        self, queries: NDArray[Any], k: int, beta: float, seeds: Ids | None, least: Float32 | None
    ) -> tuple[ExactAnswers, PartsRead]:
        """Return the exact answers, and the parts read."""
        assert self.vectors is not None
        scorer = ExactScorer(vectors=self.vectors, kernel=self.kernel, window=self.window)
        search = ExactSearch(scorer=scorer, bounds=self.codes, beta=beta)
        return search.prove(queries, k, seeds=seeds, least=least), self._parts_read()

    def call_batch(
        self, key: BatchKey, queries: NDArray[Any], method: Callable[..., Any], *arguments: object
    ) -> Any:  # noqa: ANN401
        """Call a method of a batch of queries, which is prepared unless it is one of the last."""
        with self.lock:
            batch = self.prepared.pop(key, None) or self.batch(queries, beta=key.beta)
            self.prepared[key] = batch
            if len(self.prepared) > CACHED_BATCHES:
                self.prepared.popitem(last=False)
        return method(batch, *arguments)

    def receive(self, queries: NDArray[Any]) -> NDArray[Any]:
        """Return queries as a result, which other tasks take."""
        return queries

    def merge(self, collectors: Sequence[Kept]) -> Kept:
        """Merge collectors into one."""
        return type(collectors[0]).merge(collectors)

    def _parts_read(self) -> PartsRead:
        vectors = self.vectors.seen if isinstance(self.vectors, WatchedVectors) else []
        return PartsRead(sorted(self.codes.checked.copy()) if self.codes else [], vectors)


def open_searcher(paths: WorkerPaths, size: SearchSize) -> SearchWorker:
    """Open the stores on a worker."""
    custom = load_custom(paths.custom) if paths.custom else None
    opened, vectors = open_stores(paths)
    codes = None
    if opened is not None:
        codes = OpenCodes(opened, encoder_of(opened, custom), PartCache(size.cache_bytes))
    return SearchWorker(
        kernel=kernel_from_spec(paths.kernel, custom),
        vectors=None if vectors is None else WatchedVectors(vectors),
        codes=codes,
        window=size.window,
    )


def open_stores(paths: WorkerPaths) -> tuple[CodeStore | None, Vectors | None]:
    """Open codes and vectors: the rows that take part, mapped as those that were encoded."""
    codes = vectors = linear_map = None
    if paths.codes:
        codes = open_code_store(paths.codes)
        linear_map = map_of(codes)
    elif paths.index:
        linear_map = map_of(open_index_store(paths.index))
    elif paths.linear_map:
        linear_map = LinearMap(read_linear_map(paths.linear_map), paths.linear_map)
    if paths.vectors:
        vectors = mapped_vectors(open_vectors(paths.vectors), linear_map)
    if codes and paths.selection:
        codes = SelectedCodes(codes, paths.selection)
    if vectors and paths.selection:
        vectors = SelectedVectors(vectors, paths.selection)
    return codes, vectors


@contextmanager
def searching(
    workers: RemoteWorkers, paths: WorkerPaths, size: SearchSize
) -> Iterator["ClusterExecutor"]:
    """Yield an executor on remote workers; each opens the stores now, or when it joins.

    Raises
    ------
    ClusterError
        If the workers go away, or keep dying of one part.
    """
    there = paths.resolved()
    work = Work(paths.codes or paths.vectors or "", partial(open_searcher, there, size))
    with workers.opened(work) as tasks:
        yield ClusterExecutor(tasks, there, size)


class ClusterExecutor:
    """An executor on the workers of a cluster (see ``Executor``).

    Each worker takes whole batches if there are enough for all workers and none takes long. The
    last batches, and long ones, are shared: each worker takes parts, and this process fixes all
    thresholds. The answers are the same either way.
    """

    def __init__(self, tasks: Tasks, paths: WorkerPaths, size: SearchSize) -> None:
        self.tasks = tasks
        self.codes, self.vectors = open_stores(paths)
        self.checked_codes: set[int] = set()
        self.checked_vectors: set[int] = set()
        self.numbers, self.started = itertools.count(), itertools.count()
        workers, store = len(tasks.slots), self.codes or self.vectors
        assert store is not None
        small = store.rows * min(size.batch, size.queries) <= PAIRS_PER_RUN
        self.single_batches = -(-size.queries // size.batch) // workers * workers if small else 0
        self.concurrent_batches = AT_ONCE * workers if self.single_batches else AT_ONCE

    def share(self) -> "ClusterExecutor":
        """Return this executor: its workers take whole batches, or parts of all."""
        return self

    def single_worker(self) -> "ClusterExecutor | None":
        """Return this executor if one worker takes the next batch; None for the last batches."""
        return self if next(self.started) < self.single_batches else None

    def batch(self, queries: NDArray[Any], *, beta: float | None = None) -> "ClusterBatch":
        """Send a batch of raw queries to the cluster: see ``Executor``."""
        return ClusterBatch(self, queries, beta)

    def check_rest(self) -> None:
        """Read on the workers the parts that no search has read: see ``Executor``."""
        codes = sorted(set(range(self.codes.parts)) - self.checked_codes) if self.codes else []
        vectors = (
            sorted(set(range(self.vectors.parts)) - self.checked_vectors) if self.vectors else []
        )
        count = RUNS_PER_THREAD * len(self.tasks.slots)
        runs = zip(np.array_split(codes, count), np.array_split(vectors, count), strict=True)
        tasks = [
            self.tasks.submit(SearchWorker.check, *(run.astype(int).tolist() for run in both))
            for both in runs
            if sum(map(len, both))
        ]
        self.tasks.results(tasks)

    def answer(self, queries: NDArray[Any], k: int, rerank: int | None) -> TopK:
        """Return the top k of each query from one worker: see ``SingleWorker``."""
        return cast("TopK", self._of_one_worker(SearchWorker.answer, queries, k, rerank))

    def prove(
        self,
        queries: NDArray[Any],
        k: int,
        *,
        beta: float,
        seeds: Ids | None,
        least: Float32 | None,
    ) -> ExactAnswers:
        """Return the exact answers from one worker: see ``SingleWorker``."""
        found = self._of_one_worker(SearchWorker.prove, queries, k, beta, seeds, least)
        return cast("ExactAnswers", found)

    def _of_one_worker(self, task: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """Return the result of one task, and remember the parts that its worker has read."""
        ((result, read),) = self.tasks.results([self.tasks.submit(task, *arguments)])
        self.checked_codes.update(read.codes)
        self.checked_vectors.update(read.vectors)
        return result


class ClusterBatch:
    """A batch of queries for all workers of a cluster: see ``QueryBatch``."""

    def __init__(
        self, executor: ClusterExecutor, queries: NDArray[Any], beta: float | None
    ) -> None:
        self.executor, self.tasks, self.queries = executor, executor.tasks, queries
        self._key, self._slots = BatchKey(next(executor.numbers), beta), self.tasks.slots
        # The result of a task outlives every worker: the scheduler can have the task run again.
        self._sent = self.tasks.submit(SearchWorker.receive, queries)

    def scan(self, parts: Sequence[int], width: int, rows: int | None = None) -> TopK:
        """Return each query's top ``width`` by code in parts, or in their first ``rows`` rows."""
        assert self.executor.codes is not None
        runs = self._runs(parts, rows or self.executor.codes.part_rows)
        top_k = self._merged(ThreadBatch.scan, [(run, width, rows) for run in runs])
        self.executor.checked_codes.update(parts)
        return cast("TopK", top_k)

    def score_every_row(self, new: NewCollector[Kept]) -> Kept:
        """Score every row by the true kernel in float64; return the filled collector."""
        vectors = self.executor.vectors
        assert vectors is not None
        parts = range(vectors.parts)
        runs = self._runs(parts, vectors.part_rows)
        kept = self._merged(ThreadBatch.score_parts, [(run, new) for run in runs])
        self.executor.checked_vectors.update(parts)
        return cast("Kept", kept)

    def collect(self, parts: Sequence[int], least: Float32, budget: PairBudget) -> Collected:
        """Return the pairs in some parts of the codes whose bound reaches ``least`` float32[nq]."""
        assert self.executor.codes is not None
        runs = self._runs(parts, self.executor.codes.part_rows)
        collected = self._results(ThreadBatch.collect, [(run, least, budget) for run in runs])
        self.executor.checked_codes.update(parts)
        return merge_collected(collected, len(self.queries))

    def scores(self, rows: Ids, queries: Ids, k: int | None = None) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        order = np.argsort(rows, kind="stable")
        shares = self._shares(order)
        scored = self._results(
            ThreadBatch.scores, [(rows[share], self._short(queries[share]), k) for share in shares]
        )
        scores = np.empty(len(rows))
        scores[order] = np.concatenate([np.empty(0), *scored])
        return scores

    def raw(self, rows: Ids) -> NDArray[Any]:
        """Return raw rows, dtype[p, d], read by this process: they are few."""
        assert self.executor.vectors is not None
        return fetch(self.executor.vectors.look_up(rows), threads=1)

    def fetch_to_score(self, rows: Ids) -> ScorePairs:
        """Fetch ascending rows int64[p] on workers; return a function that scores pairs of them."""
        shares = self._shares(rows)
        ends = np.cumsum([0, *map(len, shares)])
        workers = [self._slot(number, len(shares)) for number in range(len(shares))]
        fetched = [
            self.tasks.submit(SearchWorker.fetch, share, worker=worker)
            for share, worker in zip(shares, workers, strict=True)
        ]

        def scores(positions: Ids, queries: Ids, threshold: Threshold) -> Float64:
            order = np.argsort(positions, kind="stable")
            pairs = np.split(order, np.searchsorted(positions[order], ends[1:-1]))
            used = [number for number in range(len(fetched)) if len(pairs[number])]
            calls = [
                (
                    fetched[number],
                    positions[some] - ends[number],
                    self._short(queries[some]),
                    threshold,
                )
                for number, some in ((number, pairs[number]) for number in used)
            ]
            scored = self._results(
                ThreadBatch.scores_of, calls, [workers[number] for number in used]
            )
            result = np.empty(len(positions))
            result[order] = np.concatenate([np.empty(0), *scored])
            return result

        return scores

    def _merged(self, method: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Any:  # noqa: ANN401
        """Return the collectors that calls return as one, merged in a tree on the workers."""
        kept = self._submit(method, calls)
        while len(kept) > 1:
            groups = [kept[start : start + FAN_IN] for start in range(0, len(kept), FAN_IN)]
            kept = [self.tasks.submit(SearchWorker.merge, group) for group in groups]
        return self.tasks.results(kept)[0]

    def _results(
        self,
        method: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        workers: Sequence[str] = (),
    ) -> list[Any]:
        """Return the results of calls."""
        return self.tasks.results(self._submit(method, calls, workers))

    def _submit(
        self,
        method: Callable[..., Any],
        calls: Sequence[tuple[Any, ...]],
        workers: Sequence[str] = (),
    ) -> list[Any]:
        """Submit calls of a method; by default, neighbouring calls go to one worker."""
        workers = workers or [self._slot(number, len(calls)) for number in range(len(calls))]
        return [
            self.tasks.submit(
                SearchWorker.call_batch, self._key, self._sent, method, *arguments, worker=worker
            )
            for arguments, worker in zip(calls, workers, strict=True)
        ]

    def _slot(self, number: int, count: int) -> str:
        """Return the worker of a task: the same for the same share of a store, for its cache."""
        return self._slots[number * len(self._slots) // count]

    def _runs(self, parts: Sequence[int], part_rows: int) -> list[list[int]]:
        """Return parts in runs: a few per thread, and more if a run would take long."""
        least = -(-len(parts) * part_rows * len(self.queries) // PAIRS_PER_RUN)
        count = min(len(parts), max(least, RUNS_PER_THREAD * len(self._slots)))
        return [run.tolist() for run in np.array_split(np.asarray(parts), count)]

    def _shares(self, rows: Ids) -> list[Ids]:
        """Return rows, or positions of pairs, in shares that are worth a task each."""
        count = min(RUNS_PER_THREAD * len(self._slots), -(-len(rows) // MIN_TASK_PAIRS))
        return np.array_split(rows, count) if count else []

    def _short(self, queries: Ids) -> NDArray[Any]:
        """Return numbers of queries in as few bytes as possible: they are sent to workers."""
        return queries.astype(np.min_scalar_type(len(self.queries)))

"""A crew of Dask workers: each opens the stores itself, and searches runs of their parts on one thread a task."""

import itertools
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future, Worker, WorkerPlugin, get_worker
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.cluster.client import forget_plugin, losing, results, slots
from mercore.jobs.custom_kernel import load_custom
from mercore.jobs.resources.execution import Load, Stores
from mercore.jobs.resources.limits import AT_ONCE
from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.kernels import kernel_from_spec
from mercore.pipeline.search.answers import ExactAnswers
from mercore.pipeline.search.collect import Collected, PairBudget, together
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.executor import Ids, ScorePairs, ThreadBatch, ThreadExecutor, answer
from mercore.pipeline.search.rerank import Threshold, fetch
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.topk import TopK, merge
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.rows import open_vectors
from mercore.stores.vectors import Vectors, WatchedVectors

KEPT = AT_ONCE + 1  # batches that a worker keeps ready: queries that were given up are a batch of their own
RUNS_A_THREAD = 2  # of parts
PAIRS_A_RUN = 1 << 34  # about half a minute's: what is lost with a worker is no more
FEWEST_PAIRS = 1 << 10  # of true scores that are worth a task
FAN_IN = 4  # lists that a worker merges at once


class Asked(NamedTuple):
    """What a task is about: the plugin that holds the stores, the batch of queries, and the bounds' β."""

    session: str
    batch: int
    beta: float


class SearchPlugin(WorkerPlugin):
    """What a worker needs to search: the stores open, and the last batches of queries ready, for all its threads."""

    def __init__(self, name: str, stores: Stores, load: Load) -> None:
        self.name, self.stores, self.load = name, stores, load

    def setup(self, worker: Worker) -> None:
        """Open the stores; BLAS keeps to one thread, for the worker's own fill the cores."""
        self.limits = threadpool_limits(1)
        self.batches: OrderedDict[Asked, ThreadBatch] = OrderedDict()
        self.lock = Lock()
        stores = self.stores
        custom = load_custom(stores.custom) if stores.custom else None
        codes = None
        if stores.codes:
            opened = open_code_store(stores.codes)
            codes = OpenCodes(opened, encoder_of(opened, custom), PartCache(self.load.cache_bytes))
        vectors = WatchedVectors(open_vectors(stores.vectors)) if stores.vectors else None
        self.executor = ThreadExecutor(kernel=kernel_from_spec(stores.kernel, custom), vectors=vectors, codes=codes)

    def teardown(self, worker: Worker) -> None:
        """Give BLAS its threads back."""
        self.limits.restore_original_limits()

    def ready(self, asked: Asked, queries: NDArray[Any]) -> ThreadBatch:
        """Return a batch: made ready once, and anew where it was forgotten."""
        with self.lock:
            batch = self.batches.pop(asked, None) or self.executor.batch(queries, beta=asked.beta)
            self.batches[asked] = batch
            if len(self.batches) > KEPT:
                self.batches.popitem(last=False)
        return batch

    def __getstate__(self) -> dict[str, Any]:
        """Travel as the paths alone."""
        return {"name": self.name, "stores": self.stores, "load": self.load}


def plugin_here(session: str) -> SearchPlugin:
    """Return this worker's plugin."""
    plugin = get_worker().plugins[session]
    assert isinstance(plugin, SearchPlugin)
    return plugin


def kept(queries: NDArray[Any]) -> NDArray[Any]:
    """Return the queries: as a task's result they outlive every worker, for the scheduler can have them made again."""
    return queries


def scan_run(asked: Asked, queries: NDArray[Any], parts: list[int], width: int, rows: int | None) -> TopK:
    """Return the best by code in a run of parts."""
    return plugin_here(asked.session).ready(asked, queries).scan(parts, width, rows=rows)


def nearest_run(asked: Asked, queries: NDArray[Any], parts: list[int], k: int) -> TopK:
    """Return the best by the true kernel in a run of parts."""
    return plugin_here(asked.session).ready(asked, queries).nearest_of(parts, k)


def merge_some(lists: list[TopK]) -> TopK:
    """Return the best of several lists: a knot of the tree."""
    return merge(lists)


def collect_run(asked: Asked, queries: NDArray[Any], parts: list[int], least: Float32, budget: PairBudget) -> Collected:
    """Return the pairs in a run of parts whose bound reaches."""
    return plugin_here(asked.session).ready(asked, queries).collect(parts, least, budget)


def score_pairs(asked: Asked, queries: NDArray[Any], of: NDArray[Any], rows: Ids) -> Float64:
    """Return the true scores of pairs of a query and a row."""
    return plugin_here(asked.session).ready(asked, queries).scores(of.astype(np.int64), rows)


def fetch_rows(session: str, rows: Ids) -> NDArray[Any]:
    """Return raw rows."""
    return plugin_here(session).executor.fetch(rows)


def score_rows(
    asked: Asked, queries: NDArray[Any], rows: NDArray[Any], pairs: tuple[Ids, NDArray[Any]], threshold: Threshold
) -> Float64:
    """Return the true scores of pairs of a row that was fetched and a query, −inf where the cut leaves one out."""
    at, of = pairs
    return plugin_here(asked.session).ready(asked, queries).scores_of(rows, at, of.astype(np.int64), threshold)


def answer_batch(asked: Asked, queries: NDArray[Any], k: int, rerank: int | None) -> tuple[TopK, "PartsRead"]:
    """Return the best of a whole batch."""
    executor = plugin_here(asked.session).executor
    parts = range(executor.codes.store.parts) if executor.codes else None
    return answer(executor.batch(queries), parts, k, rerank), seen(executor)


def prove_batch(
    asked: Asked, queries: NDArray[Any], k: int, begin: tuple[Ids | None, Float32 | None]
) -> tuple[ExactAnswers, "PartsRead"]:
    """Return the proofs of a whole batch."""
    plugin = plugin_here(asked.session)
    executor = plugin.executor
    assert executor.vectors is not None
    truth = ExactScorer(vectors=executor.vectors, kernel=executor.kernel, window=plugin.load.window)
    search, (seeds, least) = ExactSearch(truth=truth, bounds=executor.codes, beta=asked.beta), begin
    return search.prove(queries, k, seeds=seeds, least=least), seen(executor)


class PartsRead(NamedTuple):
    """The parts that a worker has read, and so checked."""

    codes: list[int]
    vectors: list[int]


def seen(executor: ThreadExecutor) -> PartsRead:
    """Return what a worker has read."""
    vectors = executor.vectors.seen if isinstance(executor.vectors, WatchedVectors) else []
    return PartsRead(sorted(executor.codes.checked.copy()) if executor.codes else [], vectors)


def check_run(session: str, codes: list[int], vectors: list[int]) -> None:
    """Read parts of both stores, every byte checked."""
    plugin_here(session).executor.check(codes, vectors)


@contextmanager
def searching(client: Client, stores: Stores, load: Load) -> Iterator["DaskExecutor"]:
    """Yield the workers of a cluster as a crew; each opens the stores now, or when it joins.

    Raises
    ------
    ClusterError
        If the cluster goes away, or workers keep dying of one part.
    """
    session = f"mercore-search {uuid.uuid4().hex}"
    what = stores.codes or stores.vectors or ""
    with losing(what):
        client.register_plugin(SearchPlugin(session, stores.resolved(), load))
        try:
            yield DaskExecutor(client, session, stores.resolved(), load)
        finally:
            forget_plugin(client, session)


class DaskExecutor:
    """The workers of a cluster: a crew.

    Where there are batches enough for all, each takes whole ones, if that is no long task; else all share the parts
    of a batch out, and what is decided is decided here. Who does it changes no answer.
    """

    def __init__(self, client: Client, session: str, stores: Stores, load: Load) -> None:
        self.client, self.session = client, session
        self.codes: CodeStore | None = open_code_store(stores.codes) if stores.codes else None
        self.vectors: Vectors | None = open_vectors(stores.vectors) if stores.vectors else None
        self.checked_codes: set[int] = set()
        self.checked_vectors: set[int] = set()
        self.numbers, self.taken = itertools.count(), itertools.count()
        workers, store = len(slots(client)), self.codes or self.vectors
        assert store is not None
        small = store.rows * min(load.batch, load.queries) <= PAIRS_A_RUN
        self.whole = -(-load.queries // load.batch) // workers * workers if small else 0
        self.concurrent_batches = AT_ONCE * workers if self.whole else AT_ONCE

    def alone(self) -> "DaskWorker | None":
        """Return who takes the next batch by itself: the last batches, too few for all, are shared out."""
        return DaskWorker(self) if next(self.taken) < self.whole else None

    def batch(self, queries: NDArray[Any], *, beta: float = 1.0) -> "DaskBatch":
        """Send queries to the cluster; with β < 1, bounds are relaxed."""
        return DaskBatch(self, queries, beta)

    def check_rest(self) -> None:
        """Have the parts read that nobody has read; raise ``IntegrityError`` if a byte is not as it was written."""
        codes = sorted(set(range(self.codes.parts)) - self.checked_codes) if self.codes else []
        vectors = sorted(set(range(self.vectors.parts)) - self.checked_vectors) if self.vectors else []
        count = RUNS_A_THREAD * len(slots(self.client))
        runs = zip(np.array_split(codes, count), np.array_split(vectors, count), strict=True)
        tasks = [
            self.client.submit(check_run, self.session, *(run.astype(int).tolist() for run in both), pure=False)
            for both in runs
            if sum(map(len, both))
        ]
        results(tasks, self.client)


class DaskWorker:
    """One worker of a cluster, who searches for a whole batch: see ``SingleExecutor``."""

    def __init__(self, executor: DaskExecutor) -> None:
        self.executor = executor

    def answer(self, queries: NDArray[Any], k: int, rerank: int | None) -> TopK:
        """Return the best of a whole batch."""
        best: TopK = self._result(answer_batch, 1.0, queries, k, rerank)
        return best

    def prove(
        self, queries: NDArray[Any], k: int, *, beta: float, seeds: Ids | None, least: Float32 | None
    ) -> ExactAnswers:
        """Return the proofs of a whole batch."""
        proved: ExactAnswers = self._result(prove_batch, beta, queries, k, (seeds, least))
        return proved

    def _result(self, function: Callable[..., Any], beta: float, *words: object) -> Any:  # noqa: ANN401
        """Return what one task gives, and remember what its worker has read."""
        asked = Asked(self.executor.session, next(self.executor.numbers), beta)
        ((found, read),) = results(
            [self.executor.client.submit(function, asked, *words, pure=False)], self.executor.client
        )
        self.executor.checked_codes.update(read.codes)
        self.executor.checked_vectors.update(read.vectors)
        return found


class DaskBatch:
    """A batch of queries on its way through a cluster: see ``mercore.pipeline.search.executor.Batch``."""

    def __init__(self, executor: DaskExecutor, queries: NDArray[Any], beta: float) -> None:
        self.executor, self.queries = executor, queries
        self._asked = Asked(executor.session, next(executor.numbers), beta)
        self._slots = slots(executor.client)
        self._sent = executor.client.submit(kept, queries, pure=False)

    def scan(self, parts: Sequence[int], width: int, *, rows: int | None = None) -> TopK:
        """Return the ``width`` best by code among some parts of the codes, or the first ``rows`` rows of each."""
        assert self.executor.codes is not None
        runs = self._runs(parts, rows or self.executor.codes.store.layout.part_rows)
        best = self._merged([(scan_run, run, width, rows) for run in runs])
        self.executor.checked_codes.update(parts)
        return best

    def nearest(self, k: int) -> TopK:
        """Return the k best of all vectors by the true kernel, float64."""
        vectors = self.executor.vectors
        assert vectors is not None
        parts = range(vectors.parts)
        best = self._merged([(nearest_run, run, k) for run in self._runs(parts, vectors.part_rows)])
        self.executor.checked_vectors.update(parts)
        return best

    def collect(self, parts: Sequence[int], least: Float32, budget: PairBudget) -> Collected:
        """Return the pairs in some parts of the codes whose bound reaches ``least`` float32[nq]."""
        assert self.executor.codes is not None
        runs = self._runs(parts, self.executor.codes.store.layout.part_rows)
        found = results(self._submit([(collect_run, run, least, budget) for run in runs]), self.executor.client)
        self.executor.checked_codes.update(parts)
        return together(found, len(self.queries))

    def scores(self, queries: Ids, rows: Ids) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        order = np.argsort(rows, kind="stable")
        shares = self._shares(order)
        found = results(
            self._submit([(score_pairs, self._short(queries[some]), rows[some]) for some in shares]),
            self.executor.client,
        )
        self._saw(rows)
        scores = np.empty(len(rows))
        scores[order] = np.concatenate([np.empty(0), *found])
        return scores

    def raw(self, rows: Ids) -> NDArray[Any]:
        """Return raw rows, dtype[p, d], read here: they are few."""
        assert self.executor.vectors is not None
        return fetch(self.executor.vectors, rows, threads=1)

    def fetched(self, rows: Ids) -> ScorePairs:
        """Have rows int64[p], ascending, fetched by workers, who keep them; return what gives scores of pairs."""
        shares = self._shares(rows)
        ends = np.cumsum([0, *map(len, shares)])
        where = [self._slot(number, len(shares)) for number in range(len(shares))]
        client, session = self.executor.client, self.executor.session
        held = [
            client.submit(fetch_rows, session, some, pure=False, workers=[slot], allow_other_workers=True)
            for some, slot in zip(shares, where, strict=True)
        ]

        def scores(at: Ids, queries: Ids, threshold: Threshold) -> Float64:
            order = np.argsort(at, kind="stable")
            pairs = np.split(order, np.searchsorted(at[order], ends[1:-1]))
            some = [share for share in range(len(held)) if len(pairs[share])]
            some_pairs = [(at[pairs[share]] - ends[share], self._short(queries[pairs[share]])) for share in some]
            work = [(score_rows, held[share], each, threshold) for share, each in zip(some, some_pairs, strict=True)]
            found = results(self._submit(work, [where[share] for share in some]), client)
            for share in some:
                self._saw(shares[share])
            result = np.empty(len(at))
            result[order] = np.concatenate([np.empty(0), *found])
            return result

        return scores

    def _merged(self, work: Sequence[tuple[Any, ...]]) -> TopK:
        """Return the best of runs, merged on the workers in a tree."""
        lists = self._submit(work)
        while len(lists) > 1:
            some = [lists[start : start + FAN_IN] for start in range(0, len(lists), FAN_IN)]
            lists = [self.executor.client.submit(merge_some, each, pure=False) for each in some]
        best: TopK = results(lists, self.executor.client)[0]
        return best

    def _submit(self, work: Sequence[tuple[Any, ...]], where: Sequence[str] = ()) -> list["Future[Any]"]:
        """Give tasks (function, arguments behind the queries) to workers, neighbours to one, or ``where`` is said."""
        tasks = []
        for number, (function, *words) in enumerate(work):
            slot = where[number] if where else self._slot(number, len(work))
            submit: Callable[..., Future[Any]] = self.executor.client.submit
            place = {"workers": [slot], "allow_other_workers": True}
            tasks.append(submit(function, self._asked, self._sent, *words, pure=False, **place))
        return tasks

    def _slot(self, number: int, count: int) -> str:
        """Return the worker of a task: the same for the same share of a store, which it then may have in memory."""
        return self._slots[number * len(self._slots) // count]

    def _runs(self, parts: Sequence[int], part_rows: int) -> list[list[int]]:
        """Return parts in runs, a few a thread, and so many that none takes long."""
        least = -(-len(parts) * part_rows * len(self.queries) // PAIRS_A_RUN)
        count = min(len(parts), max(least, RUNS_A_THREAD * len(self._slots)))
        return [run.tolist() for run in np.array_split(np.asarray(parts), count)]

    def _shares(self, rows: Ids) -> list[Ids]:
        """Return rows, or places of pairs, in shares worth a task each."""
        count = min(RUNS_A_THREAD * len(self._slots), -(-len(rows) // FEWEST_PAIRS))
        return np.array_split(rows, count) if count else []

    def _short(self, queries: Ids) -> NDArray[Any]:
        """Return numbers of queries as few bytes, for they travel."""
        return queries.astype(np.min_scalar_type(len(self.queries)))

    def _saw(self, rows: Ids) -> None:
        """Remember which parts of the vectors were read, and so checked."""
        assert self.executor.vectors is not None
        self.executor.checked_vectors.update(np.unique(rows // self.executor.vectors.part_rows).tolist())

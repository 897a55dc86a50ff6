"""The plan of a search, from a sample of the store that is read from the disk."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.options import Report
from mercore.jobs.planning.report import times
from mercore.jobs.planning.samples import first_parts, first_rows
from mercore.jobs.planning.timing import measure
from mercore.jobs.progress import waiting
from mercore.jobs.resources.limits import INTERPRETER_BYTES
from mercore.jobs.verbs.searches.cells import CellTask
from mercore.jobs.verbs.searches.exact import ExactTask
from mercore.jobs.verbs.searches.orders import OrderTask
from mercore.jobs.verbs.searches.task import SearchTask
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.orders.candidates import OpenOrders
from mercore.pipeline.search.batch_search import answer_batch
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.search.sublinear import search_cell_store
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.stores.codes import CodeStore
from mercore.stores.location.resolve import location_of
from mercore.stores.part_store.page_cache import chunk_files, forget
from mercore.stores.rows import open_rows
from mercore.stores.vector_views import store_of
from mercore.stores.vectors import Vectors

SECONDS = 0.15  # of the sample, beyond its first unit
QUERIES = 256  # at most, of a batch that scans a store: the work grows with the queries too
PIECES = 64  # of scanned vectors: a sample takes some of them

Search = Callable[[int, NDArray[Any]], object]  # of the first units, for some queries


def plan(task: SearchTask, cores: int | None) -> Report:
    """Return the plan of a search; nothing is written."""
    loaded = time.process_time()
    report: Report = {"bytes": _answer_bytes(task), "path": task.out or "", "free": None}
    if task.out:
        report["free"] = location_of(task.out).free_bytes()
    report["memory"] = (
        INTERPRETER_BYTES
        + task.needed
        + task.optional_bytes
        + min(task.settings.cache_bytes, task.scanned_bytes)
    )
    nq, size = task.queries.shape[0], task.settings.batch
    report |= {
        "rows": task.scanned.rows,
        "batch": min(nq, size),
        "passes": task.settings.batches(nq),
        "times": [],
    }
    memory = task.execution.memory
    if memory is None or report["memory"] <= memory:  # measuring would also exceed it
        with threadpool_limits(1), waiting("measuring a sample"):
            report["times"] = _times(task, loaded, cores)
    return report


def _times(search: SearchTask, loaded: float, cores: int | None) -> list[Report]:
    """Return the seconds of the command per number of cores."""
    settings, nq = search.settings, search.queries.shape[0]
    queries = search.batch if isinstance(search, OrderTask) else search.batch[:QUERIES]
    units, run = _sample(search)
    timing = measure(lambda count: run(count, queries), units, SECONDS)
    batches = settings.batches(nq)
    scale = nq / batches / len(queries)  # a batch on average, per sample of its queries

    def seconds(count: int) -> float:
        if isinstance(search, OrderTask):
            searching = batches * timing.of(units, count)
        else:  # each core takes a whole batch; the last batches share the cores
            rounds, last = divmod(batches, count)
            searching = rounds * timing.of(units)
            searching += timing.of(units, count // last) if last else 0.0
        return loaded + timing.first + scale * search.met * searching

    return times(settings.threads, cores, seconds, timing.slowdown)


def _sample(search: SearchTask) -> tuple[int, Search]:
    """Return the units of a store, and a function that searches the first of them on one thread.

    Units are orders, probed cells, parts of codes, or pieces of vectors. The first units give their
    share of the neighbours, so that the work grows as the rows do. They are read from the disk.
    """
    settings, codes, vectors, kernel = search.settings, search.codes, search.vectors, search.kernel
    if isinstance(search, OrderTask):
        return search.orders.orders, partial(_search_orders, search, search.open_orders())
    if isinstance(search, CellTask):
        return search.probing.probes, partial(_search_cells, search)
    encoder = encoder_of(codes, settings.custom) if codes is not None else None
    pieces = codes.parts if codes is not None else min(PIECES, search.scanned.rows)

    def run(units: int, queries: NDArray[Any]) -> None:
        first = first_parts(codes, units) if codes is not None else None
        rows = first.rows if first is not None else _share(search.scanned.rows, units, pieces)
        opened = OpenCodes(first, encoder) if first is not None and encoder is not None else None
        few = first_rows(vectors, rows) if vectors is not None else None
        _forget(first, few)
        k = _share(settings.k, rows, search.scanned.rows)
        if isinstance(search, ExactTask):
            assert few is not None
            scorer = ExactScorer(vectors=few, kernel=kernel.ranking, window=settings.window)
            search.solve(ExactSearch(scorer=scorer, bounds=opened, beta=search.beta), queries, k)
            return
        executor = ThreadExecutor(kernel=kernel, vectors=few, codes=opened)
        parts = range(units) if first is not None else None
        rerank = _share(settings.rerank, rows, search.scanned.rows) if settings.rerank else None
        answer_batch(executor, queries, parts, replace(settings, k=k, rerank=rerank))

    return pieces, run


def _search_orders(
    search: OrderTask, orders: OpenOrders, count: int, queries: NDArray[Any]
) -> None:
    """Search the first orders, read from the disk, on one thread."""
    forget(chunk_files(search.orders.store, range(count * search.orders.order_parts)))
    rows, of_query = orders.candidates(queries, threads=1, orders=count)
    executor = ThreadExecutor(kernel=search.kernel, vectors=search.vectors)
    executor.batch(queries).scores(rows, of_query, search.settings.k)


def _search_cells(search: CellTask, probes: int, queries: NDArray[Any]) -> None:
    """Search the nearest cells, read from the disk, on one thread."""
    forget(chunk_files(search.cells.store, range(search.cells.parts)))
    cells = replace(search.open_cells(), probes=probes)
    settings = replace(search.settings, threads=1)
    search_cell_store(cells, search.vectors, open_rows(queries), settings)


def _share(count: int, some: int, of: int) -> int:
    """Return the share of ``count`` that is ``some`` of ``of``, rounded up."""
    return -(-count * some // of)


def _forget(codes: CodeStore | None, vectors: Vectors | None) -> None:
    """Drop the files of samples from the memory of the system."""
    if codes is not None:
        forget(chunk_files(codes.store, range(codes.parts)))
    stored = store_of(vectors) if vectors is not None else None
    if vectors is not None and stored is not None:
        forget(chunk_files(stored.store, range(vectors.parts)))


def _answer_bytes(search: SearchTask) -> int:
    """Return the bytes of the hits: 8 per id, 4 per score, or 8 per true score."""
    exact = search.codes is None or isinstance(search, ExactTask) or search.settings.rerank
    return search.queries.shape[0] * search.settings.k * (16 if exact else 12)

"""The plan of a search, from a sample of the store: with the store on disk, and in memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.options import Report
from mercore.jobs.planning.report import process_seconds, times
from mercore.jobs.planning.samples import FirstParts, FirstRows
from mercore.jobs.planning.timing import Run, measure, on_cores, repeated
from mercore.jobs.progress import waiting
from mercore.jobs.resources.limits import INTERPRETER_BYTES
from mercore.jobs.verbs.exact import ExactTask
from mercore.jobs.verbs.search_orders import OrderTask
from mercore.jobs.verbs.search_task import SearchTask
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders import Encoder
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.exhaustive import search_vectors
from mercore.pipeline.search.rerank import scores_of_lists
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.stores.codes import CodeStore
from mercore.stores.location.resolve import location_of
from mercore.stores.part_store.page_cache import chunk_files, forget
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.part_store.sizes import free_memory
from mercore.stores.vectors import store_of

SECONDS = 0.5  # per repeat of a measurement
CACHE_BYTES = 1 << 30  # of a sample
RERANKED_PARTS = 8


def plan(task: SearchTask, cores: int | None) -> Report:
    """Return the plan of a search; nothing is written."""
    loaded = process_seconds()
    report: Report = {"bytes": _answer_bytes(task), "path": task.out or "", "free": None}
    if task.out:
        report["free"] = location_of(task.out).free_bytes()
    report["memory"] = (
        INTERPRETER_BYTES + task.needed + min(task.settings.cache_bytes, task.scanned_bytes)
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


def codes_runs(
    codes: CodeStore, encoder: Encoder, queries: NDArray[Any], k: int, threads: int
) -> dict[str, Run]:
    """Return functions that scan parts: from memory, from disk, from memory on one thread."""
    cached = PartCache(CACHE_BYTES)

    def run(parts: int, threads: int, cache: PartCache) -> None:
        first = FirstParts(codes, parts)
        scan_codes(OpenCodes(first, encoder, cache), queries, min(k, first.rows), threads=threads)

    return {
        "resident": lambda parts: run(parts, threads, cached),
        "streamed": lambda parts: run(parts, threads, PartCache(0)),
        "one": lambda parts: run(parts, 1, cached),
    }


def _times(search: SearchTask, loaded: float, cores: int | None) -> list[Report]:
    """Return the seconds of the whole command per number of cores."""
    parts = search.orders.orders if isinstance(search, OrderTask) else search.scanned.parts
    timings = measure(_runs(search), parts, SECONDS, before={"streamed": partial(_forget, search)})
    threads, nq, size = search.settings.threads, search.queries.shape[0], search.settings.batch
    batches = search.settings.batches(nq)
    filled = nq / size / batches if batches > 1 else 1.0  # the last batch may be small
    here, one, streamed = (timings[name].of(parts) for name in ("resident", "one", "streamed"))
    processor = timings["resident"].processor_of(parts)
    slowdowns = {1: timings["one"].slowdown, threads: timings["resident"].slowdown}
    disk = max(0.0, streamed - here)  # extra time of a pass from the disk, on any number of cores
    again = disk * (1 - _kept(search))
    more, more_alone = _reranking(search)

    def seconds(count: int) -> dict[str, float]:
        together = threads, here + more, processor + threads * more
        alone = one + more_alone
        if isinstance(search, OrderTask):
            searching = batches * on_cores(count, alone, together)
        else:  # each core takes a whole batch; the last batches share the cores
            rounds, last = divmod(batches, count)
            shared = on_cores(count // last, alone, together) if last else 0.0
            searching = rounds * alone + shared
        fixed = loaded + max(each.first for each in timings.values())
        return {
            "seconds": fixed + filled * searching + disk + (batches - 1) * again,
            "seconds_streamed": fixed + filled * searching + batches * disk,
            "seconds_resident": fixed + filled * searching,
        }

    return times(threads, cores, seconds, slowdowns)


def _runs(search: SearchTask) -> dict[str, Run]:
    """Return functions that search parts: from memory, from the disk, and on one thread."""
    settings, queries = search.settings, search.batch
    if isinstance(search, OrderTask):
        return _order_runs(search, queries)
    if isinstance(search, ExactTask):
        return _exact_runs(search, queries)
    if search.codes is not None:
        encoder = encoder_of(search.codes, settings.custom)
        return codes_runs(
            search.codes, encoder, queries, settings.rerank or settings.k, settings.threads
        )

    def run(parts: int, threads: int) -> None:
        first = _first_rows(search, parts)
        search_vectors(first, search.kernel, queries, min(settings.k, first.rows), threads=threads)

    return _three(run, settings.threads)


def _exact_runs(search: ExactTask, queries: NDArray[Any]) -> dict[str, Run]:
    """Return functions that search parts exactly for one batch."""
    codes, k = search.codes, search.settings.k
    encoder = encoder_of(codes, search.settings.custom) if codes is not None else None
    cache = PartCache(CACHE_BYTES if search.settings.cache_bytes else 0)

    def run(parts: int, threads: int) -> None:
        first = _first_rows(search, parts)
        window = search.settings.window
        scorer = ExactScorer(
            vectors=first, kernel=search.kernel.ranking, threads=threads, window=window
        )
        bounds = OpenCodes(FirstParts(codes, parts), encoder, cache) if codes and encoder else None
        ExactSearch(scorer=scorer, bounds=bounds, beta=search.beta).prove(
            queries, min(k, first.rows)
        )

    return _three(run, search.settings.threads)


def _order_runs(search: OrderTask, queries: NDArray[Any]) -> dict[str, Run]:
    """Return functions that search the first orders for one batch."""
    orders = search.open_orders()

    def run(count: int, threads: int) -> None:
        rows, of_query = orders.candidates(queries, threads=threads, orders=count)
        executor = ThreadExecutor(kernel=search.kernel, threads=threads, vectors=search.vectors)
        executor.batch(queries).scores(rows, of_query, search.settings.k)

    return _three(run, search.settings.threads)


def _three(run: Callable[[int, int], None], threads: int) -> dict[str, Run]:
    """Return a run from memory, from the disk (``_forget`` comes before), and on one thread."""
    return {
        "resident": lambda parts: run(parts, threads),
        "streamed": lambda parts: run(parts, threads),
        "one": lambda parts: run(parts, 1),
    }


def _first_rows(search: SearchTask, parts: int) -> FirstRows:
    """Return the vectors of the rows of the first parts."""
    assert search.vectors is not None
    last = (
        search.codes.store.bounds(parts - 1)[1]
        if search.codes
        else search.vectors.bounds(parts - 1)[1]
    )
    return FirstRows(search.vectors, last)


def _forget(search: SearchTask, parts: int) -> None:
    """Drop the files of the first parts, or orders, from the memory of the system."""
    if isinstance(search, OrderTask):
        forget(chunk_files(search.orders.store, range(parts * search.orders.order_parts)))
        return
    if search.codes is not None:
        forget(chunk_files(search.codes.store, range(parts)))
    if search.vectors is not None and (isinstance(search, ExactTask) or search.codes is None):
        first, stored = _first_rows(search, parts), store_of(search.vectors)
        if stored is not None:
            forget(chunk_files(stored.store, range(first.parts)))


def _kept(search: SearchTask) -> float:
    """Return the share of the store that a second pass finds in memory: all, if it fits."""
    size = search.scanned_bytes
    return (
        1.0 if size < free_memory() // 2 else min(1.0, search.settings.cache_bytes / max(1, size))
    )


def _reranking(search: SearchTask) -> tuple[float, float]:
    """Return the seconds of reranking a batch, on all threads and on one."""
    vectors, wanted = search.vectors, search.settings.rerank
    if search.codes is None or isinstance(search, ExactTask) or vectors is None or wanted is None:
        return 0.0, 0.0
    queries = search.batch
    parts = min(vectors.parts, RERANKED_PARTS)
    first = FirstRows(vectors, vectors.bounds(parts - 1)[1])
    each = max(1, wanted * first.rows // vectors.rows)
    rows = np.random.default_rng(0).integers(0, first.rows, (len(queries), each))
    share, k = first.rows / vectors.rows, max(1, search.settings.k * each // wanted)

    def seconds(threads: int) -> float:
        executor = ThreadExecutor(kernel=search.kernel, threads=threads, vectors=first)
        score = partial(executor.batch(queries).scores, k=k)
        return repeated(lambda: scores_of_lists(rows, score)) / share

    return seconds(search.settings.threads), seconds(1)


def _answer_bytes(search: SearchTask) -> int:
    """Return the bytes of the hits: 8 per id, 4 per score, or 8 per true score."""
    exact = search.codes is None or isinstance(search, ExactTask) or search.settings.rerank
    return search.queries.shape[0] * search.settings.k * (16 if exact else 12)

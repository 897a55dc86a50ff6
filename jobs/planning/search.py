"""What searching takes, from a sample of the store: from the disk, and with what is scanned in memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.planning.report import Report, process_seconds, times
from mercore.jobs.planning.samples import FirstParts, FirstRows
from mercore.jobs.planning.timing import measure, on_cores, repeated
from mercore.jobs.progress import waiting
from mercore.jobs.resources.limits import INTERPRETER_BYTES
from mercore.jobs.verbs.exact import ExactTask
from mercore.jobs.verbs.search_task import SearchTask
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders import Encoder
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.exhaustive import search_vectors
from mercore.pipeline.search.rerank import true_scores
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.stores.codes import CodeStore
from mercore.stores.location.resolve import location_of
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.part_store.sizes import chunk_files, forget, free_memory
from mercore.stores.vectors import VectorStore

SECONDS = 0.5  # that a repeat of a measurement takes
HELD = 1 << 30  # bytes of a sample that stay in memory
RERANKED_PARTS = 8
Run = Callable[[int], object]


def plan(task: SearchTask, cores: int | None) -> Report:
    """Return what searching would take; nothing is written."""
    loaded = process_seconds()
    report: Report = {"bytes": _answer_bytes(task), "path": task.out or "", "free": None}
    if task.out:
        report["free"] = location_of(task.out).free_bytes()
    report["memory"] = INTERPRETER_BYTES + task.needed + min(task.settings.cache_bytes, task.scanned_bytes)
    nq, size = task.queries.shape[0], task.settings.batch
    report |= {"rows": task.scanned.rows, "batch": min(nq, size), "passes": -(-nq // size), "times": []}
    memory = task.execution.memory
    if memory is None or report["memory"] <= memory:  # else measuring would exceed it too
        with threadpool_limits(1), waiting("measuring a sample"):
            report["times"] = _times(task, loaded, cores)
    return report


def codes_runs(codes: CodeStore, encoder: Encoder, queries: NDArray[Any], k: int, threads: int) -> dict[str, Run]:
    """Return scans of so many parts: from the disk, from memory, and that on one thread."""
    held = PartCache(HELD)

    def run(parts: int, threads: int, kept: PartCache) -> None:
        first = FirstParts(codes, parts)
        scan_codes(OpenCodes(first, encoder, kept), queries, min(k, first.rows), threads=threads)

    return {
        "resident": lambda parts: run(parts, threads, held),
        "streamed": lambda parts: run(parts, threads, PartCache(0)),
        "one": lambda parts: run(parts, 1, held),
    }


def _times(search: SearchTask, loaded: float, cores: int | None) -> list[Report]:
    """Return the seconds of the whole command, by the number of cores."""
    pace = measure(
        _runs(search), search.scanned.parts, SECONDS, before={"streamed": lambda parts: _forget(search, parts)}
    )
    threads, nq, size = search.settings.threads, search.queries.shape[0], search.settings.batch
    batches = max(1.0, nq / size)
    here, one, streamed = (pace[name].of(search.scanned.parts) for name in ("resident", "one", "streamed"))
    disk = max(0.0, streamed - here)  # what reading a pass from the disk adds, whatever the cores
    again = disk * (1 - _kept(search))
    more, more_alone = _reranking(search)

    def seconds(count: int) -> dict[str, float]:
        batch = on_cores(count, one + more_alone, (threads, here + more))
        fixed = loaded + max(each.first for each in pace.values())
        return {
            "seconds": fixed + batches * batch + disk + (batches - 1) * again,
            "seconds_streamed": fixed + batches * (batch + disk),
            "seconds_resident": fixed + batches * batch,
        }

    return times(threads, cores, seconds)


def _runs(search: SearchTask) -> dict[str, Run]:
    """Return searches of one batch in so many parts: from the disk, from memory, and that on one thread."""
    settings, queries = search.settings, search.batch
    if search.exact:
        return _exact_runs(search, queries)
    if search.codes is not None:
        encoder = encoder_of(search.codes, settings.custom)
        return codes_runs(search.codes, encoder, queries, settings.rerank or settings.k, settings.threads)

    def run(parts: int, threads: int) -> None:
        first = _first_rows(search, parts)
        search_vectors(first, search.kernel, queries, min(settings.k, first.rows), threads=threads)

    return _three(run, settings.threads)


def _exact_runs(search: SearchTask, queries: NDArray[Any]) -> dict[str, Run]:
    """Return exact searches of one batch in so many parts."""
    codes, k = search.codes, search.settings.k
    encoder = encoder_of(codes, search.settings.custom) if codes is not None else None
    held = PartCache(HELD if search.settings.cache_bytes else 0)

    def run(parts: int, threads: int) -> None:
        first = _first_rows(search, parts)
        window = search.settings.window
        truth = ExactScorer(vectors=first, kernel=search.kernel.ranking, threads=threads, window=window)
        bounds = None
        if codes is not None:
            assert encoder is not None
            bounds = OpenCodes(FirstParts(codes, parts), encoder, held)
        beta = search.beta if isinstance(search, ExactTask) else 1.0
        ExactSearch(scorer=truth, bounds=bounds, beta=beta).prove(queries, min(k, first.rows))

    return _three(run, search.settings.threads)


def _three(run: Callable[[int, int], None], threads: int) -> dict[str, Run]:
    """Return a run from memory, from the disk (its files are forgotten before), and on one thread."""
    return {
        "resident": lambda parts: run(parts, threads),
        "streamed": lambda parts: run(parts, threads),
        "one": lambda parts: run(parts, 1),
    }


def _first_rows(search: SearchTask, parts: int) -> FirstRows:
    """Return the vectors of the rows of the first parts."""
    assert search.vectors is not None
    last = search.codes.store.bounds(parts - 1)[1] if search.codes else search.vectors.bounds(parts - 1)[1]
    return FirstRows(search.vectors, last)


def _forget(search: SearchTask, parts: int) -> None:
    """Let the system drop the files of the first parts from memory."""
    if search.codes is not None:
        forget(chunk_files(search.codes.store, range(parts)))
    if search.vectors is not None and (search.exact or search.codes is None):
        first = _first_rows(search, parts)
        if isinstance(search.vectors, VectorStore):
            forget(chunk_files(search.vectors.store, range(first.parts)))


def _kept(search: SearchTask) -> float:
    """Return the share of what is scanned that a second pass finds in memory: all, if the system has room for it."""
    size = search.scanned_bytes
    return 1.0 if size < free_memory() // 2 else min(1.0, search.settings.cache_bytes / max(1, size))


def _reranking(search: SearchTask) -> tuple[float, float]:
    """Return the seconds that scoring a batch's best codes by the true kernel takes on all threads, and on one."""
    vectors, wanted = search.vectors, search.settings.rerank
    if search.codes is None or search.exact or vectors is None or wanted is None:
        return 0.0, 0.0
    queries = search.batch
    parts = min(vectors.parts, RERANKED_PARTS)
    first = FirstRows(vectors, vectors.bounds(parts - 1)[1])
    each = max(1, wanted * first.rows // vectors.rows)
    rows = np.random.default_rng(0).integers(0, first.rows, (len(queries), each))
    share = first.rows / vectors.rows

    def seconds(threads: int) -> float:
        return repeated(lambda: true_scores(first, search.kernel, queries, rows, threads=threads)) / share

    return seconds(search.settings.threads), seconds(1)


def _answer_bytes(search: SearchTask) -> int:
    """Return the bytes of the hits: ids in 8, scores in 4 or, by the true kernel, 8."""
    exact = search.codes is None or search.exact or search.settings.rerank
    return search.queries.shape[0] * search.settings.k * (16 if exact else 12)

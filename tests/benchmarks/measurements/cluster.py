"""Encoding and searching on processes beside as many threads: the same work, interleaved, and what
start-up takes."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs import api
from mercore.jobs.cluster import client
from mercore.jobs.cluster.connect import ThreadsHere
from mercore.jobs.cluster.encode_parts import Sources, encode_parts
from mercore.jobs.cluster.search_parts import searching
from mercore.jobs.cluster.workers import RemoteWorkers, Workers
from mercore.jobs.resources.execution import Execution, SearchSize, WorkerPaths
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.parallel import in_order
from mercore.pipeline.search.answers import concatenate_answers
from mercore.pipeline.search.batch_search import (
    SearchSettings,
    search_code_store,
    search_vector_store,
)
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.executor import Executor
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.stores.codes import create_or_resume, open_code_store
from mercore.stores.rows import open_rows, open_vectors
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

KERNEL, K = "chi2", 10
Answer = dict[str, NDArray[Any]]


class Both(NamedTuple):
    """The same work here and elsewhere."""

    threads: Callable[[], Answer]
    processes: Callable[[], Answer]


class Setting(NamedTuple):
    """What is measured: workers of either kind, queries per batch, and how often."""

    workers: int
    batch: int
    repeats: int


class Made(NamedTuple):
    """The stores that are searched, and a folder for what is encoded."""

    vectors: str
    codes: str
    bounds: str
    folder: Path


def made(vectors: str, folder: Path) -> Made:
    """Make codes and bounds in ``folder``; return the stores."""
    codes, bounds = (str(folder / name) for name in ("aska", "bound"))
    api.encode(vectors, codes, kernel=KERNEL, encoder="aska")
    api.encode(vectors, bounds, kernel=KERNEL, encoder="bound", force=True)  # of few rows too
    return Made(vectors, codes, bounds, folder)


def measure(queries: str, made: Made, setting: Setting) -> tuple[list[Row], float]:
    """Return a row per kind of work on threads and on as many processes, and the seconds until
    the processes are there."""
    rows: list[Row] = []
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1))
        began = time.perf_counter()
        workers = stack.enter_context(client.connect(Execution(processes=setting.workers)))
        start = time.perf_counter() - began
        here = ThreadsHere(setting.workers)
        executor = partial(
            _executor,
            stack,
            workers,
            SearchSize((setting.repeats + 2) * open_rows(queries).shape[0], setting.batch),
        )
        work = {
            "search of codes, aska": _codes(executor, made, queries, setting),
            "exact search by bounds": _exact(executor, made, queries, setting),
            "search of every row by the true kernel": _exhaustive(executor, made, queries, setting),
            "encode, aska, all parts": Both(
                *(partial(_encode, at, made) for at in (here, workers))
            ),
        }
        for name, both in work.items():
            rows.append({"work": name} | _compare(both, setting.repeats))
    return rows, start


def _compare(both: Both, repeats: int) -> Row:
    """Return the medians of interleaved repeats; the answers must be the same to the bit."""
    here, there = both.threads(), both.processes()  # and loops are loaded
    for name, values in here.items():
        np.testing.assert_array_equal(there[name], values, strict=True)
    seconds = interleaved({"threads": both.threads, "processes": both.processes}, repeats)
    return {
        "threads, s": seconds["threads"],
        "processes, s": seconds["processes"],
        "processes, × threads": seconds["threads"] / seconds["processes"],
    }


def _encode(workers: Workers, made: Made) -> Answer:
    """Encode all parts; return their checksums."""
    path, like = made.folder / "encoded", open_code_store(Path(made.codes))
    shutil.rmtree(path, ignore_errors=True)
    store = create_or_resume(
        path, like.spec, like.store.layout, like.model, source_path=Path(made.vectors)
    )
    encode_parts(workers, str(path), Sources(made.vectors), range(store.parts))
    return {"receipts": np.array([str(receipt.chunks) for receipt in store.receipts])}


def _codes(executor: Callable[..., Executor], made: Made, queries: str, setting: Setting) -> Both:
    codes, rows, kernel = open_code_store(Path(made.codes)), open_rows(queries), make_kernel(KERNEL)

    def search(executor: Executor) -> Answer:
        hits = search_code_store(
            codes, rows, SearchSettings(k=K, batch=setting.batch, executor=executor)
        )
        return {"ids": hits.ids, "scores": _scores(hits.scores)}

    here = ThreadExecutor(
        kernel=kernel, threads=setting.workers, codes=OpenCodes(codes, encoder_of(codes))
    )
    there = executor(WorkerPaths(kernel=kernel.spec(), codes=made.codes))
    return Both(partial(search, here), partial(search, there))


def _exhaustive(
    executor: Callable[..., Executor], made: Made, queries: str, setting: Setting
) -> Both:
    vectors, rows, kernel = open_vectors(made.vectors), open_rows(queries), make_kernel(KERNEL)

    def search(executor: Executor) -> Answer:
        options = SearchSettings(k=K, batch=setting.batch, executor=executor)
        hits = search_vector_store(vectors, kernel, rows, options)
        return {"ids": hits.ids, "scores": _scores(hits.scores)}

    here = ThreadExecutor(kernel=kernel, threads=setting.workers, vectors=vectors)
    there = executor(WorkerPaths(kernel=kernel.spec(), vectors=made.vectors))
    return Both(partial(search, here), partial(search, there))


def _exact(executor: Callable[..., Executor], made: Made, queries: str, setting: Setting) -> Both:
    codes, source, kernel = (
        open_code_store(Path(made.bounds)),
        open_rows(queries),
        make_kernel(KERNEL),
    )
    scorer = ExactScorer(
        vectors=open_vectors(made.vectors), kernel=kernel.ranking, threads=setting.workers
    )
    here = ExactSearch(
        scorer=scorer,
        bounds=OpenCodes(codes, encoder_of(codes)),
        batches=-(-source.shape[0] // setting.batch),
    )
    spec = kernel.ranking.spec()
    there = replace(
        here, remote=executor(WorkerPaths(kernel=spec, codes=made.bounds, vectors=made.vectors))
    )

    def batches() -> Iterator[NDArray[Any]]:
        for start in range(0, source.shape[0], setting.batch):
            yield source.read(start, min(start + setting.batch, source.shape[0]))

    def search(exact: ExactSearch) -> Answer:
        proofs = in_order(
            ((exact.share(), raw) for raw in batches()),
            lambda batch: batch[0].prove(batch[1], K),
            exact.executor.concurrent_batches,
        )
        return concatenate_answers(list(proofs)).arrays()

    return Both(partial(search, here), partial(search, there))


def _executor(
    stack: ExitStack, workers: RemoteWorkers, size: SearchSize, paths: WorkerPaths
) -> Executor:
    """Return an executor on workers, which are at work on stores until the end."""
    return stack.enter_context(searching(workers, paths, size))


def _scores(scores: NDArray[np.floating[Any]] | None) -> NDArray[Any]:
    assert scores is not None
    return scores

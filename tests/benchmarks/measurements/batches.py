"""Several batches on two threads, and long lists: each beside the other way, in one run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.planning.samples import FirstParts
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.kernels import kernel_from_spec
from mercore.pipeline.parallel import in_order
from mercore.pipeline.search.batch_search import answer
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.vectors import open_vector_store
from tests.benchmarks.measurements.exact import spread_queries
from tests.benchmarks.measurements.many_cores import encoder_bytes
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

THREADS, REPEATS, CACHE_BYTES = 2, 5, 1 << 30
LISTS = (10, 100, 1000, 10_000)
Batches = Sequence[NDArray[Any]]


def whole_batches(codes: Path, query_file: str, size: int, count: int, k: int) -> Row:
    """Return the seconds of searching batches of codes in memory: threads share each, or take one.

    The answers are compared.
    """
    opened = _open(open_code_store(codes))
    kernel, batches = kernel_from_spec(opened.store.spec.kernel), _batches(query_file, size, count)

    def run(threads: int, workers: int) -> NDArray[np.int64]:
        executor = ThreadExecutor(kernel=kernel, threads=threads, codes=opened)
        parts = range(opened.store.parts)
        found = in_order(batches, lambda raw: answer(executor.batch(raw), parts, k, None), workers)
        return np.concatenate([each.ids for each in found])

    rows = f"{opened.store.rows:,} rows, {count} batches of {size}, k = {k}"
    return {"search": f"{_name(codes)}, {rows}"} | _compared(run)


def whole_exact_batches(vectors: Path, codes: Path, query_file: str, size: int, count: int) -> Row:
    """Return the seconds of the exact search of batches: see ``whole_batches``."""
    opened, rows, k = _open(open_code_store(codes)), open_vector_store(vectors), 10
    kernel, batches = kernel_from_spec(opened.store.spec.kernel), _batches(query_file, size, count)

    def run(threads: int, workers: int) -> NDArray[np.int64]:
        scorer = ExactScorer(vectors=rows, kernel=kernel, threads=threads)
        search = ExactSearch(scorer=scorer, bounds=opened)
        found = in_order(batches, lambda raw: search.prove(raw, k), workers)
        return np.concatenate([each.ids for each in found])

    text = f"{rows.rows:,} rows, {count} batches of {size}, k = {k}"
    return {"search": f"exact by {_name(codes)}, {text}"} | _compared(run)


def long_lists(codes: Path, query_file: str, rows: int) -> list[Row]:
    """Return the seconds of one batch of codes in memory by k, on two threads."""
    store = open_code_store(codes)
    opened = _open(FirstParts(store, min(store.parts, -(-rows // store.store.layout.part_rows))))
    lines: list[Row] = []
    for count in (1, 32, 128):
        queries = spread_queries(query_file, count)
        with threadpool_limits(1):
            times = interleaved(
                {
                    f"k = {k:,}, ms": lambda k=k, queries=queries: scan_codes(  # type: ignore[misc]
                        opened, queries, k, threads=THREADS
                    )
                    for k in LISTS
                },
                REPEATS,
            )
        few, many = (times[f"k = {k:,}, ms"] for k in (100, 1000))
        line: Row = {"queries": count}
        line |= {name: seconds * 1e3 for name, seconds in times.items()}
        lines.append(line | {"k = 1,000 / k = 100": many / few})
    return lines


def _open(store: CodeStore) -> OpenCodes:
    return OpenCodes(store, encoder_of(store), PartCache(CACHE_BYTES))


def _batches(query_file: str, size: int, count: int) -> Batches:
    return np.array_split(spread_queries(query_file, size * count), count)


def _name(codes: Path) -> str:
    return f"{open_code_store(codes).spec.encoder['name']} of {encoder_bytes(codes)} bytes"


def _compared(run: Any) -> Row:
    """Return the seconds of both ways, which must find the same ids."""
    with threadpool_limits(1):
        assert np.array_equal(run(THREADS, 1), run(1, THREADS))
        times = interleaved(
            {"shared": lambda: run(THREADS, 1), "whole": lambda: run(1, THREADS)}, REPEATS
        )
    return {
        "parts shared, s": times["shared"],
        "whole batches, s": times["whole"],
        "shared / whole": times["shared"] / times["whole"],
    }

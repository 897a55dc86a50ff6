"""Searches of the same codes by open stores: codes alone, reranked, and exact."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from mercore.jobs import api
from mercore.jobs.session.open_store import open as open_store
from mercore.pipeline.measures.recall import k_recall
from mercore.stores.results.hits import Hits
from tests.benchmarks.measurements.exact import Queries
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

K = 10
AT_ONCE = (100, 10, 1)  # queries of smaller batches
SINGLE = 10  # queries that are searched one by one
SEARCHES: dict[str, dict[str, Any]] = {
    "codes alone": {},
    **{f"--rerank {count}": {"rerank": count} for count in (10, 100, 1000)},
    "--exact": {"exact": True},
}


def reranked(vectors: str, codes: str, encoder: str, kernel: str, queries: Queries) -> list[Row]:
    """Make codes at a path, and return a row per search of them, and one of scoring every row.

    A row has the share of the true ``K`` neighbours that are found, and CPU milliseconds per query
    on one thread by the number of queries at once: medians of interleaved repeats. Both stores are
    open, and in memory.
    """
    api.encode(vectors, codes, kernel=kernel, encoder=encoder)
    with (
        open_store(codes, threads=1) as of_codes,
        open_store(vectors, kernel=kernel, threads=1) as of_vectors,
    ):
        searches: dict[str, Callable[..., Hits]] = {
            name: partial(of_codes.search, k=K, **options) for name, options in SEARCHES.items()
        }
        searches["every row"] = partial(of_vectors.search, k=K)
        ids = {name: search(queries).ids for name, search in searches.items()}
        lines: dict[str, Row] = {
            name: {"search": name, "found": f"{k_recall(each, ids['every row'], K):.4f}"}
            for name, each in ids.items()
        }
        for count in (len(queries), *AT_ONCE):
            some = queries[:: len(queries) // max(count, SINGLE)][: max(count, SINGLE)]
            tasks = {name: partial(_in_turn, each, some, count) for name, each in searches.items()}
            for name, seconds in interleaved(tasks, clock=time.process_time).items():
                lines[name][f"{count:,} at once, ms"] = 1000 * seconds / len(some)
    return list(lines.values())


def _in_turn(search: Callable[..., Hits], queries: Queries, count: int) -> None:
    for start in range(0, len(queries), count):
        search(queries[start : start + count])

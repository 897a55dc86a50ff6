"""Search few rows of each query: those next to it in sorted orders, or those of cells near it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.cells.probe import OpenCells
from mercore.pipeline.kernels import Kernel, kernel_from_spec
from mercore.pipeline.orders.candidates import OpenOrders
from mercore.pipeline.search.batch_search import (
    Advance,
    SearchSettings,
    query_batches,
    reranked,
)
from mercore.pipeline.search.executor import Executor
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.pipeline.topk import TopK
from mercore.stores.formats.source import Source
from mercore.stores.results.hits import Hits
from mercore.stores.vectors import Vectors

Counts = NDArray[np.int64]
Answer = tuple[TopK, Counts]


class FewHits(NamedTuple):
    """Hits, and the number of rows that were looked at for each query, int64[nq]."""

    hits: Hits
    scored: Counts


def search_order_store(
    orders: OpenOrders,
    vectors: Vectors,
    queries: Source,
    settings: SearchSettings,
    *,
    advance: Advance = lambda queries: None,
) -> FewHits:
    """Return each query's k best candidates by the true kernel, float64; −1 where there are fewer.

    Parameters
    ----------
    queries, settings : as ``check_queries`` and ``SearchSettings.check`` accept them
    vectors : the rows that were encoded and sorted

    Raises
    ------
    IntegrityError
        If a byte that is read differs from the byte that was written.
    """
    kernel = kernel_from_spec(orders.store.spec.kernel, settings.custom)
    executor = _executor(kernel, vectors, settings)

    def answer(raw: NDArray[Any]) -> Answer:
        rows, of_query = orders.candidates(
            raw, threads=settings.threads, selection=vectors.selection
        )
        top_k = TopK(len(raw), settings.k, np.float64)
        top_k.insert(of_query, rows, executor.batch(raw).scores(rows, of_query, settings.k))
        return TopK.merge([top_k]), np.bincount(of_query, minlength=len(raw))

    ids, scores, scored = _collect(answer, queries, settings, advance)
    return FewHits(Hits(scores=kernel.shown(scores), ids=vectors.ids_of(ids)), scored)


def search_cell_store(
    cells: OpenCells,
    vectors: Vectors | None,
    queries: Source,
    settings: SearchSettings,
    *,
    advance: Advance = lambda queries: None,
) -> FewHits:
    """Return each query's k best rows of its nearest cells; −1 where they hold fewer.

    Scores are those of the codes, float32, or of the true kernel, float64, if settings rerank.

    Parameters
    ----------
    queries, settings : as ``check_queries`` and ``SearchSettings.check`` accept them
    vectors : the rows that were encoded, with the selection of the cells; needed for reranking

    Raises
    ------
    IntegrityError
        If a byte that is read differs from the byte that was written.
    """
    kernel = kernel_from_spec(cells.store.spec.kernel, settings.custom)
    executor = _executor(kernel, vectors, settings)

    def answer(raw: NDArray[Any]) -> Answer:
        top_k, scanned = cells.scan(raw, settings.rerank or settings.k, threads=settings.threads)
        if settings.rerank is not None:
            top_k = reranked(executor.batch(raw), top_k.ids, settings.k)
        return top_k, scanned

    ids, scores, scanned = _collect(answer, queries, settings, advance)
    return FewHits(Hits(scores=kernel.shown(scores), ids=cells.ids_of(ids)), scanned)


def _executor(kernel: Kernel, vectors: Vectors | None, settings: SearchSettings) -> Executor:
    """Return the executor that scores rows by the true kernel."""
    return settings.executor or ThreadExecutor(
        kernel=kernel, threads=settings.threads, vectors=vectors
    )


def _collect(
    answer: Callable[[NDArray[Any]], Answer],
    queries: Source,
    settings: SearchSettings,
    advance: Advance,
) -> tuple[Counts, NDArray[np.floating], Counts]:
    """Answer the queries batch by batch; return rows and scores [nq, k], and counts int64[nq]."""
    answers, counts = [], []
    for _, raw in query_batches(queries, settings.batch):
        top_k, looked_at = answer(raw)
        answers.append(top_k)
        counts.append(looked_at)
        advance(len(raw))
    return (
        np.concatenate([top_k.ids for top_k in answers]),
        np.concatenate([top_k.scores for top_k in answers]),
        np.concatenate(counts),
    )

"""Search sorted orders: score the rows next to a query in an order, by the true kernel."""

from typing import NamedTuple

import numpy as np

from mercore.pipeline.kernels import kernel_from_spec
from mercore.pipeline.orders.candidates import OpenOrders
from mercore.pipeline.search.batch_search import (
    Advance,
    SearchSettings,
    query_batches,
)
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.pipeline.topk import TopK
from mercore.stores.formats.source import Source
from mercore.stores.results.hits import Hits
from mercore.stores.vectors import Vectors


class OrderHits(NamedTuple):
    """Hits, and the number of rows that were scored for each query, int64[nq]."""

    hits: Hits
    scored: np.ndarray[tuple[int], np.dtype[np.int64]]


def search_order_store(
    orders: OpenOrders,
    vectors: Vectors,
    queries: Source,
    settings: SearchSettings,
    *,
    advance: Advance = lambda queries: None,
) -> OrderHits:
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
    store = orders.store
    kernel = kernel_from_spec(store.spec.kernel, settings.custom)
    executor = settings.executor or ThreadExecutor(
        kernel=kernel, threads=settings.threads, vectors=vectors
    )
    answers, scored = [], []
    for _, raw in query_batches(queries, settings.batch):
        rows, of_query = orders.candidates(
            raw, threads=settings.threads, selection=vectors.selection
        )
        top_k = TopK(len(raw), settings.k, np.float64)
        top_k.insert(of_query, rows, executor.batch(raw).scores(rows, of_query, settings.k))
        answers.append(TopK.merge([top_k]))
        scored.append(np.bincount(of_query, minlength=len(raw)))
        advance(len(raw))
    ids = np.concatenate([top_k.ids for top_k in answers])
    hits = Hits(
        scores=kernel.shown(np.concatenate([top_k.scores for top_k in answers])),
        ids=vectors.ids_of(ids),
    )
    return OrderHits(hits, np.concatenate(scored))

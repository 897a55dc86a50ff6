"""Search a store for a stream of queries, batch by batch.

Codes are scanned, and reranked on request; vectors are searched by the true kernel.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.first_use import before_scanning
from mercore.pipeline.encode import encoder_of, spec_of
from mercore.pipeline.kernels import CustomKernel, Kernel, kernel_from_spec
from mercore.pipeline.parallel import in_order
from mercore.pipeline.search.executor import Executor, QueryBatch
from mercore.pipeline.search.rerank import scores_of_lists
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.pipeline.topk import TopK, top_k_of
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError, ShapeError
from mercore.stores.formats.source import Source
from mercore.stores.indexes import Index
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.results.hits import Hits
from mercore.stores.selection import RowsByLabel
from mercore.stores.vectors import Vectors
from mercore.stores.wording import option, setting

MAX_BATCH = 1 << 16


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The settings of a search for k neighbours, ``batch`` queries at a time.

    ``rerank`` is the number of top codes to rerank by the true kernel. Each batch is a pass over
    the codes. Up to ``cache_bytes`` of them stay in memory from one pass to the next. ``threads``
    is the number of threads for all batches that run at the same time. ``window``
    is the number of parts whose bounds an exact search compares at a time where memory is short.
    ``custom`` is the user's kernel, if the codes have one. ``executor`` replaces the threads of
    this process. ``labels`` say which rows take part for each query, None for all.
    """

    k: int
    rerank: int | None = None
    batch: int = 1024
    threads: int = 1
    cache_bytes: int = 0
    window: int | None = None
    custom: CustomKernel | None = None
    executor: Executor | None = None
    labels: RowsByLabel | None = None

    def batches(self, queries: int) -> int:
        """Return the number of batches of a number of queries."""
        return -(-queries // self.batch)

    def concurrent_batches(self, queries: int) -> int:
        """Return the number of batches that the threads work on at the same time."""
        return min(self.batches(queries), self.threads)

    def check(self, rows: int) -> None:
        """Refuse settings that do not fit a store of ``rows`` rows.

        Raises
        ------
        InputError
            If one is out of range.
        """
        if not 1 <= self.k <= rows:
            raise InputError(
                f"k is out of range: found {self.k}, expected 1 to {rows}, the rows of the store. "
                f"Fix: {setting(k=min(100, rows))}"
            )
        if self.rerank is not None and not self.k <= self.rerank <= rows:
            raise InputError(
                f"rerank is out of range: found {self.rerank}, expected k = {self.k} to {rows}, "
                f"the rows of the store. Fix: {setting(rerank=min(rows, 10 * self.k))}"
            )
        if not 1 <= self.batch <= MAX_BATCH:
            raise InputError(
                f"batch is out of range: found {self.batch}, expected 1 to {MAX_BATCH}. Fix: "
                f"leave {option('batch')} out."
            )
        if self.threads < 1:
            raise InputError(
                f"threads is out of range: found {self.threads}, expected 1 or more. Fix: leave "
                f"{option('threads')} out."
            )


Advance = Callable[[int], None]


def search_code_store(
    store: CodeStore,
    queries: Source,
    settings: SearchSettings,
    *,
    vectors: Vectors | None = None,
    advance: Advance = lambda queries: None,
) -> Hits:
    """Return each query's top k by code, float32, or reranked by the true kernel, float64.

    Parameters
    ----------
    queries, settings : as ``check_queries`` and ``SearchSettings.check`` accept them
    vectors : the rows that were encoded, as ``check_source`` accepts them; needed for reranking

    Raises
    ------
    IntegrityError
        If a byte of the store differs from the one written; no result is then returned.
    """
    kernel = kernel_from_spec(store.spec.kernel, settings.custom)
    executor = code_executor(store, queries, settings, vectors)
    searched = range(store.parts), store.ids_of
    return _shown(kernel, _collect(queries, executor, searched, settings, advance))


def code_executor(
    store: CodeStore, queries: Source, settings: SearchSettings, vectors: Vectors | None
) -> Executor:
    """Return the executor of a search of codes: that of the settings, or threads."""
    if settings.executor is not None:
        return settings.executor
    batches = settings.batches(queries.shape[0])
    before_scanning(spec_of(store), min(queries.shape[0], settings.batch))
    passes = batches > 1 or settings.labels is not None
    cache = PartCache(settings.cache_bytes if passes else 0)
    return ThreadExecutor(
        kernel=kernel_from_spec(store.spec.kernel, settings.custom),
        threads=settings.threads,
        batches=batches,
        vectors=vectors,
        codes=OpenCodes(store, encoder_of(store, settings.custom), cache),
    )


def search_vector_store(
    vectors: Vectors,
    kernel: Kernel,
    queries: Source,
    settings: SearchSettings,
    *,
    advance: Advance = lambda queries: None,
) -> Hits:
    """Return each query's exact top k by the true kernel, float64, from scores of every row.

    Parameters
    ----------
    queries, settings : as ``check_queries`` and ``SearchSettings.check`` accept them

    Raises
    ------
    IntegrityError
        If a byte of the store differs from the one written.
    """
    executor = settings.executor or ThreadExecutor(
        kernel=kernel,
        threads=settings.threads,
        batches=settings.batches(queries.shape[0]),
        vectors=vectors,
    )
    searched = None, vectors.ids_of
    return _shown(kernel, _collect(queries, executor, searched, settings, advance))


def _shown(kernel: Kernel, hits: Hits) -> Hits:
    """Return hits with the scores that users see."""
    assert hits.scores is not None
    return Hits(scores=kernel.shown(hits.scores), ids=hits.ids)


def check_source(vectors: Vectors, store: CodeStore | Index) -> None:
    """Refuse vectors that are not the source of a code store.

    Raises
    ------
    InputError
        If the fingerprints differ.
    """
    if vectors.fingerprint != store.spec.source:
        raise InputError(
            f"{vectors.where} is not what {store.where} encodes: found vectors "
            f"{vectors.fingerprint}, "
            f"expected {store.spec.source}. Fix: name the right vector store with "
            f"{option('vectors')}, or encode this one."
        )


def check_queries(queries: Source, kernel: Kernel, dims: int, where: str) -> None:
    """Refuse no queries, or queries of another dimension or outside the kernel's domain."""
    nq, d = queries.shape
    if d != dims:
        raise ShapeError(
            f"{queries.name} has d = {d}: expected {dims}, the dimension of {where}. "
            "Fix: name queries of the same kind."
        )
    if nq == 0:
        raise ShapeError(
            f"{queries.name} holds no query: expected at least one. Fix: check the file."
        )
    for start, batch in query_batches(queries, 4096):
        kernel.checked(batch, start, "query")


def _collect(
    queries: Source,
    executor: Executor,
    searched: tuple[Sequence[int] | None, Callable[[NDArray[np.int64]], NDArray[np.int64]]],
    settings: SearchSettings,
    advance: Advance,
) -> Hits:
    """Answer the queries batch by batch, and return hits with the original ids of the rows."""
    (parts, ids_of), answers = searched, []

    def work(batch: tuple[Executor, int, NDArray[Any]]) -> TopK:
        share, first, raw = batch
        worker = share.single_worker()
        if worker is not None:
            return worker.answer(raw, settings.k, settings.rerank)
        return answer_batch(share, raw, parts, settings, first)

    for top_k in in_order(
        ((executor.share(), *batch) for batch in query_batches(queries, settings.batch)),
        work,
        executor.concurrent_batches,
    ):
        answers.append(top_k)
        advance(len(top_k.ids))
    ids = np.concatenate([top_k.ids for top_k in answers])
    return Hits(scores=np.concatenate([top_k.scores for top_k in answers]), ids=ids_of(ids))


def answer_batch(
    executor: Executor,
    raw: NDArray[Any],
    parts: Sequence[int] | None,
    settings: SearchSettings,
    first: int = 0,
) -> TopK:
    """Return the top k of a batch of raw queries; ``first`` is the number of its first.

    With labels, those of one label are answered at a time; a query for which fewer than k rows take
    part has free entries.
    """
    k, rerank = settings.k, settings.rerank
    if settings.labels is None:
        return answer(executor.batch(raw), parts, k, rerank)
    scored = parts is None or rerank is not None
    lists = TopK(len(raw), k, np.float64 if scored else np.float32)
    assert isinstance(executor, ThreadExecutor)
    for queries, selection in settings.labels.groups(first, len(raw)):
        narrow = executor.among(selection)
        some = min(k, narrow.rows)
        if some:
            few = range(narrow.codes.store.parts) if narrow.codes and parts is not None else None
            best = rerank and min(rerank, narrow.rows)
            top_k = answer(narrow.batch(raw[queries]), few, some, best)
            lists.scores[queries, :some] = top_k.scores
            lists.ids[queries, :some] = selection.rows_of(top_k.ids)
    return lists


def answer(batch: QueryBatch, parts: Sequence[int] | None, k: int, rerank: int | None) -> TopK:
    """Return the top k by code, or of the top ``rerank`` by code the top k by the true kernel.

    Without parts of codes, return the top k of all vectors by the true kernel.
    """
    if parts is None:
        return batch.score_every_row(partial(TopK, len(batch.queries), k, np.float64))
    top_k = batch.scan(parts, rerank or k)
    return top_k if rerank is None else reranked(batch, top_k.ids, k)


def reranked(batch: QueryBatch, rows: NDArray[np.int64], k: int) -> TopK:
    """Return the top k of lists of rows int64[nq, R] by the true kernel; −1 is no row."""
    return top_k_of(scores_of_lists(rows, partial(batch.scores, k=k)), rows, k)


def query_batches(queries: Source, size: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield (number of the first query, block of at most ``size`` queries)."""
    for start in range(0, queries.shape[0], size):
        yield start, queries.read(start, min(start + size, queries.shape[0]))

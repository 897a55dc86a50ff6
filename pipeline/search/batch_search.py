"""Search a store for a stream of queries, batch by batch: codes, codes reranked, or vectors by the true kernel."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encode import encoder_of, spec_of
from mercore.pipeline.first_use import before_scanning
from mercore.pipeline.kernels import CustomKernel, Kernel, kernel_from_spec
from mercore.pipeline.parallel import in_order
from mercore.pipeline.search.executor import Executor, ThreadExecutor, answer
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.topk import TopK
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError, ShapeError
from mercore.stores.formats.source import Source
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.results.hits import Hits
from mercore.stores.vectors import Vectors, original_ids

MAX_BATCH = 1 << 16


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """k neighbours a query, in batches of ``batch`` queries, on ``threads`` threads; the R best codes reranked.

    Each batch is a pass over the codes: up to ``cache_bytes`` bytes of them stay in memory from one pass to the next.
    ``custom`` is the user's kernel, if the codes have one; ``executor`` replaces threads of this process.
    An exact search that is to take little memory compares the bounds of ``window`` parts at once.
    """

    k: int
    rerank: int | None = None
    batch: int = 1024
    threads: int = 1
    cache_bytes: int = 0
    window: int | None = None
    custom: CustomKernel | None = None
    executor: Executor | None = None

    def check(self, rows: int) -> None:
        """Refuse counts that a store of ``rows`` rows cannot serve.

        Raises
        ------
        InputError
            If one is out of range.
        """
        if not 1 <= self.k <= rows:
            raise InputError(
                f"k is out of range: found {self.k}, expected 1 to {rows}, the rows of the store. "
                f"Fix: -k {min(100, rows)}"
            )
        if self.rerank is not None and not self.k <= self.rerank <= rows:
            raise InputError(
                f"rerank is out of range: found {self.rerank}, expected k = {self.k} to {rows}, the rows of the store. "
                f"Fix: --rerank {min(rows, 10 * self.k)}"
            )
        if not 1 <= self.batch <= MAX_BATCH:
            raise InputError(
                f"batch is out of range: found {self.batch}, expected 1 to {MAX_BATCH}. Fix: leave --batch out."
            )
        if self.threads < 1:
            raise InputError(
                f"threads is out of range: found {self.threads}, expected 1 or more. Fix: leave --threads out."
            )


Advance = Callable[[int], None]


def search_code_store(
    store: CodeStore,
    queries: Source,
    options: SearchOptions,
    *,
    vectors: Vectors | None = None,
    advance: Advance = lambda queries: None,
) -> Hits:
    """Return each query's k best by ASKA score (float32), or by the true kernel (float64) if options ask to rerank.

    Parameters
    ----------
    vectors : the rows that the codes came from; needed for reranking

    Raises
    ------
    InputError, ShapeError
        If the options or the queries do not fit the store.
    IntegrityError
        If a byte of the store is not the one that was written; no result is then returned.
    """
    kernel = kernel_from_spec(store.spec.kernel, options.custom)
    options.check(store.rows)
    check_queries(queries, kernel, store.spec.dims, store.where)
    if vectors is not None:
        check_source(vectors, store)
    passes = -(-queries.shape[0] // options.batch)
    executor = options.executor
    if executor is None:
        before_scanning(spec_of(store), min(queries.shape[0], options.batch))
        codes = OpenCodes(store, encoder_of(store, options.custom), PartCache(options.cache_bytes if passes > 1 else 0))
        executor = ThreadExecutor(kernel=kernel, threads=options.threads, vectors=vectors, codes=codes)

    return _collect(queries, executor, (range(store.parts), store.dropped), options, advance)


def search_vector_store(
    vectors: Vectors,
    kernel: Kernel,
    queries: Source,
    options: SearchOptions,
    *,
    advance: Advance = lambda queries: None,
) -> Hits:
    """Return each query's k best rows by the true kernel, float64: exhaustive and exact.

    Raises
    ------
    InputError, ShapeError
        If the options or the queries do not fit the store.
    IntegrityError
        If a byte of the store is not the one that was written.
    """
    options.check(vectors.rows)
    check_queries(queries, kernel, vectors.dims, vectors.where)

    executor = options.executor or ThreadExecutor(kernel=kernel, threads=options.threads, vectors=vectors)
    return _collect(queries, executor, (None, vectors.dropped), options, advance)


def check_source(vectors: Vectors, store: CodeStore) -> None:
    """Refuse vectors that a store is not the codes of.

    Raises
    ------
    InputError
        If the fingerprints differ.
    """
    if vectors.fingerprint != store.spec.source:
        raise InputError(
            f"{vectors.where} is not what {store.where} encodes: found vectors {vectors.fingerprint}, "
            f"expected {store.spec.source}. Fix: name the right vector store with --vectors, or encode this one."
        )


def check_queries(queries: Source, kernel: Kernel, dims: int, where: str) -> None:
    """Refuse queries of another dimension, none at all, or any outside the kernel's domain, before the first scan."""
    nq, d = queries.shape
    if d != dims:
        raise ShapeError(
            f"{queries.name} has d = {d}: expected {dims}, the dimension of {where}. "
            "Fix: name queries of the same kind."
        )
    if nq == 0:
        raise ShapeError(f"{queries.name} holds no query: expected at least one. Fix: check the file.")
    for start, batch in _batches(queries, 4096):
        kernel.prepare(batch, first=start, label="query")


def _collect(
    queries: Source,
    executor: Executor,
    searched: tuple[Sequence[int] | None, NDArray[np.int64]],
    options: SearchOptions,
    advance: Advance,
) -> Hits:
    """Answer the queries batch by batch and give the rows their original ids."""
    (parts, dropped), answers = searched, []

    def work(raw: NDArray[Any]) -> TopK:
        alone = executor.alone()
        if alone is not None:
            return alone.answer(raw, options.k, options.rerank)
        return answer(executor.batch(raw), parts, options.k, options.rerank)

    for best in in_order((raw for _, raw in _batches(queries, options.batch)), work, executor.concurrent_batches):
        answers.append(best)
        advance(len(best.ids))
    ids = np.concatenate([best.ids for best in answers])
    return Hits(scores=np.concatenate([best.scores for best in answers]), ids=original_ids(ids, dropped))


def _batches(queries: Source, size: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield (first query, block of at most ``size``)."""
    for start in range(0, queries.shape[0], size):
        yield start, queries.read(start, min(start + size, queries.shape[0]))

"""Open stores: what a search has read stays in memory, so that small batches are fast."""

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from mercore.jobs.api import (
    row_choice,
)
from mercore.jobs.face.parameters import StrPath
from mercore.jobs.options import check_whole, refuse_unused
from mercore.jobs.resources.execution import Execution
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.jobs.verbs.rows.choice import RowChoice, RowSet
from mercore.jobs.verbs.searches.exact import check_bounds
from mercore.jobs.verbs.searches.task import (
    DEFAULT_K,
    SearchOptions,
    check_bounded,
    open_searched,
    open_source_vectors,
)
from mercore.pipeline.encode import encoder_of, spec_of
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.search.answers import concatenate_answers
from mercore.pipeline.search.batch_search import (
    SearchSettings,
    check_queries,
    query_batches,
    search_code_store,
    search_vector_store,
)
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes, read_parts
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.pipeline.search.within import (
    Limit,
    concatenate_ranges,
    least_score,
    pairs_in,
    range_hits,
    search_codes_within,
    search_within,
)
from mercore.stores.codes import SelectedCodes
from mercore.stores.errors import InputError, NotFoundError, naming_extras
from mercore.stores.formats import Sliced
from mercore.stores.formats.source import Source
from mercore.stores.indexes import OrderStore
from mercore.stores.part_store.part_files import Reads
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.results.hits import Hits
from mercore.stores.results.range_hits import RangeHits
from mercore.stores.rows import Stored
from mercore.stores.selection import Selection
from mercore.stores.vector_views import VectorCache, selected_vectors, store_of


class OpenStore:
    """An open store of vectors, codes or bounds, which ``mercore.open`` returns.

    Each part is read and checked when a search first needs it, and stays in memory while the limit
    allows. The hits are those of ``mercore.search``, which also checks the parts of vectors that no
    query needs. Several threads may search at once.

    Attributes
    ----------
    where : path of the store
    rows, dims : number of rows, and their dimension
    dropped : int64[dropped rows], numbers of the source rows that ingest left out
    """

    def __init__(
        self,
        store: str,
        stored: Stored | None,
        *,
        kernel: KernelOptions,
        vectors: str | None,
        execution: Execution,
    ) -> None:
        if isinstance(stored, OrderStore):
            raise InputError(
                f"{store} holds sorted orders, which cannot stay open: expected vectors, codes or "
                "bounds. Fix: mercore.search(orders, queries)."
            )
        self.where = store
        every = SearchOptions(kernel=kernel, rows=RowChoice(with_deleted=True))
        self._opened = open_searched(store, stored, every)
        self._moved = vectors
        self._threads = execution.thread_count
        assert execution.memory is not None
        self._memory = execution.memory
        scanned: Any = self._opened.codes or self._opened.vectors
        self.rows: int = scanned.rows
        self.dims: int = scanned.spec.dims if self._opened.codes else scanned.dims
        self.dropped: NDArray[np.int64] = scanned.dropped

    def search(
        self,
        queries: str | Sliced,
        *,
        k: int | None = None,
        rerank: int | None = None,
        exact: bool = False,
        probes: int | None = None,
        recall: float | None = None,
        among: StrPath | RowSet | None = None,
        without: StrPath | RowSet | None = None,
    ) -> Hits:
        """Return the k nearest rows of each query.

        ``ids, scores = store.search(queries)`` unpacks the hits.

        Parameters
        ----------
        queries : dtype[nq, d], or the path of a file
        k : neighbours per query; 100 by default, or all rows if there are fewer
        rerank : number of best codes that are scored again by the true kernel
        exact : whether to find the true neighbours; the store holds vectors, bounds, or codes of
            ``kpca-pq``, ``map-pq``, ``pca-pq`` or ``pq``
        probes, recall : the cells to scan in an index of cells, as of ``mercore.search``
        among, without : the rows that take part, as of ``mercore.search``; parts in memory serve
            every selection

        Raises
        ------
        MercoreError
            If an option or the queries do not fit the store, or a byte that was read is wrong.
        """
        check_whole(k=k, rerank=rerank)
        refuse_unused(f"{self.where} is no index of cells", probes=probes, recall=recall)
        selection = self._selection(among, without)
        rows = self.rows if selection is None else selection.count
        settings = SearchSettings(
            k=min(DEFAULT_K, rows) if k is None else k,
            rerank=rerank,
            threads=self._threads,
            custom=self._opened.custom,
        )
        settings.check(rows)
        if rerank is not None and (exact or self._opened.codes is None):
            raise InputError(
                f"rerank has no use here: scores of {self.where} are true already. Fix: leave "
                "rerank out."
            )
        with naming_extras():
            asked = self._opened.open_queries(queries)
        check_queries(asked, self.kernel, self.dims, self.where)
        with self._libraries.limit(limits=1):
            search = self._prove if exact else self._scan
            return search(asked, settings, selection)

    def search_within(
        self,
        queries: str | Sliced,
        within: float,
        *,
        exact: bool = False,
        among: StrPath | RowSet | None = None,
        without: StrPath | RowSet | None = None,
    ) -> RangeHits:
        """Return all rows within a threshold of each query.

        ``lims, scores, ids = store.search_within(queries, 0.9)`` unpacks the hits.

        Parameters
        ----------
        queries, exact, among, without : as of ``search``
        within : the least score, or the greatest distance; codes have approximate ones

        Raises
        ------
        MercoreError
            If an option or the queries do not fit the store, a byte that was read is wrong, or more
            pairs are within than the memory holds.
        """
        settings = SearchSettings(k=1, threads=self._threads, custom=self._opened.custom)
        selection, kernel = self._selection(among, without), self.kernel
        with naming_extras():
            asked = self._opened.open_queries(queries)
        check_queries(asked, kernel, self.dims, self.where)
        with self._libraries.limit(limits=1):
            if self._opened.codes is not None and not exact:
                codes, settings = self._scanned(settings, selection)
                return search_codes_within(
                    codes.store, asked, settings, Limit(within, pairs_in(None))
                )
            limit, search = (
                Limit(least_score(kernel, within), pairs_in(None)),
                self._exact(selection),
            )
            answers = concatenate_ranges(
                [
                    search_within(search, batch, limit)
                    for _, batch in query_batches(asked, settings.batch)
                ]
            )
            return range_hits(kernel, search.scorer.vectors, answers, within)

    def prefetch(self) -> int:
        """Read codes, then vectors, into the memory that the limit allows; return the bytes held.

        Vectors of codes that are not where they were, are left out.

        Raises
        ------
        IntegrityError
            If a byte that was read is wrong.
        """
        codes, held = self._codes, 0
        if codes is not None:
            names = codes.store.store.layout.column_names
            for _ in read_parts(codes, names, iter(range(codes.store.parts))):
                pass
            held = codes.cache.size
        with suppress(NotFoundError):
            vectors = self._vectors
            for part in range(vectors.parts)[: vectors.max_parts]:
                vectors.read_part(part)
            held += vectors.size
        return held

    def stats(self) -> dict[str, dict[str, int]]:
        """Return counts of the reads so far, of the codes and of the vectors.

        For each of them: ``bytes`` of chunks and the ``requests`` that read them, the ``blocks``
        in which rows were looked up, and ``cached``, the parts that came from memory instead.
        Vectors that no search has needed are not among them.
        """
        found = {}
        if self._codes is not None:
            found["codes"] = count_reads(self._codes.store.store.reads, self._codes.cache.hits)
        vectors: VectorCache | None = self.__dict__.get("_vectors")
        stored = None if vectors is None else store_of(vectors)
        if vectors is not None and stored is not None:
            found["vectors"] = count_reads(stored.store.reads, vectors.hits)
        return found

    def close(self) -> None:
        """Free the memory of the parts; a later search reads them again."""
        for name in ("_codes", "_vectors", "_exact_vectors"):
            self.__dict__.pop(name, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        codes = self._opened.codes
        what = "vectors" if codes is None else f"codes of {codes.spec.encoder['name']}"
        return f"<mercore.open({self.where!r}): {self.rows:,} rows of {self.dims}, {what}>"

    def _selection(
        self, among: StrPath | RowSet | None, without: StrPath | RowSet | None
    ) -> Selection | None:
        """Return the rows that take part, None for all."""
        if among is None and without is None:
            return self._undeleted
        store = self._opened.codes or self._opened.vectors
        assert store is not None
        return row_choice(among, without).selection(store, self._deleted)

    @cached_property
    def _undeleted(self) -> Selection | None:
        """The rows that are not deleted, None for all."""
        store = self._opened.codes or self._opened.vectors
        assert store is not None
        return row_choice(None, None).selection(store, self._deleted)

    @cached_property
    def _deleted(self) -> NDArray[np.uint8] | None:
        """A bit for each row, set if it is deleted."""
        codes, vectors = self._opened.codes, self._opened.vectors
        if codes is not None:
            return codes.deleted(self._moved)
        assert vectors is not None
        return vectors.deleted

    def _scan(self, queries: Source, settings: SearchSettings, selection: Selection | None) -> Hits:
        """Search codes, or every vector."""
        if self._opened.codes is not None:
            codes, settings = self._scanned(settings, selection)
            return search_code_store(codes.store, queries, settings)
        vectors = selected_vectors(self._vectors, selection)
        executor = ThreadExecutor(kernel=self.kernel, threads=self._threads, vectors=vectors)
        settings = replace(settings, executor=executor)
        return search_vector_store(vectors, self.kernel, queries, settings)

    def _scanned(
        self, settings: SearchSettings, selection: Selection | None
    ) -> tuple[OpenCodes, SearchSettings]:
        """Return the codes of the rows that take part, and settings with their executor."""
        codes = self._selected_codes(selection)
        assert codes is not None
        reranks = settings.rerank is not None
        vectors = selected_vectors(self._vectors, selection) if reranks else None
        executor = ThreadExecutor(
            kernel=self.kernel, threads=self._threads, vectors=vectors, codes=codes
        )
        return codes, replace(settings, executor=executor)

    def _prove(
        self, queries: Source, settings: SearchSettings, selection: Selection | None
    ) -> Hits:
        """Search for the true neighbours."""
        kernel, search = self.kernel, self._exact(selection)
        answers = concatenate_answers(
            [search.prove(batch, settings.k) for _, batch in query_batches(queries, settings.batch)]
        )
        scores = kernel.shown(kernel.from_ranking(answers.scores))
        return Hits(scores=scores, ids=search.scorer.vectors.ids_of(answers.ids))

    def _exact(self, selection: Selection | None) -> ExactSearch:
        """Return the exact search of the rows that take part."""
        if self._opened.codes is not None:
            check_bounds(self._opened.codes)
        scorer = ExactScorer(
            vectors=selected_vectors(self._exact_vectors, selection),
            kernel=self.kernel.ranking,
            threads=self._threads,
        )
        return ExactSearch(scorer=scorer, bounds=self._selected_codes(selection))

    def _selected_codes(self, selection: Selection | None) -> OpenCodes | None:
        """Return the codes of the rows that take part, which share the cache of all."""
        codes = self._codes
        if codes is None or selection is None:
            return codes
        return replace(codes, store=SelectedCodes(codes.store, selection), checked=set())

    @cached_property
    def _libraries(self) -> ThreadpoolController:
        """The libraries with threads of their own; finding them takes as long as a small search."""
        return ThreadpoolController()

    @property
    def kernel(self) -> Kernel:
        """The kernel whose scores the hits have."""
        return self._opened.kernel

    @cached_property
    def proves(self) -> bool:
        """Whether ``exact=True`` finds the true neighbours here; of codes without proofs, no."""
        codes = self._opened.codes
        return codes is None or spec_of(codes).proves

    @cached_property
    def _codes(self) -> OpenCodes | None:
        """The open codes, and a cache of their parts."""
        codes = self._opened.codes
        if codes is None:
            return None
        return OpenCodes(codes, encoder_of(codes, self._opened.custom), PartCache(self._memory))

    @cached_property
    def _vectors(self) -> VectorCache:
        """The vectors, and a cache of their parts in the memory that codes leave."""
        codes, vectors = self._opened.codes, self._opened.vectors
        if codes is None:
            assert vectors is not None
            left = self._memory
        else:
            vectors = open_source_vectors(codes, self._moved)
            left = max(0, self._memory - sum(codes.stored_bytes.values()))
        return VectorCache(vectors, left)

    @cached_property
    def _exact_vectors(self) -> VectorCache:
        """The vectors of an exact search, which refuses those that have grown since."""
        if self._opened.codes is not None:
            open_source_vectors(self._opened.codes, self._moved, exact=True)
            check_bounded(self._opened.codes, self._vectors)
        return self._vectors


def count_reads(reads: Reads, cached: int) -> dict[str, int]:
    """Return counts by name."""
    counts = {"bytes": reads.bytes, "requests": reads.requests, "blocks": reads.blocks}
    return counts | {"cached": cached}

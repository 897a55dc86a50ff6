"""Open indexes of cells: the cells that searches have read stay in memory."""

from dataclasses import replace
from functools import cached_property, lru_cache, partial

from mercore.jobs.api import row_choice
from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.face.parameters import StrPath
from mercore.jobs.options import check_whole, refuse_unused
from mercore.jobs.resources.execution import Execution
from mercore.jobs.session.open_store import OpenStore, count_reads
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.jobs.verbs.rows.choice import RowSet
from mercore.jobs.verbs.searches.cells import choose_probing
from mercore.jobs.verbs.searches.task import DEFAULT_K, check_probing, open_source_vectors
from mercore.pipeline.cells.probe import CellCache, OpenCells
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.kernels import Kernel, kernel_from_spec
from mercore.pipeline.linear_map import map_of, mapped_source
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.pipeline.search.sublinear import search_cell_store
from mercore.stores.errors import naming_extras
from mercore.stores.formats import Sliced
from mercore.stores.indexes import CellStore
from mercore.stores.results.hits import Hits
from mercore.stores.results.range_hits import RangeHits
from mercore.stores.rows import open_rows
from mercore.stores.vector_views import VectorCache, selected_vectors, store_of


class OpenIndex(OpenStore):
    """An open index of cells, which ``mercore.open`` returns.

    Each cell is read and checked when a search first needs it, and stays in memory while the limit
    allows; vectors that rerank have half of the limit. The hits are those of ``mercore.search``.
    Several threads may search at once.

    Attributes
    ----------
    where : path of the index
    rows, dims : number of rows, and their dimension
    dropped : int64[dropped rows], numbers of the source rows that ingest left out
    """

    def __init__(
        self, cells: CellStore, *, kernel: KernelOptions, vectors: str | None, execution: Execution
    ) -> None:
        custom = custom_kernel_of(cells, kernel.name)
        self._kernel = kernel_from_spec(cells.spec.kernel, custom)
        kernel.check_same(self._kernel, cells.where)
        cells.check_done()
        assert execution.memory is not None
        self.where, self.rows, self.dims = cells.where, cells.rows, cells.spec.dims
        self.dropped = cells.dropped
        self._moved, self._half = vectors, execution.memory // 2
        self._settings = SearchSettings(k=1, threads=execution.thread_count, custom=custom)
        self._map = map_of(cells)
        self._index = OpenCells.of(cells, encoder_of(cells, custom), 1, self._half)
        self._probing = lru_cache(partial(choose_probing, cells))
        self._deleted = cells.deleted(vectors)

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
        """Return the k nearest rows of each query, from the cells near it.

        Parameters
        ----------
        queries, k, rerank, probes, recall, among, without : as of ``OpenStore.search``
        exact : has no use, as the search bounds nothing

        Raises
        ------
        MercoreError
            If an option or the queries do not fit the index, or a byte that was read is wrong.
        """
        check_whole(k=k, rerank=rerank)
        check_probing(probes, recall)
        refuse_unused(self._leaves_rows_out, exact=exact or None)
        cells = self._index.store
        selection = row_choice(among, without).selection(cells, self._deleted)
        rows = self.rows if selection is None else selection.count
        settings = replace(
            self._settings, k=min(DEFAULT_K, rows) if k is None else k, rerank=rerank
        )
        settings.check(rows)
        probing = self._probing(settings, probes, recall)
        settings = replace(settings, rerank=probing.rerank and min(rows, probing.rerank))
        with naming_extras():
            asked = mapped_source(open_rows(queries), self._map)
        check_queries(asked, self.kernel, self.dims, self.where)
        vectors = None
        if settings.rerank is not None:
            vectors = selected_vectors(self._vectors, selection)
        opened = replace(self._index, probes=probing.probes, selection=selection)
        with self._libraries.limit(limits=1):
            return search_cell_store(opened, vectors, asked, settings).hits

    def search_within(
        self,
        queries: str | Sliced,
        within: float,
        *,
        exact: bool = False,
        among: StrPath | RowSet | None = None,
        without: StrPath | RowSet | None = None,
    ) -> RangeHits:
        """Refuse a range search: an index of cells leaves rows out."""
        refuse_unused(self._leaves_rows_out, within=within)
        raise AssertionError("a threshold has no use")

    def prefetch(self) -> int:
        """Read cells into the memory that the limit allows; return the bytes held."""
        return self._index.hold_all()

    def stats(self) -> dict[str, dict[str, int]]:
        """Return counts of the reads so far, as of ``OpenStore.stats``; ``cells`` are the index."""
        vectors: VectorCache | None = self.__dict__.get("_vectors")
        found = {"cells": count_reads(self._index.store.store.reads, self._index.cache.hits)}
        stored = None if vectors is None else store_of(vectors)
        if vectors is not None and stored is not None:
            found["vectors"] = count_reads(stored.store.reads, vectors.hits)
        return found

    def close(self) -> None:
        """Free the memory of cells and vectors; a later search reads them again."""
        self._index = replace(self._index, cache=CellCache(self._half))
        self.__dict__.pop("_vectors", None)

    def __repr__(self) -> str:
        cells = self._index.store
        what = f"{cells.spec.cells:,} cells of codes of {cells.spec.encoder['name']}"
        return f"<mercore.open({self.where!r}): {self.rows:,} rows of {self.dims}, {what}>"

    @property
    def _leaves_rows_out(self) -> str:
        """The reason why an option has no use."""
        return f"{self.where} is an index of cells, whose search leaves rows out"

    @property
    def kernel(self) -> Kernel:
        """The kernel whose scores reranked hits have."""
        return self._kernel

    @cached_property
    def proves(self) -> bool:
        """Return False: a search of an index proves nothing."""
        return False

    @cached_property
    def _vectors(self) -> VectorCache:
        """The vectors that rerank, and a cache of their parts."""
        return VectorCache(open_source_vectors(self._index.store, self._moved), self._half)

"""``mercore search`` of an index of cells: the codes of the cells near each query."""

import time
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.options import Report, refuse_unused
from mercore.jobs.progress import progress
from mercore.jobs.resources.execution import WorkerPaths
from mercore.jobs.resources.limits import cell_search_bytes
from mercore.jobs.verbs.inputs import executor_for
from mercore.jobs.verbs.searches.task import (
    SearchOptions,
    SearchTask,
    open_source_vectors,
    print_growth,
)
from mercore.pipeline.cells.curve import Probing, curve_of
from mercore.pipeline.cells.probe import OpenCells
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.encoder import check_range
from mercore.pipeline.kernels import Kernel, kernel_from_spec
from mercore.pipeline.linear_map import map_of, mapped_source
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.pipeline.search.sublinear import search_cell_store
from mercore.pipeline.search.within import hits_within
from mercore.stores.errors import InputError
from mercore.stores.indexes import CellStore
from mercore.stores.results.hits import Hits
from mercore.stores.rows import AnyQueries, open_rows
from mercore.stores.selection import Selection
from mercore.stores.vector_views import selected_vectors
from mercore.stores.wording import option, setting

CACHE_BYTES = 1 << 28  # of cells, unless the memory is limited
RECALL = 0.95  # that is wanted, unless cells are named, where codes reach it


@dataclass(frozen=True, kw_only=True)
class CellTask(SearchTask):
    """A search of an index of cells; ``vectors`` rerank."""

    cells: CellStore
    probing: Probing
    selection: Selection | None

    @property
    def scanned(self) -> CellStore:
        """The index."""
        return self.cells

    @property
    def scanned_bytes(self) -> int:
        """Bytes of the index."""
        return sum(self.cells.stored_bytes.values())

    @property
    def read_bytes(self) -> int | None:
        """Bytes that were read of the chunks of the stores."""
        found = super().read_bytes
        return None if found is None else found + self.cells.store.reads.bytes

    def paths(self, kernel: Kernel) -> WorkerPaths:
        """Return the stores that each remote worker opens."""
        return replace(super().paths(kernel), index=self.cells.where)

    def bytes_with(self, settings: SearchSettings) -> int:
        """Return the bytes of memory that one worker takes for one batch."""
        return cell_search_bytes(
            self.cells,
            self.vectors,
            settings,
            probes=self.probing.probes,
            queries=self.queries.shape[0],
        )

    def open_cells(self) -> OpenCells:
        """Return the index with the encoder of queries."""
        encoder = encoder_of(self.cells, self.settings.custom)
        limited = self.execution.memory is not None
        size = self.settings.cache_bytes if limited else CACHE_BYTES
        opened = OpenCells.of(self.cells, encoder, self.probing.probes, size)
        return replace(opened, selection=self.selection)

    def run(self) -> tuple[Report, Hits]:
        """Search; return a report and the hits, which ``out`` gets too if it is given."""
        self.check_limits()
        began = time.perf_counter()
        with (
            threadpool_limits(1),
            progress("search", self.queries.shape[0], "queries") as advance,
            executor_for(self.execution, self.paths(self.kernel), self.size) as executor,
        ):
            settings = replace(self.settings, executor=executor)
            found = search_cell_store(
                self.open_cells(), self.vectors, self.queries, settings, advance=advance
            )
        hits = hits_within(self.kernel, found.hits, self.cut).named(self.names)
        mean = float(np.mean(found.scored))
        report = self.report(time.perf_counter() - began) | {
            "probes": self.probing.probes,
            "cells": self.cells.spec.cells,
            "reranked": settings.rerank or 0,
            "rows_per_query": round(mean, 3),
            "share_of_rows": mean / self.cells.rows,
            "expected_recall": self.probing.recall,
        }
        if self.out:
            report["written"] = self.write(hits)
        return report, hits


def open_cell_search(
    store: str, cells: CellStore, queries: AnyQueries, options: SearchOptions
) -> CellTask:
    """Open the inputs of a search of an index of cells, and check them.

    Raises
    ------
    MercoreError
        If an input does not exist or does not fit the others, or an option has no use.
    """
    refuse_unused(
        f"{store} is an index of cells, whose search leaves rows out",
        exact=options.exact or None,
        relaxed=options.relaxed,
        neighbours=options.neighbours,
    )
    if options.of_any_number:
        raise InputError(
            f"{store} is an index of cells, which leaves rows out: found {option('within')} "
            f"without {option('k')}. Fix: search the codes that it was made of, or name "
            f"{option('k')}."
        )
    refuse_unused(f"{store} has its kernel already", linear_map=options.kernel.linear_map)
    custom = custom_kernel_of(cells, options.kernel.name)
    kernel = kernel_from_spec(cells.spec.kernel, custom)
    options.kernel.check_same(kernel, store)
    selection = options.rows.selection(cells, cells.deleted(options.vectors))
    rows = cells.rows if selection is None else selection.count
    settings = options.settings(rows, custom)
    settings.check(rows)
    probing = choose_probing(cells, settings, options.probes, options.recall)
    settings = replace(settings, rerank=probing.rerank and min(rows, probing.rerank))
    vectors = None
    if settings.rerank is None:
        unused = {
            "processes": options.execution.processes,
            "scheduler": options.execution.scheduler,
        }
        refuse_unused(f"other processes only {option('rerank')}", **unused)
        print_growth(cells)
    else:
        vectors = selected_vectors(open_source_vectors(cells, options.vectors), selection)
    task = CellTask(
        store=store,
        codes=None,
        cells=cells,
        vectors=vectors,
        probing=probing,
        selection=selection,
        kernel=kernel,
        queries=mapped_source(open_rows(queries), map_of(cells)),
        settings=settings,
        execution=options.execution,
        custom_file=options.kernel.file,
        out=options.out,
        hits_format=options.hits_format,
    )
    check_queries(task.queries, kernel, cells.spec.dims, store)
    cells.check_done()
    return task.fit(batch=options.batch)


def choose_probing(
    cells: CellStore, settings: SearchSettings, probes: int | None, recall: float | None
) -> Probing:
    """Return the cells to probe and the codes to rerank, as they are named or as recall needs.

    Raises
    ------
    InputError
        If neither cells are named nor recall was measured, or they are out of range.
    """
    count, curve = cells.spec.cells, curve_of(cells.model)
    if probes is not None:
        check_range("probes", probes, (1, count), setting(probes=min(64, count)), why=", the cells")
        listed = settings.rerank or settings.k
        known = None if curve is None else curve.recall(settings.k, probes, listed)
        return Probing(probes, settings.rerank, known)
    if curve is None:
        raise InputError(
            f"the recall of {cells.where} was not measured when it was made: found no "
            f"{option('probes')}, expected a number of cells. Fix: {setting(probes=min(64, count))}"
        )
    if recall is None:
        recall = min(RECALL, curve.reachable(settings.k, settings.rerank))
    return curve.choose(recall, settings.k, settings.rerank)

"""``mercore index`` of codes of coordinates: their rows by cell; parts that are there are kept."""

import time
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.notices import echo
from mercore.jobs.options import Report
from mercore.jobs.progress import progress, waiting
from mercore.jobs.resources.disk import cell_store_bytes, check_disk
from mercore.jobs.resources.execution import Execution
from mercore.jobs.resources.limits import (
    check_budget,
    exact_bytes,
    fits,
    search_bytes,
    taken_at,
    workers_within,
)
from mercore.jobs.verbs.info import describe_cells
from mercore.jobs.verbs.inputs import exclusive
from mercore.jobs.verbs.resuming import begun, restored
from mercore.jobs.verbs.searches.task import open_source_vectors
from mercore.pipeline.cells.build import count_cells, place_bytes, runs_of, sort_bytes
from mercore.pipeline.cells.centres import Centres
from mercore.pipeline.cells.plan import CellPlan
from mercore.pipeline.encode import encoder_of, spec_of
from mercore.pipeline.kernels import is_custom, kernel_from_spec
from mercore.pipeline.linear_map import map_of, mapped_source
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.pipeline.search.choices.probes import HELD_BACK, LISTED, NEIGHBOURS, measure_curve
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes
from mercore.stores.codes import CodeStore
from mercore.stores.errors import ExistsError, NotFoundError
from mercore.stores.formats.source import Source
from mercore.stores.indexes.cells import STARTS, CellStore, SortedParts
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.resolve import location_of
from mercore.stores.part_backed_store import PartBackedStore
from mercore.stores.part_store.header import model_entries
from mercore.stores.rows import AnyQueries, open_rows
from mercore.stores.vectors import Vectors
from mercore.stores.wording import option

if TYPE_CHECKING:
    from mercore.jobs.cluster.workers import Workers

WINDOW = 4  # parts whose bounds the search that measures recall compares at a time
SORTED = ".sorted"  # added to the path of an index: the store of its sorted parts


@dataclass(frozen=True, kw_only=True)
class CellsTask:
    """An index of cells that is open and checked.

    ``vectors`` measure recall, None if it is not measured, by the sample ``queries``.
    """

    plan: CellPlan
    store: str
    vectors: Vectors | None
    queries: Source | None
    given: Execution

    @property
    def execution(self) -> Execution:
        """The execution, with as many threads as fit into the memory."""
        execution = self.given
        if execution.remote or execution.threads is not None:
            return execution
        threads = workers_within(
            lambda count: self._shared + count * self.worker_bytes(1),
            execution.thread_count,
            execution.memory,
        )
        return replace(execution, threads=threads)

    @property
    def _shared(self) -> int:
        """Bytes that this process takes: to learn the centres, or to measure recall."""
        return max(self.plan.learning_bytes, self.measuring_bytes)

    @property
    def measuring_bytes(self) -> int:
        """Bytes that measuring recall takes: an exact search, and one of the codes."""
        if self.vectors is None:
            return 0
        codes, settings = self.plan.codes, self._settings
        bounds = codes if spec_of(codes).proves else None
        exact = exact_bytes(bounds, self.vectors, settings, queries=HELD_BACK)
        listed = replace(settings, k=min(codes.rows, LISTED + 1))
        return max(exact, search_bytes(codes, listed, queries=HELD_BACK))

    @property
    def _settings(self) -> SearchSettings:
        """The settings of the exact search that measures recall."""
        k = min(self.plan.codes.rows, NEIGHBOURS + 1)
        threads = self.given.thread_count
        return SearchSettings(k=k, batch=HELD_BACK, threads=threads, window=WINDOW)

    def worker_bytes(self, parts: int) -> int:
        """Return the bytes that a worker takes that sorts ``parts`` parts of the index at once."""
        return max(sort_bytes(self.plan), place_bytes(self.plan, parts))

    def needed(self, execution: Execution, parts: int) -> int:
        """Return the memory that sorting takes, ``parts`` parts at a time on every worker."""
        one = self.worker_bytes(parts)
        if execution.remote:
            return self._shared + taken_at(execution, one)
        return self._shared + execution.thread_count * one

    def parts_at_once(self, execution: Execution) -> int:
        """Return the parts that a worker sorts at once: its share of all, if the memory allows."""
        parts = -(-self.plan.layout.parts // execution.thread_count)
        while parts > 1 and not fits(self.needed(execution, parts), execution.memory):
            parts = -(-parts // 2)
        return parts

    def check_limits(self) -> None:
        """Refuse an index that exceeds the memory or the free disk."""
        execution = self.execution
        there = sum(location_of(path).stored_bytes() for path in (self.store, self.store + SORTED))
        size = sum(cell_store_bytes(self.plan).values())
        check_disk("indexing", self.store, size - there)
        fix = f"a smaller {option('part_rows')}, fewer {option('cells')}" + execution.or_fewer
        check_budget("indexing", self.needed(execution, 1), execution.memory, fix)

    def run(self) -> Report:
        """Sort the parts that are missing or wrong; return a description of the index."""
        from mercore.jobs.cluster.connect import connect  # Dask loads when it is used
        from mercore.jobs.cluster.sort_cells import sort_places

        self.check_limits()
        began, plan, execution = time.perf_counter(), self.plan, self.execution
        with exclusive(self.store) as lease, connect(execution) as workers:
            sorted_parts = cache(partial(self._sorted, workers, lease))
            there = CellStore.begun(self.store)
            store = there and there.resumed(plan.spec, plan.layout)
            store = store or self._created(sorted_parts())
            undone = restored(store, lambda: self._model(sorted_parts()))
            if undone:
                runs = runs_of(undone, self.parts_at_once(execution))
                with progress("index", len(undone), "parts") as advance:
                    stores = sorted_parts().where, str(self.store)
                    sort_places(workers, stores, runs, lease.checked(advance))
                store.store.sweep()  # killed workers leave scratch files
                store.store.location.sync_folders()
            left = SortedParts.begun(self.store + SORTED)
            if left is not None:
                left.store.remove()
        seconds = round(time.perf_counter() - began, 3)
        return {**describe_cells(store), "parts_done_now": len(undone), "seconds": seconds}

    def _sorted(self, workers: "Workers", lease: LeaseHandle) -> SortedParts:
        """Sort each part of the codes that is not sorted yet; return the store of sorted parts."""
        from mercore.jobs.cluster.sort_cells import sort_parts

        path, plan = self.store + SORTED, self.plan
        there = SortedParts.begun(path)
        if there:
            parts = there.resumed(plan.spec, plan.sorted_layout)
        else:
            with waiting("learning the centres of cells"):
                layout = replace(plan.sorted_layout, model=model_entries(plan.model))
            source = self._source
            parts = SortedParts.create(path, plan.spec, layout, plan.model, source_path=source)
        undone = restored(parts, lambda: plan.model)
        if undone:
            with progress("sort", len(undone), "parts") as advance:
                stores = str(plan.codes.where), path
                sort_parts(workers, stores, undone, lease.checked(advance))
            parts.store.sweep()
        return parts

    def _created(self, parts: SortedParts) -> CellStore:
        """Make an empty index of the cells of sorted parts."""
        plan, model = self.plan, self._model(parts)
        layout = replace(plan.layout, model=model_entries(model))
        return CellStore.create(self.store, plan.spec, layout, model, source_path=self._source)

    def _model(self, parts: SortedParts) -> dict[str, NDArray[Any]]:
        """Return the model: that of the sorted parts, where cells start, and the measured ranks."""
        counts = count_cells(parts, self.plan.spec.cells)
        model = {**parts.model, STARTS: np.append(0, np.cumsum(counts))}
        if self.vectors is None:
            return model
        codes, settings = self.plan.codes, self._settings
        opened, centres = OpenCodes(codes, encoder_of(codes)), Centres(model)
        scorer = ExactScorer(
            vectors=self.vectors,
            kernel=kernel_from_spec(codes.spec.kernel, None).ranking,
            threads=settings.threads,
            window=settings.window,
        )
        search = ExactSearch(scorer=scorer, bounds=opened if spec_of(codes).proves else None)
        with threadpool_limits(1), waiting("measuring recall"):
            return model | measure_curve(opened, search, centres, self.queries)

    @property
    def _source(self) -> str:
        """The path of the vectors, from the record of the codes."""
        paths = self.plan.codes.source_paths
        return next((path for path in paths if location_of(path).exists()), paths[0])


def open_cells(
    store: str,
    plan: CellPlan,
    *,
    vectors: str | None,
    queries: AnyQueries | None,
    execution: Execution,
) -> CellsTask:
    """Open an index of cells of codes; refuse a path that is taken, and wrong queries."""
    codes, sample = plan.codes, None
    if queries is not None:
        sample = mapped_source(open_rows(queries), map_of(codes))
        kernel = kernel_from_spec(codes.spec.kernel, None)
        check_queries(sample, kernel, codes.spec.dims, codes.where)
    for path, kind in ((store, CellStore), (store + SORTED, SortedParts)):
        there = begun(path, kind)
        if there is not None:
            refuse_grown(codes, there)
            there.resumed(plan.spec, plan.layout if kind is CellStore else plan.sorted_layout)
    return CellsTask(
        plan=plan,
        store=store,
        vectors=_open_vectors(codes, vectors),
        queries=sample,
        given=execution,
    )


def _open_vectors(codes: CodeStore, moved: str | None) -> Vectors | None:
    """Return the vectors by which recall is measured; None, and say so, if it cannot be."""
    if is_custom(codes.spec.kernel):
        why = "the kernel is a custom one"
    else:
        try:
            return open_source_vectors(codes, moved)
        except NotFoundError as error:
            if moved is not None:
                raise
            why = error.message
    echo(f"recall is not measured, so {option('probes')} has no default: {why}", err=True)
    return None


def refuse_grown(codes: CodeStore, index: PartBackedStore) -> None:
    """Refuse an index of codes that have grown since: an index cannot grow.

    Raises
    ------
    ExistsError
        If it is such an index.
    """
    earlier = {state["digest"]: state["rows"] for state in codes.store.layout.grown_from}
    made_of = index.store.header.spec["codes"]
    if made_of in earlier:
        raise ExistsError(
            f"{index.where} is an index of the first {earlier[made_of]:,} of {codes.rows:,} codes: "
            f"{codes.where} has grown, and an index cannot grow. "
            f"Fix: mercore index {codes.where} NEW_PATH"
        )

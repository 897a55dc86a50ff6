"""``mercore index`` of codes of coordinates: their rows by cell; parts that are there are kept."""

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from mercore.pipeline.cells.build import count_cells, place_bytes, sort_bytes, spans_of
from mercore.pipeline.cells.centres import CENTRES, Centres
from mercore.pipeline.cells.curve import LISTED
from mercore.pipeline.cells.plan import CellPlan
from mercore.pipeline.encode import encoder_of, spec_of
from mercore.pipeline.kernels import is_custom, kernel_from_spec
from mercore.pipeline.linear_map import map_of, mapped_source
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.pipeline.search.choices.probes import HELD_BACK, NEIGHBOURS, measure_curve
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes
from mercore.stores.codes import CodeStore
from mercore.stores.errors import ExistsError, NotFoundError
from mercore.stores.formats.source import Source
from mercore.stores.indexes.cells import CellStore, SortedParts, starts_name
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.resolve import location_of
from mercore.stores.part_store.growth import publish_growth
from mercore.stores.part_store.header import model_entries
from mercore.stores.rows import AnyQueries, open_rows
from mercore.stores.vectors import Vectors, dropped_name
from mercore.stores.wording import option

if TYPE_CHECKING:
    from mercore.jobs.cluster.workers import Workers

WINDOW = 4  # parts whose bounds the search that measures recall compares at a time


def sorted_path(store: str) -> str:
    """Return the path of the sorted parts of an index while it is made."""
    return f"{store.rstrip('/')}.sorted"


def remove_sorted(store: str) -> None:
    """Remove the sorted parts of an index, which is whole now, or another one at its path."""
    left = SortedParts.begun(sorted_path(store))
    if left is not None:
        left.store.remove()


class LeasedWorkers(NamedTuple):
    """The workers that sort, and the lease of the index under which they write."""

    workers: "Workers"
    lease: LeaseHandle


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
        there = sum(
            location_of(path).stored_bytes() for path in (self.store, sorted_path(self.store))
        )
        size = sum(cell_store_bytes(self.plan).values())
        check_disk("indexing", self.store, size - there)
        fix = f"a smaller {option('part_rows')}, fewer {option('cells')}" + execution.or_fewer
        check_budget("indexing", self.needed(execution, 1), execution.memory, fix)

    def run(self) -> Report:
        """Sort the parts that are missing or wrong; return a description of the index."""
        from mercore.jobs.cluster.connect import connect  # Dask loads when it is used

        self.check_limits()
        began, execution = time.perf_counter(), self.execution
        with exclusive(self.store) as lease, connect(execution) as workers:
            leased = LeasedWorkers(workers, lease)
            there = CellStore.begun(self.store)
            store = self._resumed(there) if there else self._created(self._sorted(leased, None))
            undone = restored(store, lambda: self._model(self._sorted(leased, None)))
            if undone:
                self._refuse_grown(store)
                self._sort(leased, self._sorted(leased, store), store, undone)
            if store.rows < self.plan.rows:
                parts = self._sorted(leased, store, self.plan.rows - store.rows)
                store = self._grown(store, parts)
                new = list(store.undone_parts(int(store.runs[-1][0]) // store.part_rows))
                self._sort(leased, parts, store, new)
                lease.check()
                publish_growth(store.store)
                undone += new
            remove_sorted(self.store)
        seconds = round(time.perf_counter() - began, 3)
        return {**describe_cells(store), "parts_done_now": len(undone), "seconds": seconds}

    def _sort(
        self, leased: LeasedWorkers, parts: SortedParts, store: CellStore, undone: list[int]
    ) -> None:
        """Write the parts of an index that are missing or wrong."""
        from mercore.jobs.cluster.sort_cells import sort_places

        spans = spans_of(undone, self.parts_at_once(self.execution))
        with progress("index", len(undone), "parts") as advance:
            stores = parts.where, str(self.store), store.store.header
            sort_places(leased.workers, stores, spans, leased.lease.checked(advance))
        store.store.sweep()  # syncs the folders; killed workers leave scratch files

    def _sorted(
        self, leased: LeasedWorkers, index: CellStore | None, rows: int | None = None
    ) -> SortedParts:
        """Sort the parts of the last ``rows`` codes that are not sorted yet; return their store.

        By default these are all rows. The centres are those of ``index``, or learned.
        """
        from mercore.jobs.cluster.sort_cells import sort_parts

        path, plan = sorted_path(self.store), self.plan
        wanted = plan.sorted_layout(rows or plan.rows)
        parts = SortedParts.begun(path)
        if parts is not None and not parts.continues(plan.spec, wanted):
            parts.store.remove()  # it was of an earlier state of the codes
            parts = None

        def centres() -> dict[str, NDArray[Any]]:
            return plan.centres if index is None else {name: index.model[name] for name in CENTRES}

        if parts is None:
            with waiting("learning the centres of cells"):
                layout = replace(wanted, model=model_entries(centres()))
            source = self._source
            parts = SortedParts.create(path, plan.spec, layout, centres(), source_path=source)
        undone = restored(parts, centres)
        if undone:
            with progress("sort", len(undone), "parts") as advance:
                stores = str(plan.codes.where), path
                sort_parts(leased.workers, stores, undone, leased.lease.checked(advance))
            parts.store.sweep()
        return parts

    def _resumed(self, store: CellStore) -> CellStore:
        """Return an index that is there, if it is of these codes or of an earlier state of them."""
        plan = self.plan.of_state(store.spec)
        store = store.resumed(plan.spec, plan.layout)
        store.record_source(self._source)  # codes may have grown with other vectors, or moved ones
        return store

    def _refuse_grown(self, store: CellStore) -> None:
        """Refuse to complete an index whose codes have grown since it was begun."""
        if store.rows < self.plan.rows:
            raise ExistsError(
                f"{store.where} is not whole, and its codes have grown from {store.rows:,} to "
                f"{self.plan.rows:,} rows since: expected a whole index, to add rows to. Fix: "
                f"mercore index {self.plan.codes.where} NEW_PATH"
            )

    def _grown(self, store: CellStore, parts: SortedParts) -> CellStore:
        """Return the next state of an index, which has the rows of sorted parts too."""
        state = len(store.store.layout.grown_from) + 1
        counts = count_cells(parts, self.plan.spec.cells)
        model = {starts_name(state): store.rows + np.append(0, np.cumsum(counts))}
        dropped = self.plan.codes.dropped[len(store.dropped) :]
        if dropped.size:
            model[dropped_name(state)] = dropped
        return store.grown_to(self.plan.spec, self.plan.rows, model)

    def _created(self, parts: SortedParts) -> CellStore:
        """Make an empty index of the cells of sorted parts."""
        plan, model = self.plan, self._model(parts)
        layout = replace(plan.layout, model=model_entries(model))
        return CellStore.create(self.store, plan.spec, layout, model, source_path=self._source)

    def _model(self, parts: SortedParts) -> dict[str, NDArray[Any]]:
        """Return the model: of the codes, the centres, where cells start, and measured ranks."""
        codes, settings = self.plan.codes, self._settings
        counts = count_cells(parts, self.plan.spec.cells)
        starts = {starts_name(0): np.append(0, np.cumsum(counts))}
        dropped = {dropped_name(0): codes.dropped} if codes.dropped.size else {}
        model = {**codes.undropped_model, **dropped, **parts.model, **starts}
        if self.vectors is None:
            return model
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
    there = begun(store, CellStore)
    with suppress(OSError):  # it is empty if a removal of sorted parts was killed at its end
        Path(sorted_path(store)).rmdir()
    begun(sorted_path(store), SortedParts)
    if there is not None:
        state = plan.of_state(there.spec)
        there.resumed(state.spec, state.layout)
    return CellsTask(
        plan=plan,
        store=store,
        vectors=_open_vectors(codes, vectors, quiet=there is not None),
        queries=sample,
        given=execution,
    )


def _open_vectors(codes: CodeStore, moved: str | None, *, quiet: bool) -> Vectors | None:
    """Return the vectors by which recall is measured; None if it cannot be.

    That is printed, unless the index is there, and recall was measured or not.
    """
    if is_custom(codes.spec.kernel):
        why = "the kernel is a custom one"
    else:
        try:
            return open_source_vectors(codes, moved)
        except NotFoundError as error:
            if moved is not None:
                raise
            why = error.message
    if not quiet:
        echo(f"recall is not measured, so {option('probes')} has no default: {why}", err=True)
    return None

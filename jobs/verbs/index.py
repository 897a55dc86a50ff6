"""``mercore index``: sorted orders of binary codes, or cells of codes of coordinates."""

import time
from contextlib import suppress
from dataclasses import dataclass, replace

from mercore.jobs.options import Report, check_whole, refuse_unused
from mercore.jobs.progress import progress
from mercore.jobs.resources.disk import check_disk, order_store_bytes
from mercore.jobs.resources.execution import Execution
from mercore.jobs.resources.limits import check_budget, fits, taken_at, workers_within
from mercore.jobs.verbs.cells import CellsTask, open_cells, remove_sorted
from mercore.jobs.verbs.info import describe_orders
from mercore.jobs.verbs.inputs import VerbOptions, exclusive
from mercore.jobs.verbs.resuming import begun, restored
from mercore.pipeline.cells.plan import plan_cells
from mercore.pipeline.encode import spec_of
from mercore.pipeline.encoders.hashing.signs import Bits
from mercore.pipeline.orders.build import runs_of, sort_bytes
from mercore.pipeline.orders.plan import OrderPlan, order_count, plan_orders
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import ExistsError
from mercore.stores.indexes import CellStore, OrderStore
from mercore.stores.location.resolve import location_of
from mercore.stores.rows import AnyQueries
from mercore.stores.wording import option


@dataclass(frozen=True, kw_only=True)
class IndexOptions(VerbOptions):
    """The options of an index: ε and the most orders, or the cells; and the seed."""

    epsilon: float | None = None
    orders: int | None = None
    cells: int | None = None
    vectors: str | None = None
    queries: AnyQueries | None = None
    random_state: int = 0
    part_rows: int | None = None
    execution: Execution = Execution(threads_option="workers")  # noqa: RUF009 - it is frozen

    def check(self) -> None:
        """Refuse numbers out of range."""
        check_whole(
            orders=self.orders,
            cells=self.cells,
            random_state=self.random_state,
            part_rows=self.part_rows,
        )
        order_count(1, self.epsilon, self.orders)
        self.execution.check()

    def check_path(self, target: str) -> None:
        """Refuse a path at which no store can be made."""
        try:
            begun(target, OrderStore)
        except ExistsError as error:
            try:
                begun(target, CellStore)
            except ExistsError:
                raise error from None


@dataclass(frozen=True, kw_only=True)
class OrdersTask:
    """Sorted orders that are open and checked."""

    plan: OrderPlan
    store: str
    options: IndexOptions

    @property
    def execution(self) -> Execution:
        """The execution, with as many threads as can sort whole orders in the memory."""
        execution = self.options.execution
        if execution.remote or execution.threads is not None:
            return execution
        order = self.run_bytes(self.plan.order_parts)
        threads = workers_within(
            lambda count: count * order, execution.thread_count, execution.memory
        )
        return replace(execution, threads=threads)

    def run_bytes(self, parts: int) -> int:
        """Return the memory that a worker takes to sort ``parts`` parts of an order."""
        codes = self.plan.codes.store.layout
        code_part = codes.column("code").chunk_bytes
        return sort_bytes(self.plan.unfitted.part_rows, parts, code_part)

    def needed(self, execution: Execution, parts: int) -> int:
        """Return the memory that sorting takes, ``parts`` parts at a time on every worker."""
        one = self.run_bytes(parts)
        return taken_at(execution, one) if execution.remote else execution.thread_count * one

    def parts_at_once(self, execution: Execution) -> int:
        """Return the parts of an order that a worker sorts at once: all if the memory allows it."""
        parts = self.plan.order_parts
        while parts > 1 and not fits(self.needed(execution, parts), execution.memory):
            parts = -(-parts // 2)
        return parts

    def check_limits(self) -> None:
        """Refuse an index that exceeds the memory or the free disk."""
        execution = self.execution
        size = sum(order_store_bytes(self.plan).values())
        there = location_of(self.store).stored_bytes()
        check_disk("indexing", self.store, size - there, f"fewer {option('orders')}")
        needed = self.needed(execution, 1)
        check_budget(
            "indexing",
            needed,
            execution.memory,
            f"a smaller {option('part_rows')}" + execution.or_fewer,
        )

    def run(self) -> Report:
        """Sort the parts that are missing or wrong; return a description of the orders."""
        from mercore.jobs.cluster.connect import connect  # Dask loads when it is used
        from mercore.jobs.cluster.sort_orders import sort_orders

        self.check_limits()
        began, plan, execution = time.perf_counter(), self.plan, self.execution
        with exclusive(self.store) as lease, connect(execution) as client:
            there = OrderStore.begun(self.store)
            store = there.resumed(plan.spec, plan.unfitted) if there else self._created()
            undone = restored(store, lambda: plan.model)
            if undone:
                with progress("index", len(undone), "parts") as advance:
                    stores = str(self.store), str(plan.codes.where)
                    most = self.parts_at_once(execution)
                    runs = runs_of(undone, plan.order_parts, most)
                    sort_orders(client, stores, runs, lease.checked(advance))
                store.store.sweep()  # syncs the folders; killed workers leave scratch files
            with suppress(ExistsError):  # what is not ours stays
                remove_sorted(self.store)  # of a killed index of cells
        seconds = round(time.perf_counter() - began, 3)
        return {**describe_orders(store), "parts_done_now": len(undone), "seconds": seconds}

    def _created(self) -> OrderStore:
        """Make an empty store of the orders."""
        plan = self.plan
        paths = plan.codes.source_paths
        source = next((path for path in paths if location_of(path).exists()), paths[0])
        return OrderStore.create(self.store, plan.spec, plan.layout, plan.model, source_path=source)


def refuse_grown(codes: CodeStore, orders: OrderStore) -> None:
    """Refuse sorted orders of codes that have grown since: orders cannot grow.

    Raises
    ------
    ExistsError
        If they are such orders.
    """
    if orders.spec.codes in {state["digest"] for state in codes.store.layout.grown_from}:
        raise ExistsError(
            f"{orders.where} holds sorted orders of the first {orders.rows:,} of {codes.rows:,} "
            f"codes: {codes.where} has grown, and sorted orders cannot grow. "
            f"Fix: mercore index {codes.where} NEW_PATH"
        )


def open_index(codes: str, store: str, options: IndexOptions) -> OrdersTask | CellsTask:
    """Open the codes; refuse codes that have no index, and a path that is taken."""
    options.check()
    opened = open_code_store(codes)
    if not isinstance(spec_of(opened), Bits):
        there = CellStore.begun(store)  # an index keeps its defaults when it grows
        plan = plan_cells(
            opened,
            there.spec.cells if there and options.cells is None else options.cells,
            random_state=options.random_state,
            part_rows=there.part_rows if there and options.part_rows is None else options.part_rows,
        )
        refuse_unused(
            f"{codes} has no binary codes", epsilon=options.epsilon, orders=options.orders
        )
        return open_cells(
            store,
            plan,
            vectors=options.vectors,
            queries=options.queries,
            execution=options.execution,
        )
    unused = {"cells": options.cells, "vectors": options.vectors, "queries": options.queries}
    refuse_unused(f"{codes} has binary codes", **unused)
    orders_plan = plan_orders(
        opened,
        order_count(opened.rows, options.epsilon, options.orders),
        random_state=options.random_state,
        part_rows=options.part_rows,
    )
    orders = begun(store, OrderStore)
    if orders is not None:
        refuse_grown(opened, orders)
        orders.resumed(orders_plan.spec, orders_plan.unfitted)
    return OrdersTask(plan=orders_plan, store=store, options=options)

"""The plan of an index: bytes, memory, and the time of a sample order, or of a sorted part."""

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from threadpoolctl import threadpool_limits

from mercore.jobs.options import Report
from mercore.jobs.planning.report import disk_report, times
from mercore.jobs.planning.samples import first_parts
from mercore.jobs.planning.timing import measure
from mercore.jobs.progress import waiting
from mercore.jobs.resources.disk import cell_store_bytes, order_store_bytes
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.resources.limits import INTERPRETER_BYTES
from mercore.jobs.verbs.cells import CellsTask
from mercore.jobs.verbs.index import OrdersTask
from mercore.pipeline.cells.build import PartSorter
from mercore.pipeline.cells.centres import drawn_centres
from mercore.pipeline.cells.plan import CellPlan
from mercore.pipeline.orders.build import OrderBuilder, Run
from mercore.pipeline.orders.plan import plan_orders
from mercore.stores.indexes.cells import SortedParts
from mercore.stores.indexes.orders import create_or_resume
from mercore.stores.part_store.header import model_entries

SECONDS = 0.6  # of the sample
LEARNING = 4  # comparisons that a row of the sample takes in k-means, per one to find its cell
WRITTEN_TWICE = 1.25  # rows are sorted and written again, which takes a quarter of the time


def plan(task: OrdersTask | CellsTask, cores: int | None) -> Report:
    """Return the plan of an index; only temporary files are written."""
    return _plan_cells(task, cores) if isinstance(task, CellsTask) else _plan_orders(task, cores)


def _plan_cells(task: CellsTask, cores: int | None) -> Report:
    """Return the plan of an index of cells, without the time to measure its recall.

    A part of the codes is sorted by drawn centres. Learning the centres compares each row of the
    sample with about ``LEARNING`` times as many of them.
    """
    loaded, execution, cells = time.process_time(), task.execution, task.plan
    with threadpool_limits(1), waiting("measuring a sample"):
        row = _cell_seconds(cells) / cells.codes.bounds(0)[1]
    here = execution.processes or execution.thread_count

    def seconds(count: int) -> float:
        return loaded + row * (LEARNING * cells.sample + cells.codes.rows / count)

    return disk_report(task.store, cell_store_bytes(cells)) | {
        "memory": INTERPRETER_BYTES + task.needed(execution, task.parts_at_once(execution)),
        "rows": cells.codes.rows,
        "cells": cells.spec.cells,
        "parts": cells.layout.parts,
        "times": times(min(here, available_cores()), cores, seconds),
    }


def _cell_seconds(plan: CellPlan) -> float:
    """Return the seconds to sort the first part of the codes by drawn centres, and to write it."""
    few = replace(plan, codes=first_parts(plan.codes, 1))
    model = drawn_centres(plan.draw_points(plan.spec.cells))
    layout = replace(few.sorted_layout(few.codes.rows), model=model_entries(model))
    with TemporaryDirectory(prefix="mercore-plan-") as folder:
        store = SortedParts.create(Path(folder) / "parts", few.spec, layout, model, source_path="")
        sorter = PartSorter(few.codes, store)
        sorter.centres.assign(plan.draw_points(1))  # it is compiled, and its tables are made
        began = time.perf_counter()
        sorter.write(0)
        return WRITTEN_TWICE * (time.perf_counter() - began)


def _plan_orders(task: OrdersTask, cores: int | None) -> Report:
    """Return the plan of sorted orders."""
    loaded, execution = time.process_time(), task.execution
    parts = task.parts_at_once(execution)
    orders, layout = task.plan.spec.orders, task.plan.unfitted
    with threadpool_limits(1), waiting("measuring a sample"):
        order = _order_seconds(task) * -(-task.plan.order_parts // parts)
    here = execution.processes or execution.thread_count

    def seconds(count: int) -> float:
        return loaded + order * orders / min(count, orders)

    return disk_report(task.store, order_store_bytes(task.plan)) | {
        "memory": INTERPRETER_BYTES + task.needed(execution, parts),
        "rows": task.plan.codes.rows,
        "orders": orders,
        "parts": layout.parts,
        "times": times(min(here, available_cores()), cores, seconds),
    }


def _order_seconds(task: OrdersTask) -> float:
    """Return the seconds to sort and write one order, from sorts of the first codes."""
    codes = task.plan.codes

    with TemporaryDirectory(prefix="mercore-plan-") as folder:

        def run(parts: int) -> None:
            first = first_parts(codes, parts)
            small = plan_orders(first, 1, part_rows=min(first.rows, task.plan.unfitted.part_rows))
            store = create_or_resume(
                Path(folder) / str(parts), small.spec, small.layout, small.model, source_path=""
            )
            OrderBuilder(first, store).write(Run(0, list(range(store.order_parts))))

        return measure(run, codes.parts, SECONDS).of(codes.parts)

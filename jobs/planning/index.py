"""The plan of sorted orders: bytes, memory, and the time of a sample order on sample rows."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from threadpoolctl import threadpool_limits

from mercore.jobs.options import Report
from mercore.jobs.planning.report import disk_report, times
from mercore.jobs.planning.samples import first_parts
from mercore.jobs.planning.timing import measure
from mercore.jobs.progress import waiting
from mercore.jobs.resources.disk import order_store_bytes
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.resources.limits import INTERPRETER_BYTES
from mercore.jobs.verbs.index import OrdersTask
from mercore.pipeline.orders.build import OrderBuilder, Run
from mercore.pipeline.orders.plan import plan_orders
from mercore.stores.indexes.orders import create_or_resume

SECONDS = 0.6  # of the sample


def plan(task: OrdersTask, cores: int | None) -> Report:
    """Return the plan of sorted orders; only temporary files are written."""
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

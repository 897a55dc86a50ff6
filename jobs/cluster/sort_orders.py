"""Sorting orders on workers: a run of parts of an order at a time."""

from collections.abc import Callable, Sequence
from functools import partial

from mercore.jobs.cluster.workers import Work, Workers
from mercore.jobs.resources.execution import resolved
from mercore.pipeline.orders.build import OrderBuilder, Run
from mercore.stores.codes import open_code_store
from mercore.stores.indexes.orders import open_order_store


def open_builder(orders: str, codes: str) -> OrderBuilder:
    """Return a builder of orders of codes, with both stores open."""
    return OrderBuilder(open_code_store(codes), open_order_store(orders))


def sort_orders(
    workers: Workers,
    stores: tuple[str, str],
    runs: Sequence[Run],
    advance: Callable[[int], None] = lambda parts: None,
) -> None:
    """Sort runs, and write their parts.

    Parameters
    ----------
    stores : the paths of the orders and of their codes
    advance : is called with the number of parts written

    Raises
    ------
    ClusterError
        If the workers go away, or keep dying of one run.
    """
    orders, codes = map(resolved, stores)
    work = Work(orders, partial(open_builder, orders, codes))
    workers.run(work, OrderBuilder.write, runs, advance)

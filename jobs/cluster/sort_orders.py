"""Sorting orders with Dask: one future per run of parts of an order."""

from collections.abc import Callable, Sequence
from typing import Any

from distributed import Client

from mercore.jobs.cluster.tasks import NamedPlugin, plugin_here, run_tasks
from mercore.jobs.resources.execution import resolved
from mercore.pipeline.orders.build import OrderBuilder, Run
from mercore.stores.codes import open_code_store
from mercore.stores.orders import open_order_store


class SorterPlugin(NamedPlugin):
    """The state of a sort on a worker: the codes and their orders, open."""

    def __init__(self, orders: str, codes: str) -> None:
        self.name, self.orders, self.codes = plugin_name(orders), orders, codes

    def open(self) -> None:
        """Open the stores."""
        self.builder = OrderBuilder(open_code_store(self.codes), open_order_store(self.orders))

    def __getstate__(self) -> dict[str, Any]:
        """Return the paths alone: the workers open the stores."""
        return {"name": self.name, "orders": self.orders, "codes": self.codes}


def plugin_name(orders: str) -> str:
    """Return the name of the plugin of a store: unique among the jobs of a cluster."""
    return f"mercore-sorter {orders}"


def write_run(orders: str, run: Run) -> int:
    """Sort a run on this worker and write its parts; return how many."""
    return plugin_here(SorterPlugin, plugin_name(orders)).builder.write(run)


def sort_orders(
    client: Client,
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
        If the cluster goes away, has no worker for a minute, or workers keep dying of one run.
    """
    orders, codes = map(resolved, stores)
    tasks = ((orders, run) for run in runs)
    run_tasks(client, orders, SorterPlugin(orders, codes), (write_run, tasks), advance)

"""``mercore search`` of sorted orders: the true kernel of the rows next to each query."""

import time
from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.options import Report, refuse_unused
from mercore.jobs.progress import progress
from mercore.jobs.resources.execution import WorkerPaths
from mercore.jobs.resources.limits import order_search_bytes
from mercore.jobs.verbs.inputs import executor_for
from mercore.jobs.verbs.searches.task import SearchOptions, SearchTask, open_source_vectors
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.kernels import Kernel, kernel_from_spec
from mercore.pipeline.linear_map import map_of, mapped_source
from mercore.pipeline.orders.candidates import OpenOrders
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.pipeline.search.sublinear import search_order_store
from mercore.stores.indexes.orders import OrderStore
from mercore.stores.results.hits import Hits
from mercore.stores.rows import AnyQueries, open_rows
from mercore.stores.vectors import Vectors

BATCH = 1 << 14  # queries per pass at most: each pass may read all orders
CANDIDATES = 1 << 23  # of the queries of a pass: they take 600 MB


@dataclass(frozen=True, kw_only=True)
class OrderTask(SearchTask):
    """A search of sorted orders; ``vectors`` score the candidates."""

    orders: OrderStore
    vectors: Vectors
    neighbours: int

    def paths(self, kernel: Kernel) -> WorkerPaths:
        """Return the stores that each remote worker opens."""
        return replace(super().paths(kernel), index=self.orders.where)

    @property
    def scanned_bytes(self) -> int:
        """Bytes of the orders."""
        return sum(self.orders.stored_bytes.values())

    def bytes_with(self, settings: SearchSettings) -> int:
        """Return the bytes of memory that one worker takes for one batch."""
        return order_search_bytes(
            self.orders,
            self.vectors,
            settings,
            neighbours=self.neighbours,
            queries=self.queries.shape[0],
        )

    def open_orders(self) -> OpenOrders:
        """Return the orders with the encoder that hashes queries."""
        encoder = encoder_of(self.orders, self.settings.custom)
        return OpenOrders(self.orders, encoder, self.neighbours)

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
            found = search_order_store(
                self.open_orders(),
                self.vectors,
                self.queries,
                settings,
                advance=advance,
            )
        hits, mean = found.hits.named(self.names), float(np.mean(found.scored))
        report = self.report(time.perf_counter() - began) | {
            "orders": self.orders.orders,
            "neighbours": self.neighbours,
            "candidates_per_query": round(mean, 3),
            "share_of_rows": mean / self.vectors.rows,
        }
        if self.out:
            report["written"] = self.write(hits)
        return report, hits


def open_order_search(
    store: str, orders: OrderStore, queries: AnyQueries, options: SearchOptions
) -> OrderTask:
    """Open the inputs of a search of sorted orders, and check them.

    Raises
    ------
    MercoreError
        If an input does not exist or does not fit the others, or an option has no use.
    """
    refuse_unused(
        f"{store} holds sorted orders, whose candidates are all scored by the true kernel",
        rerank=options.rerank,
        within=options.within,
        exact=options.exact or None,
        relaxed=options.relaxed,
    )
    refuse_unused(f"{store} has its kernel already", linear_map=options.kernel.linear_map)
    custom = custom_kernel_of(orders, options.kernel.name)
    vectors = options.rows.select_vectors(open_source_vectors(orders, options.vectors))
    each = orders.orders * 2 * (1 + (options.neighbours or 0))
    batch = options.batch or min(BATCH, max(1, CANDIDATES // each))
    kernel = kernel_from_spec(orders.spec.kernel, custom)
    options.kernel.check_same(kernel, store)
    task = OrderTask(
        store=store,
        codes=None,
        orders=orders,
        vectors=vectors,
        neighbours=options.neighbours or 0,
        kernel=kernel,
        queries=mapped_source(open_rows(queries), map_of(orders)),
        settings=replace(options.settings(vectors.rows, custom), batch=batch),
        execution=options.execution,
        custom_file=options.kernel.file,
        out=options.out,
        hits_format=options.hits_format,
    )
    task.settings.check(vectors.rows)
    check_queries(task.queries, kernel, orders.spec.dims, store)
    orders.check_done()
    return task.fit(batch=options.batch)

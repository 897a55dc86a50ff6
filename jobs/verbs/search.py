"""``mercore search``: the k nearest rows of codes, or of vectors by the true kernel."""

import os
import time
from dataclasses import dataclass, replace

from threadpoolctl import threadpool_limits

from mercore.jobs.options import Report, refuse_unused
from mercore.jobs.progress import progress
from mercore.jobs.resources.limits import search_bytes
from mercore.jobs.verbs.inputs import executor_for
from mercore.jobs.verbs.searches.exact import open_exact
from mercore.jobs.verbs.searches.orders import open_order_search
from mercore.jobs.verbs.searches.task import (
    SearchOptions,
    SearchTask,
    open_searched,
    open_source_vectors,
    print_growth,
)
from mercore.pipeline.search.batch_search import (
    SearchSettings,
    check_queries,
    search_code_store,
    search_vector_store,
)
from mercore.stores.errors import InputError
from mercore.stores.orders import OrderStore
from mercore.stores.results.hits import Hits
from mercore.stores.rows import AnyQueries, open_stored
from mercore.stores.wording import option


@dataclass(frozen=True, kw_only=True)
class ScanTask(SearchTask):
    """A search that scores every code, and the best again if it reranks; or every vector."""

    def bytes_with(self, settings: SearchSettings) -> int:
        """Return the bytes of memory that one worker takes for one batch."""
        reranked = self.vectors if self.codes is not None else None
        return search_bytes(
            self.scanned, settings, queries=self.queries.shape[0], reranked=reranked
        )

    def run(self) -> tuple[Report, Hits]:
        """Search; return a report and the hits, which ``out`` gets too if it is given."""
        self.check_limits()
        began = time.perf_counter()
        nq = self.queries.shape[0]
        with (
            threadpool_limits(1),
            progress("search", nq, "queries") as advance,
            executor_for(self.execution, self.paths(self.kernel), self.size) as executor,
        ):
            settings = replace(self.settings, executor=executor)
            if self.codes is not None:
                hits = search_code_store(
                    self.codes, self.queries, settings, vectors=self.vectors, advance=advance
                )
            else:
                assert self.vectors is not None
                hits = search_vector_store(
                    self.vectors, self.kernel, self.queries, settings, advance=advance
                )
        report = self.report(time.perf_counter() - began)
        if self.out:
            report["written"] = self.write(hits)
        return report, hits


def open_search(store: str, queries: AnyQueries, options: SearchOptions) -> SearchTask:
    """Open the inputs of a search, and check them.

    Raises
    ------
    MercoreError
        If an input does not exist or does not fit the others, or an option has no use.
    """
    options.check()
    options.check_out(queries)
    _refuse_swapped(store, queries)
    stored = open_stored(store)
    if isinstance(stored, OrderStore):
        return open_order_search(store, stored, queries, options)
    refuse_unused(f"{store} holds no sorted orders", neighbours=options.neighbours)
    opened = open_searched(store, stored, options)
    if options.with_bounds:
        return open_exact(store, opened, queries, options)
    codes, vectors, kernel = opened.codes, opened.vectors, opened.kernel
    if codes is None:
        if options.rerank:
            raise InputError(
                f"{store} holds vectors, which have true scores already. Fix: leave "
                f"{option('rerank')} out."
            )
    elif options.rerank:
        vectors = open_source_vectors(codes, options.vectors)
    else:
        refuse_unused(f"the vectors are only read to {option('rerank')}", vectors=options.vectors)
        print_growth(codes)
    task = ScanTask(
        store=store,
        codes=codes,
        vectors=vectors,
        kernel=kernel,
        queries=opened.open_queries(queries),
        settings=options.settings(opened.rows, opened.custom),
        execution=options.execution,
        custom_file=options.kernel.file,
        map_file=options.kernel.linear_map,
        out=options.out,
        hits_format=options.hits_format,
    )
    task.settings.check(task.scanned.rows)
    check_queries(task.queries, kernel, task.dims, store)
    return task.fit(batch=options.batch)


def _refuse_swapped(store: str, queries: AnyQueries) -> None:
    """Refuse a file as the store if a store that can be searched stands where queries do."""
    file = os.path.isfile(store)  # noqa: PTH113 - pathlib raises for a folder without permission
    stored = open_stored(queries) if isinstance(queries, str) and file else None
    if stored is not None:
        raise InputError(
            f"{store} is a file and {queries} is a store of {stored.kind}: expected the store "
            f"first. Fix: mercore search {queries} {store}"
        )

"""``mercore search``: the k nearest rows of codes, or of vectors by the true kernel."""

import os
from dataclasses import fields, replace

from mercore.jobs.options import refuse_unused
from mercore.jobs.verbs.searches.cells import CellTask, open_cell_search
from mercore.jobs.verbs.searches.exact import ExactTask, open_exact
from mercore.jobs.verbs.searches.orders import open_order_search
from mercore.jobs.verbs.searches.scan import ScanTask
from mercore.jobs.verbs.searches.task import (
    Opened,
    SearchOptions,
    SearchTask,
    open_searched,
    open_source_vectors,
    print_growth,
)
from mercore.jobs.verbs.searches.within import CodesWithinTask, ExactWithinTask, threshold_of
from mercore.pipeline.search.batch_search import check_queries
from mercore.stores.errors import InputError
from mercore.stores.indexes import CellStore, OrderStore
from mercore.stores.rows import AnyQueries, open_stored
from mercore.stores.wording import option


def open_search(store: str, queries: AnyQueries, options: SearchOptions) -> SearchTask:
    """Open the inputs of a search, and check them.

    Raises
    ------
    MercoreError
        If an input does not exist or does not fit the others, or an option has no use.
    """
    return _open(store, queries, options).with_names(options.names)


def _open(store: str, queries: AnyQueries, options: SearchOptions) -> SearchTask:
    """Open the inputs of a search, but for the names of ids."""
    options.check()
    options.check_out(queries)
    _refuse_swapped(store, queries)
    stored = open_stored(store)
    if isinstance(stored, CellStore | OrderStore):
        because = f"{store} holds an index, which is searched for all queries alike"
        refuse_unused(because, same=options.labels.same, other=options.labels.other)
    if isinstance(stored, CellStore):
        return _within(open_cell_search(store, stored, queries, options), options)
    refuse_unused(f"{store} is no index of cells", probes=options.probes, recall=options.recall)
    if isinstance(stored, OrderStore):
        return open_order_search(store, stored, queries, options)
    refuse_unused(f"{store} holds no sorted orders", neighbours=options.neighbours)
    opened = open_searched(store, stored, options)
    if opened.codes is None and options.rerank:
        raise InputError(
            f"{store} holds vectors, which have true scores already. Fix: leave "
            f"{option('rerank')} out."
        )
    if options.with_bounds or (opened.codes is None and options.of_any_number):
        return _within(open_exact(store, opened, queries, options), options)
    return _within(_open_scan(store, opened, queries, options), options)


def _within(task: ExactTask | ScanTask | CellTask, options: SearchOptions) -> SearchTask:
    """Return the task of a range search, or the task as it is without a threshold."""
    if options.within is None:
        return task
    threshold = threshold_of(options.within, task, options.vectors)
    if not options.of_any_number:
        return replace(task, cut=threshold)
    assert not isinstance(task, CellTask)
    same = {each.name: getattr(task, each.name) for each in fields(task)}
    if isinstance(task, ExactTask):
        return ExactWithinTask(**same, threshold=threshold, certified=options.with_bounds)
    return CodesWithinTask(**same, threshold=threshold)


def _open_scan(store: str, opened: Opened, queries: AnyQueries, options: SearchOptions) -> ScanTask:
    """Open the other inputs of a scan of codes or vectors, and check them."""
    codes, vectors, kernel = opened.codes, opened.vectors, opened.kernel
    if codes is not None and options.rerank:
        vectors = open_source_vectors(codes, options.vectors)
    elif codes is not None:
        if not isinstance(options.within, str):
            only = f"the vectors are only read to {option('rerank')}"
            refuse_unused(only, vectors=options.vectors)
        print_growth(codes)
    asked = opened.open_queries(queries)
    task = ScanTask(
        store=store,
        codes=codes,
        vectors=vectors,
        kernel=kernel,
        queries=asked,
        settings=opened.settings(options, asked),
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

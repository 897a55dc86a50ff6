"""``mercore search``: the k nearest rows of codes, or of vectors by the true kernel."""

import time
from dataclasses import dataclass, replace

from threadpoolctl import threadpool_limits

from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.options import Report, refuse_unused
from mercore.jobs.progress import progress
from mercore.jobs.resources.limits import search_bytes
from mercore.jobs.verbs.exact import open_exact
from mercore.jobs.verbs.inputs import executor_for, kind_of, open_kernel_of_search, open_source_vectors
from mercore.jobs.verbs.search_task import SearchOptions, SearchTask
from mercore.pipeline.encode import check_domain
from mercore.pipeline.kernels import kernel_from_spec
from mercore.pipeline.search.batch_search import (
    SearchSettings,
    check_queries,
    check_source,
    search_code_store,
    search_vector_store,
)
from mercore.stores.codes import open_code_store
from mercore.stores.errors import InputError
from mercore.stores.formats import Sliced
from mercore.stores.formats.source import Source
from mercore.stores.results.hits import Hits, write_hits
from mercore.stores.rows import open_rows, open_vectors


@dataclass(frozen=True, kw_only=True)
class ScanTask(SearchTask):
    """A search that scores every code, and the best of them by the true kernel if it reranks; or every vector."""

    def bytes_with(self, settings: SearchSettings) -> int:
        """Return the bytes of memory that one worker takes for one batch."""
        reranked = self.vectors if self.codes is not None else None
        return search_bytes(self.scanned, settings, queries=self.queries.shape[0], reranked=reranked)

    def run(self) -> tuple[Report, Hits]:
        """Search; return a report and the hits, which are written to ``out`` too if it is given."""
        self.check_limits()
        began = time.perf_counter()
        nq = self.queries.shape[0]
        with (
            threadpool_limits(1),
            progress("search", nq, "queries") as advance,
            executor_for(self.execution, self.stores(self.kernel), self.load) as executor,
        ):
            settings = replace(self.settings, executor=executor)
            if self.codes is not None:
                hits = search_code_store(self.codes, self.queries, settings, vectors=self.vectors, advance=advance)
            else:
                assert self.vectors is not None
                hits = search_vector_store(self.vectors, self.kernel, self.queries, settings, advance=advance)
        report = self.report(time.perf_counter() - began)
        if self.out:
            report["written"] = write_hits(self.out, hits)
        return report, hits


def open_search(store: str, queries: str | Sliced, options: SearchOptions) -> SearchTask:
    """Open all that a search reads, and refuse what cannot be searched.

    Raises
    ------
    MercoreError
        If something does not exist, does not fit together, or has no use.
    """
    options.check()
    options.check_out(queries)
    if options.with_bounds:
        return open_exact(store, queries, options)
    opened = _open_codes if kind_of(store) == "codes" else _open_vectors
    task = opened(store, open_rows(queries), options)
    task.settings.check(task.scanned.rows)
    check_queries(task.queries, task.kernel, task.dims, store)
    return task.fit(batch=options.batch)


def _open_codes(store: str, queries: Source, options: SearchOptions) -> ScanTask:
    """Open a code store, which has its kernel, and the vectors to rerank by."""
    codes = open_code_store(store)
    custom = custom_kernel_of(codes, options.kernel.name)
    because = f"{store} has its kernel already"
    refuse_unused(because, gamma=options.kernel.gamma, transform=options.kernel.transform)
    vectors = None
    if options.rerank:
        vectors = open_source_vectors(codes, options.vectors)
        check_source(vectors, codes)
    else:
        refuse_unused("the vectors are only read to --rerank", vectors=options.vectors)
    return ScanTask(
        store=store,
        codes=codes,
        vectors=vectors,
        kernel=kernel_from_spec(codes.spec.kernel, custom),
        queries=queries,
        settings=options.settings(custom),
        execution=options.execution,
        custom_file=options.kernel.file,
        out=options.out,
    )


def _open_vectors(store: str, queries: Source, options: SearchOptions) -> ScanTask:
    """Open vectors, to score every row by the true kernel."""
    if options.rerank:
        raise InputError(f"{store} holds vectors: their scores are the true ones already. Fix: leave --rerank out.")
    refuse_unused(f"{store} is the vectors", vectors=options.vectors)
    vectors = open_vectors(store)
    kernel = open_kernel_of_search(options.kernel, vectors)
    check_domain(vectors, kernel)
    return ScanTask(
        store=store,
        codes=None,
        vectors=vectors,
        kernel=kernel,
        queries=queries,
        settings=options.settings(),
        execution=options.execution,
        custom_file=options.kernel.file,
        out=options.out,
    )

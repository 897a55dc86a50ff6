"""Exhaustive search of codes, which may rerank the best, or of vectors."""

import time
from dataclasses import dataclass, replace
from typing import Any

from threadpoolctl import threadpool_limits

from mercore.jobs.options import Report
from mercore.jobs.progress import progress
from mercore.jobs.resources.limits import search_bytes
from mercore.jobs.verbs.inputs import executor_for
from mercore.jobs.verbs.searches.task import SearchTask
from mercore.pipeline.search.batch_search import (
    SearchSettings,
    search_code_store,
    search_vector_store,
)
from mercore.pipeline.search.within import hits_within


@dataclass(frozen=True, kw_only=True)
class ScanTask(SearchTask):
    """A search that scores every code, and the best again if it reranks; or every vector."""

    def bytes_with(self, settings: SearchSettings) -> int:
        """Return the bytes of memory that one worker takes for one batch."""
        reranked = self.vectors if self.codes is not None else None
        scanned = self.codes or self.vectors
        assert scanned is not None
        return search_bytes(scanned, settings, queries=self.queries.shape[0], reranked=reranked)

    def run(self) -> tuple[Report, Any]:
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
        hits = hits_within(self.kernel, hits, self.cut).named(self.names)
        report = self.report(time.perf_counter() - began)
        if self.out:
            report["written"] = self.write(hits)
        return report, hits

"""Range search: all rows within a threshold, exact by bounds or every row, or by codes."""

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.notices import echo
from mercore.jobs.options import Report, share_of
from mercore.jobs.progress import progress
from mercore.jobs.resources.limits import INTERPRETER_BYTES
from mercore.jobs.verbs.inputs import exclusive, executor_for
from mercore.jobs.verbs.searches.exact import ExactTask, kept_answers, prove, rows_scored
from mercore.jobs.verbs.searches.scan import ScanTask
from mercore.jobs.verbs.searches.task import SearchTask, open_source_vectors
from mercore.pipeline.search.batch_search import code_executor
from mercore.pipeline.search.choices.threshold import choose_threshold
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.within import (
    Limit,
    RangeAnswers,
    check_count,
    concatenate_ranges,
    least_score,
    pairs_in,
    range_hits,
    search_codes_within,
    search_within,
    search_within_among,
)
from mercore.stores.errors import InputError
from mercore.stores.results.certificates import write_certificate
from mercore.stores.results.hits import certificate_path
from mercore.stores.results.range_hits import RangeHits, write_range_hits
from mercore.stores.wording import setting

SAMPLED_QUERIES = 4096  # the first queries: a sample is drawn among them


@dataclass(frozen=True, kw_only=True)
class WithinTask(SearchTask):
    """A search for all rows within a threshold: the least score, or the greatest distance."""

    threshold: float

    @property
    def max_pairs(self) -> int:
        """The number of pairs that the memory holds."""
        memory = self.execution.memory
        return pairs_in(None if memory is None else memory - INTERPRETER_BYTES - self.needed)

    def range_report(self, seconds: float, hits: RangeHits) -> Report:
        """Return the report of a range search."""
        report = {key: value for key, value in self.report(seconds).items() if key != "k"}
        return report | {"within": self.threshold, "hits": len(hits.ids)}

    def write_range(self, hits: RangeHits) -> list[str]:
        """Write the hits to ``out``, which must be given; return the paths written."""
        assert self.out
        ids, distances = self.scanned.id_count, self.kernel.ascending
        return write_range_hits(self.out, hits, ids, self.hits_format, distances=distances)


@dataclass(frozen=True, kw_only=True)
class ExactWithinTask(ExactTask, WithinTask):
    """A range search of vectors, by bounds if ``codes`` are given.

    ``certified`` says that finished batches are kept and a certificate is written.
    """

    certified: bool

    @cached_property
    def about(self) -> Report:
        """The inputs of the answers, which a certificate states."""
        about = super().about | {"within": self.threshold, "least": self.least}
        return {key: value for key, value in about.items() if key != "k"}

    @cached_property
    def least(self) -> float:
        """The score of the ranking kernel that every row within has."""
        return least_score(self.kernel, self.threshold)

    def solve(self, search: ExactSearch, queries: NDArray[Any], k: int, first: int = 0) -> Any:  # noqa: ANN401
        """Return the answers to a batch of raw queries."""
        limit, groups = Limit(self.least, self.max_pairs), self.groups_of(first, len(queries))
        if groups is None:
            return search_within(search, queries, limit)
        return search_within_among(search, queries, limit, groups)

    def run(self) -> tuple[Report, Any]:
        """Search; return a report and the hits, which ``out`` gets too if it is given."""
        self.check_limits()
        began = time.perf_counter()
        out, kept = self.out, self.out if self.certified else None
        with exclusive(Path(out)) if out else nullcontext() as lease:
            proved = concatenate_ranges(list(prove(self, RangeAnswers, kept, lease)))
            if lease:
                lease.check()
            check_count(len(proved.ids), Limit(self.least, self.max_pairs))
            hits = range_hits(self.kernel, self.vectors, proved, self.threshold)
            hits = hits.named(self.names)
            ended = len(hits) == self.queries.shape[0]  # or enough was known before
            written = self.write_range(hits) if out and ended else []
            if kept and ended:
                written.append(self._write_certificate(kept, proved))
            if kept:
                kept_answers(self, kept).clear()
        report = self.range_report(time.perf_counter() - began, hits)
        report |= rows_scored(proved.evaluated, self)
        return report | ({"written": written} if written else {}), hits

    def _write_certificate(self, out: str, proved: RangeAnswers) -> str:
        """Write the certificate beside the hits; return its path."""
        arrays = {
            "greatest_unevaluated": proved.greatest,
            "slack": self.kernel.ranking.slack(self.vectors.dims, np.array([self.least])),
            "evaluated": proved.evaluated,
            "rows": np.array(self.vectors.rows),
        }
        path = certificate_path(out)
        write_certificate(path, arrays, self.about | {"check_all": self.check_all})
        return path


@dataclass(frozen=True, kw_only=True)
class CodesWithinTask(WithinTask, ScanTask):
    """A range search of codes: approximate scores, or true ones of the best codes of a query."""

    def run(self) -> tuple[Report, Any]:
        """Search; return a report and the hits, which ``out`` gets too if it is given."""
        self.check_limits()
        began = time.perf_counter()
        assert self.codes is not None
        with (
            threadpool_limits(1),
            progress("search", self.queries.shape[0], "queries") as advance,
            executor_for(self.execution, self.paths(self.kernel), self.size) as remote,
        ):
            executor = remote or code_executor(
                self.codes, self.queries, self.settings, self.vectors
            )
            settings = replace(self.settings, executor=executor)
            limit = Limit(self.threshold, self.max_pairs)
            hits = search_codes_within(self.codes, self.queries, settings, limit, advance=advance)
        hits = hits.named(self.names)
        report = self.range_report(time.perf_counter() - began, hits)
        if self.out:
            report["written"] = self.write_range(hits)
        return report, hits


def threshold_of(within: float | str, task: SearchTask, moved: str | None) -> float:
    """Return the threshold: a number, or what a share of the pairs of a sample reaches.

    Parameters
    ----------
    moved : the new path of the vectors of codes, which a sample needs

    Raises
    ------
    InputError
        If it is neither a finite number nor such a share.
    """
    share = share_of(within) if isinstance(within, str) else None
    if share is None and (isinstance(within, str) or not np.isfinite(within)):
        raise InputError(
            f"within is {within!r}: expected a finite number, or top: and a share of all pairs. "
            f"Fix: {setting(within='top:0.001%')}"
        )
    if share is None:
        return float(within)
    vectors = task.vectors
    if vectors is None:
        assert task.codes is not None
        vectors = open_source_vectors(task.codes, moved)
    some = task.queries.read(0, min(SAMPLED_QUERIES, task.queries.shape[0]))
    chosen = choose_threshold(share, task.kernel, vectors, some)
    reached = f"which {chosen.share:.2g} of the pairs of a sample reach"
    echo(f"within: {chosen.threshold:.9g}, {reached}", err=True)
    return chosen.threshold

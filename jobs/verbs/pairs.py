"""``mercore pairs``: all pairs of rows within a threshold, of two sets or of one with itself."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from mercore.jobs.options import Report
from mercore.jobs.verbs.inputs import VerbOptions
from mercore.jobs.verbs.search import open_search
from mercore.jobs.verbs.searches.task import SearchOptions, open_source_vectors
from mercore.jobs.verbs.searches.within import ExactWithinTask
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.within import RangeAnswers, keep_pairs, lims_of, reaches
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError
from mercore.stores.location.publish import publish_output
from mercore.stores.results.hits import check_hits_path
from mercore.stores.results.range_hits import RangeHits, table_bytes
from mercore.stores.rows import AnyQueries, StoredRows, open_stored
from mercore.stores.selection import Groups, RangeSelection
from mercore.stores.wording import option, setting

Ids = NDArray[np.int64]
GROUP_FORMATS = (".parquet", ".npz")


@dataclass(frozen=True, kw_only=True)
class PairsOptions(VerbOptions):
    """The options of pairs: those of the search, ``none`` and the file of ``groups``."""

    search: SearchOptions
    none: bool = False
    groups: str | None = None

    def check(self) -> None:
        """Refuse contradictions, and files that cannot be written."""
        self.search.check()
        if self.groups is None:
            return
        if self.none:
            raise InputError(
                f"{option('none')} asks whether there is no pair, and {option('groups')} joins all "
                f"of them: found both. Fix: leave {option('none')} out."
            )
        if PurePath(self.groups).suffix.lower() not in GROUP_FORMATS:
            raise InputError(
                f"{self.groups}: unknown suffix for groups, expected {' or '.join(GROUP_FORMATS)}. "
                f"Fix: {setting(groups='groups.parquet')}"
            )
        check_hits_path(self.groups, replace=self.search.force)


@dataclass(frozen=True, kw_only=True)
class PairsTask(ExactWithinTask):
    """A range search of other rows, or of ``itself``: then each pair is scored once.

    With ``none`` the search ends at the first batch that has a pair.
    """

    itself: bool
    none: bool
    groups: str | None

    @cached_property
    def about(self) -> Report:
        """The inputs of the answers, which a certificate states."""
        return super().about | {"itself": self.itself}

    def solve(
        self, search: ExactSearch, queries: NDArray[Any], k: int, first: int = 0
    ) -> RangeAnswers:
        """Return the answers to a batch; of the store itself, only later rows."""
        found: RangeAnswers = super().solve(search, queries, k, first)
        own = first + np.repeat(np.arange(len(queries)), np.diff(found.lims))
        return keep_pairs(found, found.ids > own) if self.itself else found

    def groups_of(self, first: int, count: int) -> Groups | None:
        """Return which rows the queries of a batch meet: of the store itself, only later ones.

        Workers of a cluster have all rows open: they search all of them.
        """
        labels = self.settings.labels
        if not self.itself or self.execution.remote:
            return super().groups_of(first, count)
        if labels is not None:
            return labels.groups(first, count, start=first)
        return [(np.arange(count), RangeSelection(first, self.vectors.rows))] if first else None

    @property
    def met(self) -> float:
        """The share of the rows that a row meets: of its own store, half of them on threads."""
        return 0.5 if self.itself and not self.execution.remote else 1.0

    def enough(self, answers: RangeAnswers) -> bool:
        """Return whether to end the search: there is a pair, and ``none`` asked for none."""
        near = reaches(self.kernel, answers.scores, self.threshold)
        return self.none and bool(near.any())

    def run(self) -> tuple[Report, Any]:
        """Search; return a report and the pairs, as hits of each row."""
        report, hits = super().run()
        report = {("pairs" if key == "hits" else key): value for key, value in report.items()}
        report |= {"itself": self.itself, "refuted": int(self.none and len(hits.ids) > 0)}
        if self.groups:
            report |= self._write_groups(self.groups, hits)
        return report, self._by_id(hits)

    def write_range(self, hits: RangeHits) -> list[str]:
        """Write the pairs to ``out``: a table of pairs, or a sparse matrix of ids."""
        assert self.out
        hits = self._by_id(hits)
        if PurePath(self.out).suffix.lower() != ".parquet":
            return super().write_range(hits)
        first = np.repeat(np.arange(len(hits)), np.diff(hits.lims))
        columns = {"first": first, "second": hits.ids, "score": hits.scores}
        publish_output(Path(self.out), table_bytes(columns, ".parquet"))
        return [self.out]

    def _by_id(self, hits: RangeHits) -> RangeHits:
        """Return hits of queries: those of the store itself by the ids of its rows."""
        if not self.itself:
            return hits
        counts = np.zeros(self.vectors.id_count, np.int64)
        counts[self._ids[: len(hits)]] = np.diff(hits.lims)
        return replace(hits, lims=lims_of(counts))

    @property
    def _ids(self) -> Ids:
        """The ids of the rows that take part."""
        return self.vectors.ids_of(np.arange(self.vectors.rows))

    def _write_groups(self, path: str, hits: RangeHits) -> Report:
        """Write the group of each row, and whether it is the one to keep: the lowest id."""
        ids = self._ids
        first = np.repeat(np.arange(len(ids)), np.diff(hits.lims))
        second = np.searchsorted(ids, hits.ids)
        ones = np.ones(len(first), np.int8)
        graph = csr_array((ones, (first, second)), shape=(len(ids), len(ids)))
        count, labels = connected_components(graph, directed=False)
        lowest = np.full(count, len(ids))
        np.minimum.at(lowest, labels, np.arange(len(ids)))
        group = ids[lowest[labels]]
        columns = {"id": ids, "group": group, "keep": group == ids}
        publish_output(Path(path), table_bytes(columns, PurePath(path).suffix.lower()))
        return {"groups": count, "rows_to_drop": len(ids) - count, "written_groups": path}


def own_rows(store: str, moved: str | None) -> str:
    """Return the path of the rows of a store: its own, or that of the vectors of codes.

    In their place, the rows that take part are the queries.
    """
    stored = open_stored(store)
    return open_source_vectors(stored, moved).where if isinstance(stored, CodeStore) else store


def open_pairs(store: str, others: AnyQueries | None, options: PairsOptions) -> PairsTask:
    """Open a store and the other rows, and check them.

    Parameters
    ----------
    others : the rows to compare with those of the store; None: its own
    """
    options.check()
    if others is not None and options.groups is not None:
        raise InputError(
            f"{option('groups')} joins the rows of one store: found two sets of rows. Fix: leave "
            f"{option('groups')} out."
        )
    queries = own_rows(store, options.search.vectors) if others is None else others
    task = open_search(store, queries, options.search)
    assert isinstance(task, ExactWithinTask)
    same = {each.name: getattr(task, each.name) for each in fields(task)}
    if others is None:
        same["queries"] = StoredRows(task.vectors)
    made = PairsTask(**same, itself=others is None, none=options.none, groups=options.groups)
    return made.fit(batch=options.search.batch)

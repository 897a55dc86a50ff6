"""``mercore graph``: the k nearest other rows of each row of a store."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.options import Report, refuse_unused
from mercore.jobs.progress import waiting
from mercore.jobs.resources.limits import INTERPRETER_BYTES, exact_bytes
from mercore.jobs.verbs.inputs import VerbOptions, exclusive
from mercore.jobs.verbs.pairs import own_rows
from mercore.jobs.verbs.search import open_search
from mercore.jobs.verbs.searches.exact import (
    ExactTask,
    Figures,
    figures_of,
    kept_answers,
    prove,
    read_kept,
    summary,
    write_answers_certificate,
)
from mercore.jobs.verbs.searches.scan import ScanTask
from mercore.jobs.verbs.searches.task import SearchOptions
from mercore.pipeline.arrays import Float64
from mercore.pipeline.search.answers import ExactAnswers
from mercore.pipeline.search.batch_search import SearchSettings
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.itself import (
    RowsInTurn,
    Turns,
    answers_by_row,
    ask,
    turn_bytes,
    turns_of,
)
from mercore.pipeline.search.within import (
    PAIR_BYTES,
    Limit,
    RangeAnswers,
    TooManyPairsError,
    check_count,
    concatenate_ranges,
    lims_of,
)
from mercore.stores.errors import ExistsError, InputError
from mercore.stores.formats.npz import ArrayInPieces
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.results.hits import Hits, certificate_path, check_hits_path
from mercore.stores.results.partial_answers import is_unfinished
from mercore.stores.results.range_hits import (
    HitsInPieces,
    HitsOfFile,
    RangeHits,
    check_range_path,
    write_range_hits,
    written_in_pieces,
)
from mercore.stores.rows import StoredRows
from mercore.stores.vector_views import VectorCache
from mercore.stores.vectors import Vectors
from mercore.stores.wording import option, setting

Ids = NDArray[np.int64]
Others = tuple[Ids, Ids, Float64]  # the number of neighbours of each row, their ids and scores
Batches = Callable[[], Iterator[ExactAnswers]]
ROW_BYTES, ID_BYTES = 104, 24  # of figures and of lists' ends, where answers are not in memory
DEFAULT_K, DEFAULT_BATCH = 10, 1 << 11
LEAST_ROWS = 1 << 16  # of fewer, all rows are soon asked
PAIRS_PER_NEIGHBOUR = 6  # that rows keep in turn, at most in most stores


@dataclass(frozen=True, kw_only=True)
class GraphOptions(VerbOptions):
    """The options of graph: those of the search, which writes nothing, and of the file."""

    search: SearchOptions
    distances: bool = False
    out: str | None = None
    hits_format: str | None = None
    force: bool = False

    def check(self) -> None:
        """Refuse contradictions, and a file that cannot be written."""
        self.search.check()
        if self.out is None:
            unused = {"hits_format": self.hits_format, "force": self.force or None}
            refuse_unused(f"without {option('out')} no file is written", **unused)
            return
        replaces = self.force or is_unfinished(self.out)
        check_range_path(self.out, self.hits_format, replace=replaces)
        check_hits_path(certificate_path(self.out), replace=replaces)


@dataclass(frozen=True, kw_only=True)
class TurnsTask(ExactTask):
    """The rows of a graph that ask in turn: each pair is scored once.

    ``kept`` has the number of pairs of each batch so far; all together may be ``max_pairs``.
    """

    turns: Turns
    max_pairs: int
    about: Report
    kept: list[int] = field(default_factory=list)

    def solve(self, search: ExactSearch, queries: NDArray[Any], k: int, first: int = 0) -> Any:  # noqa: ANN401
        """Return the pairs that the rows of a batch keep."""
        return ask(search, self.turns, queries, first, (k, self.max_pairs))

    def enough(self, answers: RangeAnswers) -> bool:
        """Return False; raise ``TooManyPairsError`` if the batches keep too many pairs."""
        self.kept.append(len(answers.ids))
        check_count(sum(self.kept), Limit(-np.inf, self.max_pairs))
        return False


@dataclass(frozen=True, kw_only=True)
class GraphTask(ExactTask):
    """An exact search of a store for its own rows, for one neighbour more: a row may find itself.

    With ``distances`` scores become √(2 − 2 K), the distance in feature space.
    """

    distances: bool

    @cached_property
    def about(self) -> Report:
        """The inputs of the answers, which a certificate states: the lists with the row itself."""
        return super().about | {"graph": True, "distances": self.distances}

    @cached_property
    def max_pairs(self) -> int:
        """The number of pairs that rows may keep if they ask in turn; 0 if each asks all others.

        That is so for few rows, on other processes, with labels, for scores that depend on which
        row asks, and where memory is short.
        """
        vectors, k = self.vectors, self.settings.k
        others = self.execution.remote or self.settings.labels is not None
        if vectors.rows < LEAST_ROWS or k > isqrt(vectors.rows) or others:
            return 0
        limit = self.execution.memory or psutil.virtual_memory().total // 2
        needed = self.needed + self._answer_bytes + turn_bytes(vectors, k)
        pairs = (limit - INTERPRETER_BYTES - needed) // PAIR_BYTES
        enough = pairs >= PAIRS_PER_NEIGHBOUR * k * vectors.rows
        return pairs if enough and self.kernel.ranking.symmetric else 0

    def bytes_with(self, settings: SearchSettings) -> int:
        """Return the bytes of memory of a batch, and of the answers, if they are in memory."""
        if not self.in_pieces:
            return super().bytes_with(settings)
        rows = self.queries.shape[0]
        at_once = min(rows, settings.threads * settings.batch)
        ends = ROW_BYTES * rows + ID_BYTES * self.vectors.id_count
        return ends + exact_bytes(self.codes, self.vectors, settings, queries=at_once)

    @property
    def _answer_bytes(self) -> int:
        """Bytes of answers in memory, as where rows ask in turn, beyond those needed."""
        return max(0, super().bytes_with(self.settings) - self.needed)

    @property
    def optional_bytes(self) -> int:
        """Bytes of the rows that ask in turn, and of the pairs that they mostly keep at most."""
        vectors, k = self.vectors, self.settings.k
        pairs = min(self.max_pairs, PAIRS_PER_NEIGHBOUR * k * vectors.rows)
        return self._answer_bytes + turn_bytes(vectors, k) + PAIR_BYTES * pairs if pairs else 0

    @property
    def met(self) -> float:
        """The share of the rows that a row meets, with the first look at near rows."""
        return 0.6 if self.max_pairs else 1.0

    def run(self) -> tuple[Report, Any]:
        """Search; return a report and the graph, as hits of each id."""
        self.check_limits()
        began = time.perf_counter()
        out = self.out
        with exclusive(Path(out)) if out else nullcontext() as lease:
            asked, batches = self._prove(lease)
            if lease:
                lease.check()
            figures = _joined([figures_of(self, proved) for proved in batches()])
            others = partial(self._others_of, batches)
            hits, written = _graph_of(others, self.vectors, in_pieces=self.in_pieces), []
            if out:
                ids, ascending = self.vectors.id_count, self.distances or self.kernel.ascending
                written = write_range_hits(out, hits, ids, self.hits_format, distances=ascending)
                written.append(write_answers_certificate(out, figures, self))
                kept_answers(asked, out).clear()
        report = self.report(time.perf_counter() - began) | summary(figures, self)
        report["k"] -= 1
        if out and isinstance(hits, HitsInPieces):
            hits = HitsOfFile(out, self.hits_format)
        return report | ({"written": written} if out else {}), hits

    @property
    def in_pieces(self) -> bool:
        """Whether answers are not all in memory: they are kept and written batch by batch."""
        return self.out is not None and written_in_pieces(self.out, self.hits_format)

    def _others_of(self, batches: Batches) -> Iterator[Others]:
        """Yield the neighbours of the rows of each batch."""
        first, far = 0, self.distances and not self.kernel.ascending
        for proved in batches():
            scores = self.kernel.shown(self.kernel.from_ranking(proved.scores.copy()))
            found = Hits(scores=scores, ids=self.vectors.ids_of(proved.ids))
            yield _others(found, self.vectors, first, far=far)
            first += len(found)

    def _prove(self, lease: LeaseHandle | None) -> tuple[ExactTask, Batches]:
        """Return the task whose batches are kept, and the answers of all rows."""
        if self.max_pairs:
            try:
                return self._prove_in_turn(self.max_pairs, lease)
            except (TooManyPairsError, ExistsError):  # or it began without turns before
                pass
        every = prove(self, ExactAnswers, self.out, lease)
        if not self.in_pieces:
            return self, partial(iter, list(every))
        for _ in every:
            pass  # each batch is kept
        assert self.out
        return self, partial(read_kept, self, self.out)

    def _prove_in_turn(
        self, max_pairs: int, lease: LeaseHandle | None
    ) -> tuple[ExactTask, Batches]:
        """Return the answers of rows that ask in turn; what each keeps is kept beside ``out``."""
        vectors, k, out = self.vectors, self.settings.k, self.out
        same = {each.name: getattr(self, each.name) for each in fields(ExactTask)}
        same |= {"vectors": VectorCache(vectors, vectors.rows * vectors.dims * 8)}
        cache = max(0, self.settings.cache_bytes - self._answer_bytes)
        same |= {"settings": replace(self.settings, cache_bytes=cache)}
        with threadpool_limits(1), ExactTask(**same).searching() as search:
            scorer = search.scorer
            with waiting("looking at near rows"):
                turns = turns_of(scorer, k)
            same |= {"queries": RowsInTurn(scorer.vectors, turns)}
            about = self.about | {"turns": turns.digest}
            asked = TurnsTask(**same, turns=turns, max_pairs=max_pairs, about=about)
            try:
                found = concatenate_ranges(list(prove(asked, RangeAnswers, out, lease)))
            except TooManyPairsError:
                if out:
                    kept_answers(asked, out).clear()
                raise
            by_row = answers_by_row(scorer, turns, found, k, self.settings.batch)
            return asked, partial(iter, list(by_row))


@dataclass(frozen=True, kw_only=True)
class CodesGraphTask(ScanTask):
    """A graph by codes, whose best are scored by the true kernel: an approximate one."""

    vectors: Vectors
    distances: bool
    graph: str | None

    def run(self) -> tuple[Report, Any]:
        """Search; return a report and the graph, as hits of each id."""
        report, found = super().run()
        far = self.distances and not self.kernel.ascending
        others = _others(found, self.vectors, 0, far=far)
        hits = _graph_of(lambda: iter([others]), self.vectors, in_pieces=False)
        report["k"] -= 1
        if self.graph:
            ids, ascending = self.vectors.id_count, self.distances or self.kernel.ascending
            report["written"] = write_range_hits(
                self.graph, hits, ids, self.hits_format, distances=ascending
            )
        return report, hits


def _others(found: Hits, vectors: Vectors, first: int, *, far: bool) -> Others:
    """Return hits of rows from ``first`` on without the rows themselves: counts, ids and scores.

    With ``far``, scores K become distances in feature space.
    """
    own = vectors.ids_of(np.arange(first, first + len(found)))
    itself = found.ids == own[:, None]
    itself[~itself.any(axis=1), -1] = True  # enough others come before it
    assert found.scores is not None
    others = ~itself & (found.ids >= 0)
    scores = found.scores[others].astype(np.float64, copy=False)
    shown = np.sqrt(np.maximum(0.0, 2 - 2 * scores)) if far else scores
    return others.sum(axis=1), found.ids[others], shown


def _graph_of(
    others: Callable[[], Iterator[Others]], vectors: Vectors, *, in_pieces: bool
) -> RangeHits | HitsInPieces:
    """Return the neighbours of all rows by id; an id of no row has none."""
    counts = np.zeros(vectors.id_count, np.int64)
    first = 0
    for of_rows, _, _ in others():
        rows = np.arange(first, first + len(of_rows))
        counts[vectors.ids_of(rows)] = of_rows
        first += len(of_rows)
    lims = lims_of(counts)
    if not in_pieces:
        _, ids, scores = (np.concatenate(each) for each in zip(*others(), strict=True))
        return RangeHits(lims=lims, ids=ids, scores=scores)

    def pieces(field: int) -> Iterator[NDArray[Any]]:
        return (each[field] for each in others())

    return HitsInPieces(
        lims=lims,
        ids=ArrayInPieces(np.dtype(np.int64), int(lims[-1]), partial(pieces, 1)),
        scores=ArrayInPieces(np.dtype(np.float64), int(lims[-1]), partial(pieces, 2)),
    )


def _joined(batches: list[Figures]) -> Figures:
    """Return the joined figures of all batches, which are emptied: no figure is in memory twice."""
    return {name: np.concatenate([each.pop(name) for each in batches]) for name in [*batches[0]]}


def open_graph(store: str, options: GraphOptions) -> GraphTask | CodesGraphTask:
    """Open a store of vectors, of bounds or of codes, and check the options.

    Raises
    ------
    MercoreError
        If something does not exist or fit together, or there are not enough other rows.
    """
    options.check()
    search = options.search
    if search.k is None:
        search = replace(search, k=DEFAULT_K)
    task = open_search(store, own_rows(store, search.vectors), search)
    vectors, k = task.vectors, task.settings.k
    assert vectors is not None
    if k >= vectors.rows:
        most = vectors.rows - 1
        raise InputError(
            f"k is out of range: found {k}, expected 1 to {most}, the other rows of each row. "
            f"Fix: {setting(k=max(1, most))}"
        )
    if options.distances and not (task.kernel.normalised or task.kernel.ascending):
        raise InputError(
            f"kernel {task.kernel.name} gives no distances. Fix: leave {option('distances')} out."
        )
    same: dict[str, Any] = {each.name: getattr(task, each.name) for each in fields(task)}
    same |= {"queries": StoredRows(vectors), "hits_format": options.hits_format}
    settings = replace(task.settings, k=k + 1, batch=search.batch or DEFAULT_BATCH)
    if settings.rerank is not None:
        same["settings"] = replace(settings, rerank=min(vectors.rows, settings.rerank + 1))
        by_codes = CodesGraphTask(**same, distances=options.distances, graph=options.out)
        return by_codes.fit(batch=search.batch)
    same |= {"settings": settings, "out": options.out}
    return GraphTask(**same, distances=options.distances).fit(batch=search.batch)

"""Exact search, with one certificate per query; answers are kept on disk batch by batch."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.notices import echo
from mercore.jobs.options import Report, refuse_unused
from mercore.jobs.progress import progress
from mercore.jobs.resources.limits import exact_bytes
from mercore.jobs.verbs.inputs import exclusive, executor_for
from mercore.jobs.verbs.searches.task import (
    Opened,
    SearchOptions,
    SearchTask,
    check_bounded,
    open_source_vectors,
)
from mercore.pipeline.compiling.first_use import before_bounding
from mercore.pipeline.encode import encoder_of, spec_of
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec, Relaxation, relaxation
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.pq import PqParams
from mercore.pipeline.parallel import in_order
from mercore.pipeline.search.answers import ExactAnswers, concatenate_answers
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.search.within import RangeAnswers, hits_within
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError, IntegrityError
from mercore.stores.formats.source import content_digest
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.results.certificates import write_certificate
from mercore.stores.results.hits import Hits, certificate_path, check_id
from mercore.stores.results.partial_answers import Answers
from mercore.stores.rows import AnyQueries
from mercore.stores.selection import Groups
from mercore.stores.vector_views import WatchedVectors
from mercore.stores.vectors import Vectors
from mercore.stores.wording import command, option, setting

Answered = TypeVar("Answered", ExactAnswers, RangeAnswers)
Figures = dict[str, NDArray[Any]]


class Batch(NamedTuple):
    """A batch of queries: its number, its search, and its raw queries or its kept answers."""

    number: int
    search: ExactSearch
    work: NDArray[Any] | dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class ExactTask(SearchTask):
    """A search for the true neighbours, by bounds if ``codes`` are given.

    ``relaxed`` is the share of near pairs for which bounds hold; None means all pairs.
    ``check_all`` says that bytes are checked too on which no answer rests.
    """

    vectors: Vectors
    relaxed: float | None = None
    check_all: bool = False

    @property
    def relaxation(self) -> Relaxation | None:
        """The cap of the cosine that relaxed bounds assume, and the probability that it fails."""
        return (
            relaxation(self.codes.model, self.relaxed)
            if self.codes and self.relaxed is not None
            else None
        )

    @property
    def beta(self) -> float:
        """The factor of a bound's residual (Bourrier et al. 2015, Eq. 28): 1 if not relaxed."""
        relaxed = self.relaxation
        return 1.0 if relaxed is None else min(1.0, relaxed.beta)

    @cached_property
    def about(self) -> Report:
        """The inputs of the answers, which a certificate states."""
        selection = self.vectors.selection
        rows = {"rows": self.vectors.rows, "digest": selection.digest} if selection else None
        labels = self.settings.labels.about if self.settings.labels else None
        content = self.codes.source_content if self.codes else None
        optional = {"selected": rows, "labels": labels, "within": self.cut, "content": content}
        return {
            "exact": self.relaxed is None,
            "relaxed": self.relaxed,
            "kernel": self.kernel.spec(),
            "ranking": self.kernel.ranking.spec(),  # scores of a certificate are of this kernel
            "vectors": self.vectors.fingerprint,
            "fingerprint_of": self.vectors.fingerprint_of,
            "queries": content_digest(self.queries),
            "bounds": self.codes.store.header.spec_digest if self.codes else None,
            "bound": self.codes.spec.encoder["name"] if self.codes else None,
            "k": self.settings.k,
        } | {name: value for name, value in optional.items() if value is not None}

    def solve(self, search: ExactSearch, queries: NDArray[Any], k: int, first: int = 0) -> Any:  # noqa: ANN401
        """Return the answers to a batch of raw queries; ``first`` is the number of its first."""
        groups = self.groups_of(first, len(queries))
        return (
            search.prove(queries, k) if groups is None else search.prove_among(queries, k, groups)
        )

    def groups_of(self, first: int, count: int) -> Groups | None:
        """Return the queries of each label in a batch with their rows; None: all meet all rows."""
        labels = self.settings.labels
        return None if labels is None else labels.groups(first, count)

    def enough(self, answers: Any) -> bool:  # noqa: ANN401
        """Return whether the search may end after the answers to a batch."""
        return False

    def bytes_with(self, settings: SearchSettings) -> int:
        """Return the bytes of memory that one worker takes for one batch."""
        return exact_bytes(self.codes, self.vectors, settings, queries=self.queries.shape[0])

    def run(self) -> tuple[Report, Any]:
        """Search; return a report and the hits.

        With ``out``, hits and a certificate are written, and a killed search resumes after its
        last batch.
        """
        self.check_limits()
        began = time.perf_counter()
        out = self.out
        if out:
            last = np.array([self.vectors.rows - 1])
            check_id(out, int(self.vectors.ids_of(last)[0]), self.hits_format)
        with exclusive(Path(out)) if out else nullcontext() as lease:
            proved = concatenate_answers(list(prove(self, ExactAnswers, out, lease)))
            if lease:
                lease.check()
            scores = self.kernel.shown(self.kernel.from_ranking(proved.scores.copy()))
            hits = Hits(scores=scores, ids=self.vectors.ids_of(proved.ids))
            hits = hits_within(self.kernel, hits, self.cut).named(self.names)
            figures, written = figures_of(self, proved), []
            if out:
                written = [*self.write(hits), write_answers_certificate(out, figures, self)]
                kept_answers(self, out).clear()
        report = self.report(time.perf_counter() - began) | summary(figures, self)
        return report | ({"written": written} if out else {}), hits

    @contextmanager
    def searching(self) -> Iterator[ExactSearch]:
        """Yield the search of single batches."""
        settings, size, codes = self.settings, self.size, self.codes
        if codes:
            check_bounded(codes, self.vectors)
        scorer = ExactScorer(
            vectors=WatchedVectors(self.vectors),
            kernel=self.kernel.ranking,
            threads=settings.threads,
            window=settings.window,
        )
        if size.queries <= size.batch and settings.labels is None:
            size = size._replace(cache_bytes=0)  # one pass reads each part once
        bounds = (
            OpenCodes(codes, encoder_of(codes, settings.custom), PartCache(size.cache_bytes))
            if codes
            else None
        )
        if codes and not self.execution.remote:
            before_bounding(spec_of(codes))
        with executor_for(self.execution, self.paths(self.kernel.ranking), size) as executor:
            yield ExactSearch(
                scorer=scorer,
                beta=self.beta,
                bounds=bounds,
                batches=settings.batches(size.queries),
                remote=executor,
            )


def open_exact(
    store: str, opened: Opened, queries: AnyQueries, options: SearchOptions
) -> ExactTask:
    """Open the other inputs of an exact search of an open store, and check them.

    Raises
    ------
    InputError
        If an option is out of range or has no use, or the store holds codes that are no bounds.
    """
    refuse_unused("an exact search scores all that its bounds leave", rerank=options.rerank)
    if options.exact:
        refuse_unused(
            f"relaxed bounds prove nothing, and {option('exact')} is to prove all",
            relaxed=options.relaxed,
        )
    codes, vectors = opened.codes, opened.vectors
    if codes is not None:
        check_bounds(codes)
        vectors = open_source_vectors(codes, options.vectors, exact=options.exact)
    assert vectors is not None
    _check_relaxed(options.relaxed, codes, store)
    asked = opened.open_queries(queries)
    task = ExactTask(
        store=store,
        codes=codes,
        vectors=vectors,
        kernel=opened.kernel,
        queries=asked,
        settings=opened.settings(options, asked),
        execution=options.execution,
        custom_file=options.kernel.file,
        map_file=options.kernel.linear_map,
        out=options.out,
        hits_format=options.hits_format,
        relaxed=options.relaxed,
        check_all=options.check_all,
    )
    return fit_exact(task, batch=options.batch)


def fit_exact(task: ExactTask, *, batch: int | None) -> ExactTask:
    """Check the settings and queries of an exact search; return it fitted into memory."""
    task.settings.check(task.vectors.rows)
    check_queries(task.queries, task.kernel, task.vectors.dims, task.vectors.where)
    return task.fit(batch=batch)


def prove(
    task: ExactTask, kind: type[Answered], out: str | None, lease: LeaseHandle | None = None
) -> Iterator[Answered]:
    """Yield the exact answers of all batches; those that an earlier run kept are read.

    Parameters
    ----------
    kind : of the answers that ``task.solve`` returns
    out : the path beside which batches are kept, None to keep none
    lease : the lease of ``out``

    Raises
    ------
    LeaseError
        If the lease is lost: before the next batch is kept.
    IntegrityError
        If a byte that was read is damaged.
    """
    kept = kept_answers(task, out) if out else None

    with (
        threadpool_limits(1),
        progress("search", task.queries.shape[0], "queries") as advance,
        task.searching() as exact,
    ):

        def answer(batch: Batch) -> Answered:
            number, share, work = batch
            if isinstance(work, dict):
                return kind(**work)
            first = number * task.settings.batch
            proved: Answered = task.solve(share, work, task.settings.k, first)
            if lease and kept:
                lease.check()
                kept.put(number, proved.arrays())
            return proved

        batches = _batches(task, exact, kept)
        for proved in in_order(batches, answer, exact.executor.concurrent_batches):
            yield proved
            advance(len(proved.evaluated))
            if task.enough(proved):
                return
        if task.check_all:
            exact.executor.check_rest()


def kept_answers(task: ExactTask, out: str) -> Answers:
    """Return the answers that unfinished runs of the same search keep beside ``out``."""
    return Answers(out, task.about | {"batch": task.settings.batch})


def read_kept(task: ExactTask, out: str) -> Iterator[ExactAnswers]:
    """Yield the answers of all batches, which are kept beside ``out``.

    Raises
    ------
    IntegrityError
        If a batch was damaged since it was written.
    """
    kept = kept_answers(task, out)
    for number in range(task.settings.batches(task.queries.shape[0])):
        arrays = kept.get(number)
        if arrays is None:
            raise IntegrityError(
                f"batch {number} beside {out} is damaged or missing: expected the bytes that were "
                "written. Fix: run the same command again, which searches it again."
            )
        yield ExactAnswers(**arrays)


def _batches(task: ExactTask, exact: ExactSearch, kept: Answers | None) -> Iterator[Batch]:
    """Yield the number of each batch, its search, and its kept answers or else its raw queries."""
    nq, size = task.queries.shape[0], task.settings.batch
    for number, start in enumerate(range(0, nq, size)):
        arrays = kept.get(number) if kept else None
        if arrays:
            yield Batch(number, exact, arrays)
        else:
            raw = task.queries.read(start, min(start + size, nq))
            yield Batch(number, exact.share(), raw)


def summary(figures: Figures, task: ExactTask) -> Report:
    """Return the shares of rows scored, and the number of queries that needed every row."""
    with_ties = int((figures["ties"] > 0).sum())
    return rows_scored(figures["evaluated"], task) | {"queries_with_ties": with_ties}


def rows_scored(evaluated: NDArray[np.int64], task: ExactTask) -> Report:
    """Return the shares of the rows that were scored, and the queries that needed every row."""
    labels = task.settings.labels
    rows = task.vectors.rows if labels is None else np.maximum(labels.counts[: len(evaluated)], 1)
    share, every = evaluated / rows, int((evaluated == rows).sum())
    if task.codes is not None and every and labels is None:  # few rows of a label are soon scored
        echo(
            f"the bounds of {task.codes.where} ruled out too few rows for {every} of "
            f"{len(share)} queries: for those every row was scored by the true kernel",
            err=True,
        )
    names = {"median": 0.5, "p90": 0.9, "max": 1.0}
    relaxed = task.relaxation
    return {
        "approximate": None if relaxed is None else {"relaxed": task.relaxed} | relaxed._asdict(),
        "bound": task.codes.spec.encoder["name"] if task.codes else None,
        "rows_scored": {name: float(np.quantile(share, level)) for name, level in names.items()},
        "queries_by_every_row": every,
    }


def figures_of(task: ExactTask, proved: ExactAnswers) -> Figures:
    """Return the figures per query that a certificate holds."""
    last = np.maximum((proved.ids >= 0).sum(axis=1, keepdims=True) - 1, 0)
    kth = np.take_along_axis(proved.scores, last, axis=1)[:, 0]  # −inf without a hit
    finite = np.where(np.isneginf(kth), 0.0, kth)
    return {
        "kth": kth,
        "greatest_unevaluated": proved.greatest,
        "slack": task.kernel.ranking.slack(task.vectors.dims, finite),
        "evaluated": proved.evaluated,
        "ties": proved.ties,
    }


def write_answers_certificate(out: str, figures: Figures, task: ExactTask) -> str:
    """Write the certificate beside the hits; return its path."""
    path, arrays = certificate_path(out), {**figures, "rows": np.array(task.vectors.rows)}
    write_certificate(path, arrays, task.about | {"check_all": task.check_all})
    return path


def _check_relaxed(share: float | None, codes: CodeStore | None, store: str) -> None:
    """Refuse a share out of range, and stores whose bounds cannot be relaxed."""
    if share is None:
        return
    if not 0 < share < 1:
        raise InputError(
            f"relaxed is out of range: found {share}, expected between 0 and 1. Fix: "
            f"{setting(relaxed=0.99)}"
        )
    if codes is None or "cosines" not in codes.model:
        raise InputError(
            f"{option('relaxed')} has no use here: it relaxes the bounds of {KpcaBoundSpec.name} "
            f"and {KpcaPqSpec.name}, and {store} holds none. "
            f"Fix: leave {option('relaxed')} out, or search codes that "
            f"{command('encode', encoder='kpca-pq')} makes."
        )


def check_bounds(codes: CodeStore) -> None:
    """Refuse codes whose scores are not upper bounds.

    Raises
    ------
    InputError
        If they are codes of an encoder without bounds.
    """
    spec = spec_of(codes)
    if not spec.proves:
        made = f"{spec.name} without proofs" if isinstance(spec, PqParams) else spec.name
        raise InputError(
            f"{codes.where} holds codes of {made}, which bound no score: expected codes of "
            "kpca-pq, map-pq, pca-pq or pq with proofs, a store of bounds, or vectors. "
            f"Fix: {command('encode', 'VECTORS', 'CODES', encoder='kpca-pq')}"
        )

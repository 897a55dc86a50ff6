"""Exact search from the command line: answers batch by batch, kept until all are there, and a certificate of each."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.progress import progress
from mercore.jobs.resources.execution import Execution, Load, Stores, custom_kernel_file, execution_of, executor_for
from mercore.jobs.resources.limits import batch_of, exact_bytes, within_memory
from mercore.jobs.verbs.inputs import chosen_kernel, exclusive, kind_of, refuse, vectors_of
from mercore.pipeline import encode as encoding
from mercore.pipeline.encode import encoder_of, spec_of
from mercore.pipeline.encoders import bounds_scores
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec, Relaxation, relaxation
from mercore.pipeline.kernels import Kernel, kernel_from_spec
from mercore.pipeline.parallel import in_order
from mercore.pipeline.search.answers import ExactAnswers, concatenate_answers
from mercore.pipeline.search.batch_search import SearchSettings, check_queries, check_source
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.scan import OpenCodes
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import InputError
from mercore.stores.formats import Sliced
from mercore.stores.formats.source import Source, content_digest
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.results.certificates import write_certificate
from mercore.stores.results.hits import Hits, certificate_path, check_id, write_hits
from mercore.stores.results.partial_answers import Answers
from mercore.stores.rows import open_rows, open_vectors
from mercore.stores.vectors import WatchedVectors, original_ids

Report = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ExactTask:
    """An exact search that is ready to run."""

    vectors: WatchedVectors
    kernel: Kernel
    codes: CodeStore | None
    queries: Source
    settings: SearchSettings
    execution: Execution
    custom_kernel_file: str | None = None  # of a user's kernel
    share: float | None = None  # of near pairs for which relaxed bounds hold; bounds hold for all

    @property
    def relaxation(self) -> Relaxation | None:
        """What relaxed bounds take the cosine to be at most, and how often that may fail."""
        return relaxation(self.codes.model, self.share) if self.codes and self.share is not None else None

    @cached_property
    def about(self) -> Report:
        """What the answers depend on, and what a certificate says that it is about."""
        return {
            "exact": self.share is None,
            "relaxed": self.share,
            "kernel": self.kernel.spec(),
            "ranking": self.kernel.ranking.spec(),  # whose scores a certificate holds: a transform ranks as its κ
            "vectors": self.vectors.fingerprint,
            "queries": content_digest(self.queries),
            "bounds": self.codes.store.header.job if self.codes else None,
            "bound": self.codes.spec.encoder["name"] if self.codes else None,
            "k": self.settings.k,
        }

    @contextmanager
    def searching(self) -> Iterator[ExactSearch]:
        """Yield what proves a batch."""
        settings, nq = self.settings, self.queries.shape[0]
        truth = ExactScorer(
            vectors=self.vectors, kernel=self.kernel.ranking, threads=settings.threads, window=settings.window
        )
        room = settings.cache_bytes if nq > settings.batch else 0
        relaxed, codes = self.relaxation, self.codes
        beta = 1.0 if relaxed is None else min(1.0, relaxed.beta)
        bounds = OpenCodes(codes, encoder_of(codes, settings.custom), PartCache(room)) if codes else None
        with executor_for(self.execution, self._stores, Load(nq, settings.batch, room, settings.window)) as executor:
            yield ExactSearch(scorer=truth, beta=beta, bounds=bounds, remote=executor)

    @property
    def _stores(self) -> Stores:
        """What each worker elsewhere opens."""
        kernel, codes = self.kernel.ranking.spec(), self.codes.where if self.codes else None
        return Stores(kernel=kernel, codes=codes, vectors=self.vectors.where, custom=self.custom_kernel_file)


def search(store: str, queries: str | Sliced, **options: Any) -> tuple[Report, Hits]:  # noqa: ANN401
    """Search bounds or vectors exactly; return what it took, and the hits, which ``out`` names a file for.

    With ``out``, a certificate is written beside it, and a search that was killed goes on behind its last batch.
    """
    out = options.get("out")
    began = time.perf_counter()
    job = prepare(store, queries, options)
    if out:
        check_id(out, int(original_ids(np.array([job.vectors.rows - 1]), job.vectors.dropped)[0]))
    with exclusive(Path(out)) if out else nullcontext() as held:
        proved = prove(job, out, held)
        hits = _hits(proved, job)
        written = [*write_hits(out, hits), _write_certificate(out, proved, job)] if out else []
        if out:
            Answers(out, job.about | {"batch": job.settings.batch}).clear()
    seconds = time.perf_counter() - began
    report = {"store": store, "queries": len(hits.ids), "k": job.settings.k, "rows": job.vectors.rows}
    report |= {
        "seconds": round(seconds, 3),
        "ns_per_row_and_query": round(seconds / job.vectors.rows / len(hits.ids) * 1e9, 3),
    }
    report |= summary(proved, job)
    return report | ({"written": written} if out else {}), hits


def prepare(store: str, queries: str | Sliced, options: Mapping[str, Any]) -> ExactTask:
    """Open all that a search reads, and refuse what cannot be searched, before any work.

    Raises
    ------
    InputError
        If an option is out of range or has no use, or the store holds codes that bound nothing.
    BudgetError
        If it would take more than ``memory``.
    """
    refuse(options, ("rerank",), "an exact search scores all that its bounds leave")
    if options.get("exact"):
        refuse(options, ("relaxed",), "relaxed bounds prove nothing, and --exact is to prove all")
    execution = execution_of(options)
    settings = SearchSettings(k=options["k"], batch=batch_of(options), threads=execution.threads)
    codes = open_code_store(store) if kind_of(store) == "codes" else None
    if codes is None:
        refuse(options, ("vectors",), f"{store} is the vectors")
        vectors = open_vectors(store)
        kernel = chosen_kernel(options, vectors)
        encoding.check_domain(vectors, kernel)
    else:
        refuse(options, ("gamma", "transform"), f"{store} has its kernel already")
        check_bounds(codes)
        settings = replace(settings, custom=custom_kernel_of(codes, options.get("kernel")))
        vectors, kernel = (
            vectors_of(codes, options.get("vectors")),
            kernel_from_spec(codes.spec.kernel, settings.custom),
        )
        check_source(vectors, codes)
    job = ready(ExactScorer(vectors=vectors, kernel=kernel), codes, open_rows(queries), settings, options)
    return replace(
        job, share=_relaxed(options.get("relaxed"), codes, store), custom_kernel_file=custom_kernel_file(options)
    )


def ready(
    truth: ExactScorer, codes: CodeStore | None, queries: Source, settings: SearchSettings, options: Mapping[str, Any]
) -> ExactTask:
    """Return the search of opened stores, all checked; ``options`` are those of the verb."""
    vectors, kernel = truth.vectors, truth.kernel
    settings.check(vectors.rows)
    check_queries(queries, kernel, vectors.dims, vectors.where)
    nq, execution = queries.shape[0], execution_of(options)
    settings = within_memory(settings, execution, lambda some: exact_bytes(codes, vectors, some, queries=nq), options)
    return ExactTask(
        vectors=WatchedVectors(vectors),
        kernel=kernel,
        codes=codes,
        queries=queries,
        execution=execution,
        settings=settings,
    )


def prove(job: ExactTask, out: str | None, held: LeaseHandle | None = None) -> ExactAnswers:
    """Return the proofs of all queries: those of batches that an earlier run kept beside ``out`` are not made again.

    Parameters
    ----------
    held : the lease of ``out``

    Raises
    ------
    LeaseError
        If the lease was lost: before the next batch is kept.
    IntegrityError
        If a byte of any store is not the one that was written, in parts that no query needed too.
    """
    kept = Answers(out, job.about | {"batch": job.settings.batch}) if out else None
    nq, answers = job.queries.shape[0], []

    with threadpool_limits(1), progress("search", nq, "queries") as advance, job.searching() as exact:

        def answer(batch: tuple[int, ExactAnswers | NDArray[Any]]) -> ExactAnswers:
            number, found = batch
            if isinstance(found, ExactAnswers):
                return found
            proved = exact.prove(found, job.settings.k)
            _keep(kept, held, number, proved)
            return proved

        for proved in in_order(_batches(job, kept), answer, exact.executor.concurrent_batches):
            answers.append(proved)
            advance(len(proved.ids))
        exact.executor.check_rest()
    if held:
        held.check()  # what comes next is written for good
    return concatenate_answers(answers)


def _batches(job: ExactTask, kept: Answers | None) -> Iterator[tuple[int, ExactAnswers | NDArray[Any]]]:
    """Yield the number of each batch with its raw queries, or with the proofs that an earlier run kept."""
    nq, size = job.queries.shape[0], job.settings.batch
    for number, start in enumerate(range(0, nq, size)):
        found = kept.get(number) if kept else None
        yield number, ExactAnswers(**found) if found else job.queries.read(start, min(start + size, nq))


def _keep(kept: Answers | None, held: LeaseHandle | None, number: int, proved: ExactAnswers) -> None:
    """Keep the proofs of a batch beside the hits to come, if they go to a file."""
    if held:
        held.check()
    if kept:
        kept.put(number, proved.arrays())


def summary(proved: ExactAnswers, job: ExactTask) -> Report:
    """Return what the proofs took: shares of rows that were scored, and how many queries needed every row."""
    share = proved.evaluated / job.vectors.rows
    every = int((proved.evaluated == job.vectors.rows).sum())
    if job.codes is not None and every:
        click.echo(
            f"the bounds of {job.codes.where} ruled too little out for {every} of {len(share)} queries: "
            "those were answered by the true kernel of every row",
            err=True,
        )
    names = {"median": 0.5, "p90": 0.9, "max": 1.0}
    relaxed = job.relaxation
    approximate = None if relaxed is None else {"relaxed": job.share} | relaxed._asdict()
    return {
        "approximate": approximate,
        "bound": job.codes.spec.encoder["name"] if job.codes else None,
        "rows_scored": {name: float(np.quantile(share, level)) for name, level in names.items()},
        "queries_by_every_row": every,
        "queries_with_ties": int((proved.ties > 0).sum()),
    }


def _hits(proved: ExactAnswers, job: ExactTask) -> Hits:
    """Return the hits that were proved, as the kernel scores them and the source numbers them."""
    scores = job.kernel.from_ranking(proved.scores.copy())
    return Hits(scores=scores, ids=original_ids(proved.ids, job.vectors.dropped))


def _write_certificate(out: str, proved: ExactAnswers, job: ExactTask) -> str:
    """Write what proves the hits beside them."""
    slack = 2 * job.kernel.ranking.exact_error(job.vectors.dims)
    arrays = {
        "kth": proved.scores[:, -1],
        "greatest_unevaluated": proved.greatest,
        "slack": np.full(len(proved.ids), slack),
        "evaluated": proved.evaluated,
        "ties": proved.ties,
        "rows": np.array(job.vectors.rows),
    }
    path = certificate_path(out)
    write_certificate(path, arrays, job.about)
    return path


def _relaxed(share: float | None, codes: CodeStore | None, store: str) -> float | None:
    """Return the share of near pairs for which relaxed bounds are to hold, or refuse it."""
    if share is None:
        return None
    if not 0 < share < 1:
        raise InputError(f"relaxed is out of range: found {share}, expected between 0 and 1. Fix: --relaxed 0.99")
    if codes is None or codes.spec.encoder["name"] != KpcaBoundSpec.name:
        raise InputError(
            f"--relaxed has no use here: it relaxes the bounds of {KpcaBoundSpec.name}, and {store} holds none. "
            "Fix: leave --relaxed out, or search the bounds that mercore encode --encoder kpca-bound makes."
        )
    return share


def check_bounds(codes: CodeStore) -> None:
    """Refuse codes that bound nothing.

    Raises
    ------
    InputError
        If their scores are no upper bounds.
    """
    if not bounds_scores(spec_of(codes)):
        raise InputError(
            f"{codes.where} holds codes of {codes.spec.encoder['name']}, which bound no score: expected a store of "
            "bounds, or of vectors. Fix: mercore encode VECTORS BOUNDS --encoder bound"
        )

"""The page of a store of codes: what it holds, and what is measured on a bounded sample of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.gallery.page import write_page
from mercore.jobs.gallery.report.code_sections import (
    gallery_section,
    holds_section,
    proof_section,
    recall_section,
    speed_section,
)
from mercore.jobs.gallery.report.map_section import map_section
from mercore.jobs.gallery.report.measure import (
    SCORED_QUERIES,
    SCORED_ROWS,
    CodeFigures,
    Measurement,
    Values,
)
from mercore.jobs.gallery.report.pictures import open_pictures
from mercore.jobs.gallery.report.report_options import ReportOptions
from mercore.jobs.gallery.report.sample import (
    MAX_QUERIES,
    Ids,
    all_codes,
    draw_queries,
    spread_codes,
)
from mercore.jobs.gallery.report.score_section import residual_section, score_section
from mercore.jobs.notices import echo, in_options
from mercore.jobs.options import Report
from mercore.jobs.progress import waiting
from mercore.jobs.resources.execution import Execution
from mercore.jobs.resources.limits import check_budget, fitted, search_bytes
from mercore.jobs.verbs.evaluate import recalls
from mercore.jobs.verbs.inputs import KernelOptions, VerbTask
from mercore.jobs.verbs.searches.task import open_source_vectors
from mercore.pipeline.encode import encoder_of, spec_of
from mercore.pipeline.kernels import CustomKernel, Kernel, kernel_from_spec
from mercore.pipeline.linear_map import map_of, mapped_source
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.pipeline.search.scan import OpenCodes
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError, MercoreError, ShapeError, counted
from mercore.stores.formats.source import Source
from mercore.stores.results.certificates import read_certificate
from mercore.stores.results.hits import AnyHits, Hits, found_certificate, open_hits
from mercore.stores.rows import is_store, open_rows
from mercore.stores.vectors import Vectors, open_vector_store, original_ids
from mercore.stores.wording import option, render

FOUND = 100  # neighbours per query
RANKS = (1, 2, 5, 10, 20, 50, 100)
SCORE_BYTES = 128 * SCORED_QUERIES * (SCORED_ROWS + 10 * SCORED_QUERIES)
Certificate = tuple[dict[str, NDArray[Any]], Report]
RESIDUAL = "residual"  # column of the norm of what a code leaves out


@dataclass(frozen=True, kw_only=True)
class CodesReportTask(VerbTask):
    """Codes to report on, with what they are measured by; ``vectors`` is None if none are there.

    ``absent`` says why. ``certificate`` has the arrays and the description of the truth's own.
    """

    codes: CodeStore
    kernel: Kernel
    custom: CustomKernel | None
    vectors: Vectors | None
    absent: str
    queries: Source | None
    truth: Hits | None
    certificate: Certificate | None
    settings: SearchSettings
    needed: int
    options: ReportOptions

    def check_limits(self) -> None:
        """Refuse measurements that take more memory than they may."""
        memory = self.options.execution.memory
        check_budget("measuring", self.needed, memory, f"a greater {option('memory')}")

    def run(self) -> Report:
        """Measure, and write the page; return its path, and what was measured."""
        self.check_limits()
        with waiting("measuring a sample"):
            measured = self.measure()
        size, out = self._write(measured), str(Path(self.options.out).resolve())
        report: Report = {"page": out, "rows": self.codes.rows}
        if measured is not None:
            report |= {
                "rows_searched": measured.rows,
                "queries": len(measured.hits),
                "threads": self.settings.threads,
                "ns_per_row_and_query": round(measured.ns_per_row_and_query, 3),
                "recall": {"codes": measured.recall},
            }
        return {**report, "bytes": size}

    def measure(self) -> CodeFigures | None:
        """Return the figures of the codes, or None without vectors and true neighbours.

        With a given truth, which is that of all rows, every code is searched.
        """
        codes, bounded = self.codes, spread_codes(self.codes)
        if self.vectors is None and self.truth is None:
            return None
        vectors = None if self.vectors is None else bounded.vectors(codes, self.vectors)
        queries = draw_queries(self.queries, vectors)
        measurement = Measurement(
            codes=OpenCodes(codes, encoder_of(codes, self.custom)),
            kernel=self.kernel,
            queries=queries,
            settings=self.settings,
        )
        sample = bounded if self.truth is None else all_codes(codes)
        near = scored = placed = None
        ids, scores, seconds = measurement.scan(sample)
        if vectors is not None:
            near = measurement.neighbours(vectors)
            scored = measurement.score_pairs(vectors, near[0])
            asked = self._query_ids(queries.numbers)
            placed = map_section(self.kernel, vectors, queries, asked, near)
        has_residuals = RESIDUAL in codes.store.layout.column_names
        hits = Hits(scores=scores, ids=original_ids(ids, codes.dropped))
        truth = self._truth(queries.numbers, near)
        width = min(self.settings.k, truth.ids.shape[1])
        return CodeFigures(
            settings=self.settings,
            queries=queries,
            query_ids=self._query_ids(queries.numbers),
            rows=sample.rows(codes),
            seconds=seconds,
            hits=hits,
            truth=truth,
            recall=recalls(hits, truth, [rank for rank in RANKS if rank <= width] or [1]),
            scored=scored,
            residuals=measurement.column(RESIDUAL, sample) if has_residuals else None,
            rows_map=placed,
        )

    def _truth(self, numbers: Ids, near: tuple[Ids, Values] | None) -> Hits:
        """Return the true neighbours of the drawn queries: given ones, or those of the sample."""
        if self.truth is None:
            assert near is not None
            return Hits(scores=near[1], ids=original_ids(near[0], self.codes.dropped))
        given = self.truth
        scores = None if given.scores is None else given.scores[numbers]
        return Hits(scores=scores, ids=given.ids[numbers])

    def _query_ids(self, numbers: Ids) -> Ids:
        """Return the numbers of the queries in their source, without rows that ingest dropped."""
        if self.queries is None:
            return original_ids(numbers, self.codes.dropped)
        name = self.queries.name
        return original_ids(numbers, open_vector_store(name).dropped) if is_store(name) else numbers

    def _write(self, measured: CodeFigures | None) -> int:
        """Write the page; return its bytes."""
        codes, spec, options = self.codes, spec_of(self.codes), self.options
        sections = [holds_section(codes, spec, self.vectors, self.absent)]
        if measured is not None:
            sections += [recall_section(codes, measured, options), speed_section(codes, measured)]
            if measured.scored is not None:
                sections.append(score_section(spec, self.kernel, measured.scored))
            if measured.rows_map is not None:
                sections.append(measured.rows_map)
            if measured.residuals is not None:
                sections.append(residual_section(measured.residuals))
            images = open_pictures(self.vectors, self.queries)
            if images is not None:
                given = self.truth is not None
                sections.append(gallery_section(images, measured, self.kernel, given=given))
        if self.certificate is not None:
            sections.append(proof_section(*self.certificate))
        kind = "bounds" if spec.bounds else "codes"
        title = f"{spec.name} {kind} of {counted(codes.rows, 'row')}"
        about = f"{spec.description} Defined in: {spec.source}."
        return write_page(options.out, title, [about], sections)


def open_codes_report(codes: CodeStore, options: ReportOptions) -> CodesReportTask:
    """Open the vectors, queries and true neighbours that codes are measured by.

    Raises
    ------
    MercoreError
        If an input does not exist, or does not fit the others.
    """
    store, queries, truth = codes.where, options.queries, options.truth
    codes.check_done()
    custom = custom_kernel_of(codes, options.kernel)
    of_codes = kernel_from_spec(codes.spec.kernel, custom)
    KernelOptions(name=options.kernel).check_same(of_codes, store)
    opened, absent = _open_vectors(
        codes, options.vectors, needed=queries is not None and truth is None
    )
    rows = None if queries is None else mapped_source(open_rows(queries), map_of(codes))
    if rows is not None:
        check_queries(rows, of_codes, codes.spec.dims, store)
    true = None if truth is None else open_hits(truth)
    if true is not None and rows is not None:
        _check_truth(codes, true, rows)
    settings, needed = _fitted(codes, (opened, rows, true), options.execution)
    return CodesReportTask(
        codes=codes,
        kernel=of_codes,
        custom=custom,
        vectors=opened,
        absent=absent,
        queries=rows,
        truth=true,
        certificate=_open_certificate(truth, codes, of_codes),
        settings=settings,
        needed=needed,
        options=options,
    )


def _open_vectors(
    codes: CodeStore, path: str | None, *, needed: bool
) -> tuple[Vectors | None, str]:
    """Return the vectors of codes; or None and the reason, unless they are named or ``needed``."""
    try:
        return open_source_vectors(codes, path), ""
    except MercoreError as error:
        if path is not None or needed:
            raise
        reason = render(error.message, in_options)
        echo(f"nothing is measured by the true kernel: {reason}", err=True)
        return None, reason


def _check_truth(codes: CodeStore, truth: Hits, queries: Source) -> None:
    """Refuse true neighbours of another number of queries, and of other rows."""
    if len(truth) != queries.shape[0]:
        raise ShapeError(
            f"{option('truth')}: found true neighbours of "
            f"{counted(len(truth), 'query', 'queries')}, expected {queries.shape[0]:,}, as "
            f"{queries.name} has. Fix: name the true neighbours of these queries."
        )
    last = int(original_ids(np.array([codes.rows - 1]), codes.dropped)[0])
    if truth.ids.max(initial=-1) > last:
        raise ShapeError(
            f"{option('truth')}: found row {truth.ids.max()}, expected at most {last}, the last "
            f"row of {codes.where}. Fix: name the true neighbours among these rows."
        )


def _open_certificate(
    truth: AnyHits | None, codes: CodeStore, kernel: Kernel
) -> Certificate | None:
    """Return the certificate beside the true neighbours; refuse one of other rows or kernels."""
    path = found_certificate(truth) if isinstance(truth, str) else None
    if path is None:
        return None
    arrays, about = read_certificate(path)
    expected = {"vectors": codes.spec.source, "kernel": kernel.spec()}
    for name, value in expected.items():
        if about.get(name) != value:
            raise InputError(
                f"{path}: found the certificate of {name} {about.get(name)}, expected {value}, "
                f"as {codes.where} has. Fix: name the true neighbours of these rows by this kernel."
            )
    return arrays, about


def _fitted(
    codes: CodeStore,
    measured_by: tuple[Vectors | None, Source | None, Hits | None],
    execution: Execution,
) -> tuple[SearchSettings, int]:
    """Return the settings of the measurements within the memory, and the bytes that they take.

    Raises
    ------
    InputError
        If the store has too few rows for a query and a neighbour.
    """
    vectors, queries, truth = measured_by
    if codes.rows < 2 and queries is None:
        raise InputError(
            f"{codes.where} holds {counted(codes.rows, 'row')}: expected at least 2, so that a row "
            f"has a neighbour. Fix: name queries with {option('queries')}."
        )
    sample = spread_codes(codes)
    most = min(sample.rows(codes), codes.rows if truth is None else truth.ids.shape[1])
    most -= queries is None
    sampled = None if vectors is None else sample.vectors(codes, vectors)
    nq = MAX_QUERIES if queries is None else min(MAX_QUERIES, queries.shape[0])

    def needs(settings: SearchSettings) -> int:
        least = search_bytes(codes, settings, queries=nq) + SCORE_BYTES
        least += nq * codes.spec.dims * 8
        if sampled is not None:
            least = max(least, search_bytes(sampled, settings, queries=nq) + SCORE_BYTES)
        return least

    keep = set() if execution.threads is None else {"threads"}
    largest = SearchSettings(
        k=max(1, min(FOUND, most)), batch=MAX_QUERIES, threads=execution.thread_count
    )
    settings = fitted(largest, needs, execution.memory, keep)
    return settings, needs(settings)

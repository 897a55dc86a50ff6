"""Measurements of a report: recall and speed of a scan, and scores beside true ones."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.gallery.page import Section
from mercore.jobs.gallery.report.sample import (
    ROW_SEED,
    CodeSample,
    Ids,
    QuerySample,
    SampledVectors,
)
from mercore.jobs.options import Report
from mercore.pipeline.encode import spec_of
from mercore.pipeline.encoders.encoder import BoundEncoder, draw_rows
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.scanners.scanner import Scanner
from mercore.pipeline.search.batch_search import SearchSettings, answer
from mercore.pipeline.search.rerank import true_scores
from mercore.pipeline.search.scan import OpenCodes, read_parts
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.pipeline.topk import TopK
from mercore.stores.formats.array import ArraySource
from mercore.stores.results.hits import Hits
from mercore.stores.rows import SourceVectors
from mercore.stores.vectors import gather

# Searched before the clock starts, to compile: enough rows that every thread filters.
WARMING_PARTS, WARMING_ROWS = 8, 1 << 14
SCORED_QUERIES, SCORED_ROWS, NEAR = 64, 2048, 10  # of the comparison of scores
Values = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class PairScores:
    """Scores of codes beside true ones, [nq, rows]; ``near`` marks true neighbours.

    Pairs of a query and itself are left out by ``kept``. ``bounds`` are upper bounds of the scores,
    if the codes prove answers.
    """

    approximate: Values
    bounds: Values | None
    true: Values
    near: NDArray[np.bool_]
    kept: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class CodeFigures:
    """The figures of codes: the ``hits`` of a scan of some ``rows``, and its ``seconds``.

    ``query_ids`` are the numbers of the queries in their source.
    """

    settings: SearchSettings
    queries: QuerySample
    query_ids: Ids
    rows: int
    seconds: float
    hits: Hits
    truth: Hits
    recall: list[Report]
    scored: PairScores | None
    residuals: Values | None
    rows_map: Section | None

    @property
    def ns_per_row_and_query(self) -> float:
        """The time of the scan per row and query, in nanoseconds."""
        return self.seconds / (self.rows * len(self.hits)) * 1e9


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Codes that are searched for queries, with their kernel, and batch and threads."""

    codes: OpenCodes
    kernel: Kernel
    queries: QuerySample
    settings: SearchSettings

    def scan(self, sample: CodeSample) -> tuple[Ids, Values, float]:
        """Search the codes of a sample for all queries, after a few parts that are not timed.

        Return the rows of the store that were found, int64[nq, k], their scores, and the seconds.
        """
        executor = ThreadExecutor(
            kernel=self.kernel, threads=self.settings.threads, codes=self.codes
        )
        found, seconds = [], 0.0
        with threadpool_limits(1):
            warm, rows = sample.parts[:WARMING_PARTS], min(sample.size, WARMING_ROWS)
            for values in self._batches():  # the number of queries decides what is compiled
                executor.batch(values).scan(warm, self._width, rows)
            for values in self._batches():
                began = time.perf_counter()
                found.append(executor.batch(values).scan(sample.parts, self._width, sample.size))
                seconds += time.perf_counter() - began
        return *self._joined(found), seconds

    def neighbours(self, vectors: SampledVectors) -> tuple[Ids, Values]:
        """Return the true k nearest rows of a sample, and their scores, [nq, k].

        They are rows of the store.
        """
        executor = ThreadExecutor(
            kernel=self.kernel, threads=self.settings.threads, vectors=vectors
        )
        with threadpool_limits(1):
            found = [
                answer(executor.batch(values), None, self._width, None)
                for values in self._batches()
            ]
        for each in found:
            each.ids = vectors.stored(each.ids)
        return self._joined(found)

    def score_pairs(self, vectors: SampledVectors, near: Ids) -> PairScores:
        """Score pairs by codes and by the kernel: near rows of a few queries, and drawn rows.

        ``near`` are true neighbours, rows of the store, int64[nq, k].
        """
        few = slice(0, SCORED_QUERIES)
        rng = np.random.default_rng(ROW_SEED)
        drawn = vectors.stored(draw_rows(rng, vectors.rows, min(SCORED_ROWS, vectors.rows)))
        near = near[few, :NEAR]
        rows = np.unique(np.concatenate([drawn, near[near >= 0]]))
        values, own = self.queries.values[few], self.queries.own
        raw = SourceVectors(ArraySource(gather(vectors.vectors, rows)))
        listed = np.broadcast_to(np.arange(len(rows)), (len(values), len(rows)))
        encoder, bounds = self.codes.encoder, None
        with threadpool_limits(1):
            approximate = self._scores(rows, encoder.scanner(values), len(values))
            if spec_of(self.codes.store).proves and isinstance(encoder, BoundEncoder):
                bounds = self._scores(rows, encoder.bound_scanner(values), len(values))
            true = true_scores(raw, self.kernel, values, listed, threads=self.settings.threads)
        kept = np.isfinite(approximate)
        if own is not None:
            kept &= rows[None, :] != own[few, None]
        is_near = (rows[None, :, None] == near[:, None, :]).any(axis=2)
        return PairScores(
            approximate=approximate, bounds=bounds, true=true, near=is_near, kept=kept
        )

    def column(self, name: str, sample: CodeSample) -> Values:
        """Return the numbers of a column of the codes, of some rows of each part of a sample."""
        each = min(sample.size, max(1, SCORED_ROWS * NEAR // len(sample.parts)))
        found = [
            np.array(columns[name][:each], np.float64)
            for _, columns in read_parts(self.codes, [name], iter(sample.parts))
        ]
        return np.concatenate(found)

    @property
    def _width(self) -> int:
        """The rows to find for each query: one more if its own row is among them."""
        return self.settings.k + (self.queries.own is not None)

    def _batches(self) -> Iterator[NDArray[Any]]:
        """Yield the queries batch by batch."""
        for start in range(0, len(self.queries.values), self.settings.batch):
            yield self.queries.values[start : start + self.settings.batch]

    def _joined(self, found: list[TopK]) -> tuple[Ids, Values]:
        """Return ids and scores of batches, best first, without the queries' own rows."""
        ids = np.concatenate([each.ids for each in found])
        scores = np.concatenate([each.scores for each in found])
        if self.queries.own is None:
            return ids, scores
        kept = ids != self.queries.own[:, None]
        kept[kept.all(axis=1), -1] = False
        return ids[kept].reshape(-1, self.settings.k), scores[kept].reshape(-1, self.settings.k)

    def _scores(self, rows: Ids, scanner: Scanner, nq: int) -> Values:
        """Return the scores of some rows by their codes, float32[nq, rows]; −inf for none.

        ``rows`` ascend.
        """
        part_rows = self.codes.store.store.layout.part_rows
        columns: dict[str, list[NDArray[Any]]] = {}
        parts = np.unique(rows // part_rows).tolist()
        for part, found in read_parts(self.codes, scanner.names, iter(parts)):
            wanted = rows[rows // part_rows == part] - part * part_rows
            for name, values in found.items():
                columns.setdefault(name, []).append(values[wanted])
        top_k = TopK(nq, len(rows), np.float32)
        scanner.scan({name: np.concatenate(values) for name, values in columns.items()}, 0, top_k)
        scores = np.full((nq, len(rows)), -np.inf, np.float32)
        of_query, places = np.nonzero(top_k.ids >= 0)
        scores[of_query, top_k.ids[of_query, places]] = top_k.scores[of_query, places]
        return scores

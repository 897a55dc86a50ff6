"""``mercore evaluate``: the recall of hits by each definition in use."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mercore.jobs.options import Report, parse_ranks, refuse_unused
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.verbs.inputs import KernelOptions, VerbOptions, VerbTask
from mercore.pipeline import recall as definitions
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.linear_map import mapped_source, mapped_vectors
from mercore.pipeline.search.batch_search import check_queries
from mercore.pipeline.search.rerank import true_scores
from mercore.stores.errors import InputError
from mercore.stores.formats import Sliced
from mercore.stores.formats.source import Source
from mercore.stores.results.hits import AnyHits, Hits, open_hits
from mercore.stores.rows import open_rows, open_vectors
from mercore.stores.vectors import Vectors, original_ids, stored_rows

BATCH = 4096  # queries that are scored at once


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(VerbOptions):
    """Options of evaluate; ``vectors``, ``queries`` and ``kernel`` score the hits again."""

    ranks: str | Iterable[int] | None = None
    vectors: str | None = None
    queries: str | Sliced | None = None
    kernel: KernelOptions = KernelOptions()  # noqa: RUF009 - it is frozen

    def check(self, target: str | None = None) -> None:
        """Refuse options of scoring again if one of them is missing."""
        kernel = self.kernel
        if self.vectors is None:
            unused = {"kernel": kernel.name, "gamma": kernel.gamma, "transform": kernel.transform}
            because = "it says how to re-score the hits from --vectors"
            refuse_unused(because, queries=self.queries, **unused, linear_map=kernel.linear_map)
        elif self.queries is None or kernel.name is None:
            raise InputError(
                "--vectors re-scores the hits: it needs --queries and --kernel too. Fix: name both."
            )


@dataclass(frozen=True, kw_only=True)
class Rescoring:
    """Hits to be scored by the true kernel: stored ``rows`` int64[nq, k] of the vectors."""

    vectors: Vectors
    queries: Source
    kernel: Kernel
    rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]

    def scores(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Return the true scores, float64[nq, k]."""
        nq = len(self.rows)
        batches = []
        for start in range(0, nq, BATCH):
            queries, rows = (
                self.queries.read(start, min(start + BATCH, nq)),
                self.rows[start : start + BATCH],
            )
            batches.append(
                true_scores(self.vectors, self.kernel, queries, rows, threads=available_cores())
            )
        return np.concatenate(batches)


@dataclass(frozen=True, kw_only=True)
class EvaluateTask(VerbTask):
    """An evaluation with both sets of hits open."""

    returned: Hits
    truth: Hits
    ranks: list[int] | None
    rescoring: Rescoring | None
    names: Report

    def run(self) -> Report:
        """Return every definition of recall at every rank."""
        returned = self.returned
        if self.rescoring is not None:
            returned = Hits(scores=self.rescoring.scores(), ids=returned.ids)
        recall = recalls(returned, self.truth, self.ranks, exact_scores=self.rescoring is not None)
        return {**self.names, "queries": len(returned.ids), "recall": recall}


def open_evaluate(hits: AnyHits, truth: AnyHits, options: EvaluateOptions) -> EvaluateTask:
    """Open both sets of hits, and the inputs to score them again.

    Raises
    ------
    MercoreError
        If an input does not exist, or does not fit the others.
    """
    options.check()
    returned = open_hits(hits)
    named = {"hits": hits, "truth": truth}
    return EvaluateTask(
        returned=returned,
        truth=open_hits(truth),
        ranks=None if options.ranks is None else parse_ranks(options.ranks),
        rescoring=_open_rescoring(returned, options) if options.vectors is not None else None,
        names={name: value for name, value in named.items() if isinstance(value, str)},
    )


def recalls(
    returned: Hits, truth: Hits, ranks: list[int] | None = None, *, exact_scores: bool = False
) -> list[Report]:
    """Return one mapping per definition of recall and rank."""
    result = definitions.evaluate(returned, truth, ranks, exact_scores=exact_scores)
    return [vars(row) for row in result.recalls]


def _open_rescoring(hits: Hits, options: EvaluateOptions) -> Rescoring:
    """Open the vectors and queries of hits; refuse those of other hits."""
    assert options.vectors is not None
    assert options.queries is not None
    linear_map = options.kernel.open_map()
    vectors = mapped_vectors(open_vectors(options.vectors), linear_map)
    queries = mapped_source(open_rows(options.queries), linear_map)
    kernel, nq = options.kernel.open(vectors), queries.shape[0]
    if len(hits.ids) != nq:
        raise InputError(
            f"{queries.name} holds {nq} queries: expected {len(hits.ids)}, as the hits have. "
            "Fix: name their queries."
        )
    stored = stored_rows(hits.ids, vectors.dropped)
    if stored.max(initial=-1) >= vectors.rows:
        last = original_ids(np.array([vectors.rows - 1]), vectors.dropped)[0]
        raise InputError(
            f"the hits name row {hits.ids.max()}: expected at most {last}, the last row of "
            f"{options.vectors}. Fix: name the vectors that were searched."
        )
    check_queries(queries, kernel, vectors.dims, options.vectors)
    return Rescoring(vectors=vectors, queries=queries, kernel=kernel, rows=stored)

"""Exact answers to a batch of queries, and the scored pairs from which they are made."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, float32_below
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.fetch import FetchRows
from mercore.pipeline.search.ties import Candidates, resolve_ties
from mercore.pipeline.topk import TopK


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactAnswers:
    """The exact top k of each query of a batch, and the figures that prove it.

    ``ids`` int64[nq, k] are rows of the store; ``scores`` float64[nq, k] descend; ties go to the
    lower row. ``greatest`` float64[nq] is the greatest upper bound of a row whose true score was
    not computed, −inf if every row was scored. It is below the k-th computed score by more than
    the errors of two computed scores, and so below the k-th real score. ``evaluated`` int64[nq]
    counts the rows that were scored, ``ties`` int64[nq] those beyond the k that tie with the k-th.
    """

    ids: NDArray[np.int64]
    scores: Float64
    greatest: Float64
    evaluated: NDArray[np.int64]
    ties: NDArray[np.int64]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Scored:
    """The pairs of a batch whose true score was computed, by an exact scorer."""

    def __init__(self, nq: int, k: int, scorer: ExactScorer) -> None:
        self.top_k = TopK(nq, k, np.float64)
        self._scorer = scorer
        self.counts = np.zeros(nq, np.int64)
        self._pairs: list[tuple[NDArray[np.int64], NDArray[np.int64], Float64]] = []

    def add(self, queries: NDArray[np.int64], rows: NDArray[np.int64], scores: Float64) -> None:
        """Add pairs, each for the first time; a score of −inf is known to be below ``least``."""
        self.counts += np.bincount(queries, minlength=len(self.counts))
        kept = scores > -np.inf
        pairs = queries[kept], rows[kept], scores[kept]
        self.top_k.insert(*pairs)
        self._pairs.append(pairs)

    @property
    def least(self) -> Float32:
        """The bound that a row must reach to be in, or tie with, the query's top k, float32[nq]."""
        return float32_below(self._least)

    @property
    def _least(self) -> Float64:
        """The computed score that a row needs to be in, or tie with, the top k, float64[nq]."""
        kth = self.top_k.kth
        return kth - self._scorer.slack(kth)

    def answers(
        self, scorer: ExactScorer, queries: NDArray[Any], greatest: Float64, raw: FetchRows
    ) -> ExactAnswers:
        """Return the exact answers to raw queries, dtype[nq, d].

        Parameters
        ----------
        greatest : float64[nq], the greatest bounds of the rows that were not added
        raw : fetches the raw rows by which near-equal scores are ordered
        """
        of_query, rows, scores = (
            np.concatenate(values) for values in zip(*self._pairs, strict=True)
        )
        close = scores >= self._least[of_query]
        candidates = Candidates(of_query[close], rows[close], scores[close])
        resolved = resolve_ties(scorer, queries, candidates, self.top_k.ids.shape[1], raw)
        return ExactAnswers(
            ids=resolved.ids,
            scores=resolved.scores,
            greatest=greatest,
            evaluated=self.counts,
            ties=resolved.ties,
        )


def merge_answers(
    selected: NDArray[np.bool_], answers: ExactAnswers, others: ExactAnswers
) -> ExactAnswers:
    """Return ``answers`` to the selected queries, bool[nq], and ``others`` to the rest as one."""
    merged = {}
    for name, values in answers.arrays().items():
        merged[name] = np.empty((len(selected), *values.shape[1:]), values.dtype)
        merged[name][selected], merged[name][~selected] = values, others.arrays()[name]
    return ExactAnswers(**merged)


def concatenate_answers(batches: Sequence[ExactAnswers]) -> ExactAnswers:
    """Return the answers of consecutive batches as the answers to all their queries."""
    arrays = [answers.arrays() for answers in batches]
    return ExactAnswers(
        **{name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}
    )


def select_answers(answers: ExactAnswers, selected: NDArray[np.bool_]) -> ExactAnswers:
    """Return the answers to the selected queries, bool[nq]."""
    return ExactAnswers(**{name: values[selected] for name, values in answers.arrays().items()})

"""Exact answers, each with what proves it, and the pairs that such an answer comes from."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.rerank import FetchRows
from mercore.pipeline.search.ties import Candidates, decide
from mercore.pipeline.topk import TopK


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactAnswers:
    """The exact k best rows of a batch of queries, and what proves each.

    ``ids`` int64[nq, k] rows of the store; ``scores`` float64[nq, k], descending; ties go to the lower row. No row
    whose true kernel was not computed has an upper bound above ``greatest`` float64[nq], which lies below the k-th real
    score: by more than two computed scores are off together, from the k-th computed one; −inf where every row was
    scored.
    ``evaluated`` int64[nq] counts the rows that were, ``ties`` int64[nq] those beyond the k that tie with the k-th.
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
    """The pairs of a batch whose true score was computed: the k-th scores, and all that may be among the k.

    Parameters
    ----------
    slack : float
        The most that two computed scores are off together.
    """

    def __init__(self, nq: int, k: int, slack: float) -> None:
        self.best = TopK(nq, k, np.float64)
        self.slack = slack
        self.counts = np.zeros(nq, np.int64)
        self._pairs: list[tuple[NDArray[np.int64], NDArray[np.int64], Float64]] = []

    def add(self, queries: NDArray[np.int64], rows: NDArray[np.int64], scores: Float64) -> None:
        """Take in pairs, each for the first time; a score of −inf is known to be below ``least``."""
        self.counts += np.bincount(queries, minlength=len(self.counts))
        kept = scores > -np.inf
        pairs = queries[kept], rows[kept], scores[kept]
        self.best.insert(*pairs)
        self._pairs.append(pairs)

    @property
    def least(self) -> Float32:
        """The bound, float32[nq], that a row must reach to be among the k best or tie with the last of them."""
        return below(self.best.kth - self.slack)

    def proved(self, truth: ExactScorer, queries: NDArray[Any], greatest: Float64, raw: FetchRows) -> ExactAnswers:
        """Return the proofs of raw queries [nq, d]; ``greatest`` are the greatest bounds of what was not taken in.

        ``raw`` returns raw rows, for ties to be told apart.
        """
        of, rows, scores = (np.concatenate(values) for values in zip(*self._pairs, strict=True))
        close = scores >= (self.best.kth - self.slack)[of]
        found = Candidates(of[close], rows[close], scores[close])
        decided = decide(truth, queries, found, self.best.ids.shape[1], raw)
        return ExactAnswers(
            ids=decided.ids, scores=decided.scores, greatest=greatest, evaluated=self.counts, ties=decided.ties
        )


def spliced(kept: NDArray[np.bool_], proved: ExactAnswers, others: ExactAnswers) -> ExactAnswers:
    """Return the proofs of all queries, of those of the kept ones and of the others."""
    whole = {}
    for name, values in proved.arrays().items():
        whole[name] = np.empty((len(kept), *values.shape[1:]), values.dtype)
        whole[name][kept], whole[name][~kept] = values, others.arrays()[name]
    return ExactAnswers(**whole)


def joined(proofs: Sequence[ExactAnswers]) -> ExactAnswers:
    """Return the proofs of batch after batch as those of all queries."""
    arrays = [proved.arrays() for proved in proofs]
    return ExactAnswers(**{name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]})


def taken(proved: ExactAnswers, kept: NDArray[np.bool_]) -> ExactAnswers:
    """Return the proofs of the kept queries."""
    return ExactAnswers(**{name: values[kept] for name, values in proved.arrays().items()})


def below(values: NDArray[np.floating[Any]]) -> Float32:
    """Return the greatest float32 that is below each value."""
    with np.errstate(over="ignore"):  # −∞ rules nothing out
        return np.nextafter(values.astype(np.float32), np.float32(-np.inf))

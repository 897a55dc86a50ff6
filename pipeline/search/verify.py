"""Verify anyone's neighbours: the true scores of the claimed rows are what every other row's bound must stay below."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.kernels.decimals import decimal_score, tie_at
from mercore.pipeline.search.answers import ExactAnswers, below, spliced
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.executor import true_scores
from mercore.pipeline.search.rerank import fetch

ROUNDED = 1e-5  # of a score that someone computed in float32

PROVED, TIED, REFUTED = "proved", "tied", "refuted"
Ids = NDArray[np.int64]
Claimed = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Verdicts:
    """What is true of claims about a batch of queries, and the exact answers.

    ``ranks`` int64[nq] is the first rank at which a claim is wrong, −1 where none is; what belongs there is in
    ``proved``. ``tied`` bool[nq] says that the claim is right and others would be, for their scores tie.
    """

    proved: ExactAnswers
    ranks: Ids
    tied: NDArray[np.bool_]

    def words(self) -> list[str]:
        """Return "proved", "tied" or "refuted" for each query."""
        pairs = zip(self.ranks, self.tied, strict=True)
        return [REFUTED if rank >= 0 else TIED if tied else PROVED for rank, tied in pairs]


def verify(search: ExactSearch, queries: NDArray[Any], claimed: Ids, scores: Claimed | None = None) -> Verdicts:
    """Return whether claimed rows are the k of highest real score, in descending order, and where they are not.

    Parameters
    ----------
    queries : dtype[nq, d], raw rows
    claimed : int64[nq, k], −1 where the claim names no row of the store
    scores : floating[nq, k], optional
        What is claimed of their scores, by the kernel that the search ranks by: none is believed, right ones save time.
    """
    k = claimed.shape[1]
    repeated = _repeated(claimed)
    whole = np.asarray(~(repeated | (claimed < 0)).any(axis=1))
    if whole.all():
        proved = search.prove(queries, k, seeds=claimed, least=_said(scores))
    else:
        proved = search.prove(queries[~whole], k)
        if whole.any():
            proved = spliced(whole, search.prove(queries[whole], k, seeds=claimed[whole]), proved)
    other = claimed != proved.ids
    in_question = other & ~repeated & (claimed >= 0)
    wrong = repeated | (other & ~_equally_good(search, queries, claimed, proved, in_question))
    ranks = np.where(wrong.any(axis=1), wrong.argmax(axis=1), -1)
    return Verdicts(proved=proved, ranks=ranks, tied=(proved.ties > 0) | other.any(axis=1))


def _said(scores: Claimed | None) -> Float32 | None:
    """Return what the k-th scores are said to reach, less what may have been rounded; None if they are no scores."""
    if scores is None:
        return None
    kth = scores[:, -1].astype(np.float64)
    if not (np.abs(kth) <= 1 + ROUNDED).all():  # which they are not where one is no number
        return None
    return below(kth - ROUNDED)


def _repeated(claimed: Ids) -> NDArray[np.bool_]:
    """Return where a claim names a row that it named before, bool[nq, k]."""
    order = np.argsort(claimed, axis=1, kind="stable")
    ranked = np.take_along_axis(claimed, order, axis=1)
    again = np.zeros(claimed.shape, np.bool_)
    np.put_along_axis(again, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1)
    return again


def _equally_good(
    search: ExactSearch, queries: NDArray[Any], claimed: Ids, proved: ExactAnswers, other: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which of the other rows that are claimed have the very score of the exact one, bool[nq, k]."""
    truth = search.truth
    scores = true_scores(search.executor.batch(queries), np.where(other, claimed, -1))
    near = np.abs(scores - proved.scores) <= truth.slack
    pairs = np.argwhere(near)
    if not len(pairs):
        return near
    ours, theirs = proved.ids[near], claimed[near]
    chosen, at = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    raw = fetch(truth.vectors, chosen, threads=truth.threads)
    for (query, rank), one, another in zip(pairs, at[: len(ours)], at[len(ours) :], strict=True):
        first, second = (decimal_score(truth.kernel, raw[row], queries[query]) for row in (one, another))
        if first is not None and second is not None:  # else float64 is all that there is to tell them apart
            near[query, rank] = abs(first - second) <= tie_at(truth.kernel, max(first, second))
    return near

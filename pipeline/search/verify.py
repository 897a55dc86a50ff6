"""Verify claimed neighbours: compare them with the answers of an exact search."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, float32_below
from mercore.pipeline.kernels.decimals import decimal_score, tie_at
from mercore.pipeline.search.answers import ExactAnswers, merge_answers
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.fetch import fetch
from mercore.pipeline.search.rerank import scores_of_lists

ROUNDED = 1e-5  # largest rounding error of a claimed score that was computed in float32

PROVED, TIED, REFUTED = "proved", "tied", "refuted"
Ids = NDArray[np.int64]
Claimed = NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Verdicts:
    """The verdicts on claims about a batch of queries, and the exact answers.

    ``ranks`` int64[nq] is the first rank at which a claim is wrong, −1 for a right claim.
    ``tied`` bool[nq] says that the claim is right and another would be too, as scores tie.
    """

    answers: ExactAnswers
    ranks: Ids
    tied: NDArray[np.bool_]

    def words(self) -> list[str]:
        """Return "proved", "tied" or "refuted" for each query."""
        pairs = zip(self.ranks, self.tied, strict=True)
        return [REFUTED if rank >= 0 else TIED if tied else PROVED for rank, tied in pairs]


def verify(
    search: ExactSearch, queries: NDArray[Any], claimed: Ids, scores: Claimed | None = None
) -> Verdicts:
    """Return whether claimed rows are the exact top k, in order, and where they are not.

    Parameters
    ----------
    queries : dtype[nq, d], raw rows
    claimed : int64[nq, k], −1 where the claim names no row of the store
    scores : floating[nq, k], optional
        The claimed scores, by the kernel that the search ranks by. They are checked, never
        trusted in the verdict; right ones save time.
    """
    k = claimed.shape[1]
    repeated = _repeated(claimed)
    whole = np.asarray(~(repeated | (claimed < 0)).any(axis=1))
    if whole.all():
        answers = search.prove(queries, k, seeds=claimed, least=_claimed_kth(scores))
    else:
        answers = search.prove(queries[~whole], k)
        if whole.any():
            answers = merge_answers(
                whole, search.prove(queries[whole], k, seeds=claimed[whole]), answers
            )
    other = claimed != answers.ids
    in_question = other & ~repeated & (claimed >= 0)
    wrong = repeated | (other & ~_equally_good(search, queries, claimed, answers, in_question))
    ranks = np.where(wrong.any(axis=1), wrong.argmax(axis=1), -1)
    return Verdicts(answers=answers, ranks=ranks, tied=(answers.ties > 0) | other.any(axis=1))


def _claimed_kth(scores: Claimed | None) -> Float32 | None:
    """Return the claimed k-th scores, less a rounding error; None if they cannot be scores."""
    if scores is None:
        return None
    kth = scores[:, -1].astype(np.float64)
    if not (np.abs(kth) <= 1 + ROUNDED).all():  # false for NaN too
        return None
    return float32_below(kth - ROUNDED)


def _repeated(claimed: Ids) -> NDArray[np.bool_]:
    """Return where a claim names a row for a second time, bool[nq, k]."""
    order = np.argsort(claimed, axis=1, kind="stable")
    ranked = np.take_along_axis(claimed, order, axis=1)
    again = np.zeros(claimed.shape, np.bool_)
    np.put_along_axis(again, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1)
    return again


def _equally_good(
    search: ExactSearch,
    queries: NDArray[Any],
    claimed: Ids,
    answers: ExactAnswers,
    other: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return which ``other`` claimed rows tie with the exact row of their rank, bool[nq, k]."""
    scorer = search.scorer
    scores = scores_of_lists(np.where(other, claimed, -1), search.executor.batch(queries).scores)
    near = np.abs(scores - answers.scores) <= scorer.slack(answers.scores)
    pairs = np.argwhere(near)
    if not len(pairs):
        return near
    ours, theirs = answers.ids[near], claimed[near]
    rows, positions = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    raw = fetch(scorer.vectors.look_up(rows), threads=scorer.threads)
    for (query, rank), our, their in zip(
        pairs, positions[: len(ours)], positions[len(ours) :], strict=True
    ):
        first, second = (
            decimal_score(scorer.kernel, raw[row], queries[query]) for row in (our, their)
        )
        # without a decimal formula, float64 is the last word
        if first is not None and second is not None:
            near[query, rank] = abs(first - second) <= tie_at(scorer.kernel, max(first, second))
    return near

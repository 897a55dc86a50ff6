"""Recall of returned neighbours against the true ones, by four named definitions."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mercore.pipeline.measures.checks import (
    Ids,
    Scores,
    check_descending,
    check_rank,
    checked_pair,
    checked_ranks,
    checked_scores,
    query_blocks,
)
from mercore.pipeline.measures.counts import count_shared, first_mentions


class Neighbours(Protocol):
    """Neighbours of each query, best first."""

    @property
    def scores(self) -> Scores | None:
        """Float32 or float64 [nq, k], larger is nearer; None where only ids are known."""
        ...

    @property
    def ids(self) -> Ids:
        """Int64 [nq, k]; -1 marks an absent neighbour."""
        ...


@dataclass(frozen=True, kw_only=True)
class Recall:
    """The value at ``rank`` of a measure, named by its ``definition``, over all queries."""

    definition: str
    rank: int
    value: float
    queries: int


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The recalls by definition (k-recall, texmex, aska, tie-aware), then by rank."""

    queries: int
    recalls: tuple[Recall, ...]


def evaluate(
    returned: Neighbours,
    truth: Neighbours,
    ranks: Iterable[int] | None = None,
    *,
    exact_scores: bool = False,
) -> Evaluation:
    """Compute every definition of recall at every rank that the data allow.

    A definition is left out at a rank R for which neighbours are missing: ``texmex`` needs R
    returned neighbours, ``aska`` R true ones, the two others both. ``tie-aware`` also needs the
    scores of both sides, and ``exact_scores``.

    Parameters
    ----------
    returned, truth : Neighbours
        ``ids`` int64[nq, k] and int64[nq, kt], best first; ``scores`` of the same shapes, or None.
    ranks : iterable of int, optional
        The ranks R. [default: 1, 10, 100 and 1000, up to the neighbours of the longer side]
    exact_scores : bool
        Whether ``returned.scores`` are values of the true kernel: scores of codes are not.

    Returns
    -------
    Evaluation

    Raises
    ------
    ShapeError
        If the query counts differ, a side is empty or not 2-D, or a rank is below 1 or above both
        widths.
    InputError
        If ids are not integers or below -1, or scores are not finite, or the true ones rise.
    """
    returned_ids, true_ids = checked_pair(returned.ids, truth.ids)
    width, true_width = returned_ids.shape[1], true_ids.shape[1]
    ranks = checked_ranks(ranks, max(width, true_width))
    both = min(width, true_width)
    measures: list[tuple[str, int, Callable[[int], float]]] = [
        ("k-recall", both, lambda rank: k_recall(returned_ids, true_ids, rank)),
        ("texmex", width, lambda rank: texmex_recall(returned_ids, true_ids, rank)),
        ("aska", true_width, lambda rank: aska_recall(returned_ids, true_ids, rank)),
    ]
    if exact_scores and returned.scores is not None and truth.scores is not None:
        measures.append(("tie-aware", both, lambda rank: tie_aware_recall(returned, truth, rank)))
    queries = len(true_ids)
    recalls = tuple(
        Recall(definition=definition, rank=rank, value=measure(rank), queries=queries)
        for definition, limit, measure in measures
        for rank in ranks
        if rank <= limit
    )
    return Evaluation(queries=queries, recalls=recalls)


def k_recall(returned: Ids, true: Ids, k: int) -> float:
    """Return k-recall@k by ids: mean over queries of |returned top k ∩ true top k| / k.

    This is the recall of big-ann-benchmarks with ties not counted (Simhadri et al. 2022) and of
    ann-benchmarks (Aumüller, Bernhardsson & Faithfull 2020) where no scores tie. An id that a
    result repeats counts once.

    Parameters
    ----------
    returned, true : int64[nq, ≥ k]
        Best first; -1 marks an absent neighbour and matches nothing.
    k : int
        How many of the first are compared, ≥ 1.

    Raises
    ------
    ShapeError
        If the query counts differ, a side is empty or not 2-D, or ``k`` is not 1 to the width of
        both.
    InputError
        If ids are not integers, or below -1.
    """
    returned, true = checked_pair(returned, true)
    check_rank(k, returned=returned, true=true)
    hits = sum(
        count_shared(returned[rows, :k], true[rows, :k]) for rows in query_blocks(len(true), 2 * k)
    )
    return hits / (len(true) * k)


def texmex_recall(returned: Ids, true: Ids, r: int) -> float:
    """Return R@r: the share of queries whose true first neighbour is among the first r returned.

    The definition of Jégou, Douze & Schmid (TPAMI 2011) for the TEXMEX sets, also used by
    Bourrier et al. (JMIV 2015) and Jiang, Que & Kulis (2014).

    Parameters
    ----------
    returned : int64[nq, ≥ r]
        Best first; -1 marks an absent neighbour and matches nothing.
    true : int64[nq, ≥ 1]
        Best first, in the same form; only the first is read.
    r : int
        The rank, ≥ 1.

    Raises
    ------
    ShapeError
        If the query counts differ, a side is empty or not 2-D, or ``r`` is not 1 to the width of
        ``returned``.
    InputError
        If ids are not integers, or below -1.
    """
    returned, true = checked_pair(returned, true)
    check_rank(r, returned=returned)
    return _count_found(true[:, :1], returned[:, :r]) / len(true)


def aska_recall(returned: Ids, true: Ids, r: int) -> float:
    """Return Recall@R of Davis, Balzer & Soatto (CVPR 2014, §3.2).

    It is the share of queries whose first returned row is among the true first r: the mirror image
    of ``texmex_recall``, and equal to it at r = 1.

    Parameters
    ----------
    returned : int64[nq, ≥ 1]
        Best first; -1 marks an absent neighbour and matches nothing. Only the first is read.
    true : int64[nq, ≥ r]
        Best first, in the same form.
    r : int
        The rank, ≥ 1.

    Raises
    ------
    ShapeError
        If the query counts differ, a side is empty or not 2-D, or ``r`` is not 1 to the width of
        ``true``.
    InputError
        If ids are not integers, or below -1.
    """
    returned, true = checked_pair(returned, true)
    check_rank(r, true=true)
    return _count_found(returned[:, :1], true[:, :r]) / len(true)


def tie_aware_recall(returned: Neighbours, true: Neighbours, k: int) -> float:
    """Return the mean over queries of |{i in returned top k: K(x, i) ≥ k-th true score}| / k.

    The recall of ann-benchmarks (Aumüller, Bernhardsson & Faithfull 2020) with ε = 0: every row
    that ties with the k-th true neighbour counts. big-ann-benchmarks counts ties by widening the
    true ids instead.

    ``returned.scores`` must be values of the true kernel: scores of codes are approximate, so score
    the returned ids by the kernel first. Both sides are compared at the lower of their two
    precisions, so that rounding to float32 in a file loses no true neighbour.

    Parameters
    ----------
    returned : Neighbours
        ``ids`` int64[nq, ≥ k]; -1 never counts, and a repeated id counts once, where it stands
        first.
    true : Neighbours
        Scores descend. With fewer than k present, the last one present is the threshold.
    k : int
        How many of the first are compared, ≥ 1.

    Raises
    ------
    ShapeError
        If shapes differ, a side is empty or not 2-D, or ``k`` is not 1 to the width of both.
    InputError
        If a side has no scores, the score of a present row is not finite, or true scores rise.
    """
    returned_ids, true_ids = checked_pair(returned.ids, true.ids)
    check_rank(k, returned=returned_ids, true=true_ids)
    scores = checked_scores(returned.scores, returned_ids, "returned")
    true_scores = checked_scores(true.scores, true_ids, "true")
    precision = min(scores.dtype, true_scores.dtype, key=lambda dtype: dtype.itemsize)
    hits = 0
    for rows in query_blocks(len(true_ids), 2 * k):
        present, top_k = true_ids[rows, :k] >= 0, true_scores[rows, :k].astype(precision)
        check_descending(top_k, present, rows.start)
        threshold = np.where(present, top_k, np.inf).min(axis=1, keepdims=True)
        hits += _count_reaching(
            returned_ids[rows, :k], scores[rows, :k].astype(precision), threshold
        )
    return hits / (len(true_ids) * k)


def _count_found(first: Ids, among: Ids) -> int:
    """Count the queries whose ``first`` [nq, 1] is present and in its row of ``among`` [nq, r]."""
    blocks = query_blocks(*among.shape)
    return sum(
        int(((first[rows] == among[rows]) & (first[rows] >= 0)).any(axis=1).sum())
        for rows in blocks
    )


def _count_reaching(ids: Ids, scores: Scores, threshold: Scores) -> int:
    """Count the distinct present ids whose first score reaches the threshold of their row."""
    return int((first_mentions(ids) & (scores >= threshold)).sum())

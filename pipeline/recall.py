"""Recall of returned neighbours against the true ones, by each definition in use, under a name of its own."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import InputError, ShapeError

BLOCK_IDS = 1 << 20  # ids of one block of queries: bounds the scratch memory to some tens of MB
DEFAULT_RANKS = (1, 10, 100, 1000)

Ids = NDArray[np.int64]
Scores = NDArray[np.floating[Any]]


class Neighbours(Protocol):
    """What is compared: neighbours of each query, best first."""

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
    """One figure: the recall at ``rank`` by one ``definition``, over all queries."""

    definition: str
    rank: int
    value: float
    queries: int


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The recalls that the data allow, by definition (k-recall, texmex, aska, tie-aware), then by rank."""

    queries: int
    recalls: tuple[Recall, ...]


def evaluate(
    returned: Neighbours, truth: Neighbours, ranks: Iterable[int] | None = None, *, exact_scores: bool = False
) -> Evaluation:
    """Compute every definition of recall at every rank that the data allow.

    A definition is left out at a rank that its side does not hold: ``texmex`` needs R returned neighbours, ``aska`` R
    true ones, the two others both. ``tie-aware`` also needs both sides' scores and ``exact_scores``.

    Parameters
    ----------
    returned, truth : Neighbours
        ``ids`` int64[nq, k] and int64[nq, kt], best first; ``scores`` of the same shapes, or None.
    ranks : iterable of int, optional
        The ranks R; those of 1, 10, 100 and 1000 that either side holds if not given.
    exact_scores : bool
        Whether ``returned.scores`` are values of the true kernel; scores of codes are not.

    Returns
    -------
    Evaluation

    Raises
    ------
    ShapeError
        If the query counts differ, a side is empty or not 2-D, or a rank is below 1 or above what both sides hold.
    InputError
        If ids are not integers or below -1, or scores are not finite, or the true ones rise.
    """
    returned_ids, true_ids = _checked_pair(returned.ids, truth.ids)
    held, true_held = returned_ids.shape[1], true_ids.shape[1]
    wanted = _wanted_ranks(ranks, max(held, true_held))
    both = min(held, true_held)
    measures: list[tuple[str, int, Callable[[int], float]]] = [
        ("k-recall", both, lambda rank: k_recall(returned_ids, true_ids, rank)),
        ("texmex", held, lambda rank: texmex_recall(returned_ids, true_ids, rank)),
        ("aska", true_held, lambda rank: aska_recall(returned_ids, true_ids, rank)),
    ]
    if exact_scores and returned.scores is not None and truth.scores is not None:
        measures.append(("tie-aware", both, lambda rank: tie_aware_recall(returned, truth, rank)))
    queries = len(true_ids)
    recalls = tuple(
        Recall(definition=definition, rank=rank, value=measure(rank), queries=queries)
        for definition, limit, measure in measures
        for rank in wanted
        if rank <= limit
    )
    return Evaluation(queries=queries, recalls=recalls)


def k_recall(returned: Ids, true: Ids, k: int) -> float:
    """Return k-recall@k by ids: mean over queries of |returned top k ∩ true top k| / k.

    This is the recall of big-ann-benchmarks with ties not counted (Simhadri et al. 2022) and of ann-benchmarks
    (Aumüller, Bernhardsson & Faithfull 2020) where no scores tie. An id that a result repeats counts once.

    Parameters
    ----------
    returned, true : int64[nq, ≥ k]
        Best first; -1 marks an absent neighbour and matches nothing.
    k : int
        How many of the first are compared, ≥ 1.

    Raises
    ------
    ShapeError
        If the query counts differ, a side is empty or not 2-D, or ``k`` is below 1 or above what a side holds.
    InputError
        If ids are not integers, or below -1.
    """
    returned, true = _checked_pair(returned, true)
    _check_rank(k, returned=returned, true=true)
    hits = sum(_shared(returned[rows, :k], true[rows, :k]) for rows in _query_blocks(len(true), 2 * k))
    return hits / (len(true) * k)


def texmex_recall(returned: Ids, true: Ids, r: int) -> float:
    """Return R@r: the share of queries whose true first neighbour is among the first r returned.

    The definition of Jégou, Douze & Schmid (TPAMI 2011) with the TEXMEX sets, and of Bourrier et al. (JMIV 2015) and
    Jiang, Que & Kulis (2014) after them.

    Parameters
    ----------
    returned : int64[nq, ≥ r]
        Best first; -1 marks an absent neighbour and matches nothing.
    true : int64[nq, ≥ 1]
        The same; only the first is read.
    r : int
        The rank, ≥ 1.

    Raises
    ------
    ShapeError
        If the query counts differ, a side is empty or not 2-D, or ``r`` is below 1 or above what is returned.
    InputError
        If ids are not integers, or below -1.
    """
    returned, true = _checked_pair(returned, true)
    _check_rank(r, returned=returned)
    return _found(true[:, :1], returned[:, :r]) / len(true)


def aska_recall(returned: Ids, true: Ids, r: int) -> float:
    """Return Recall@R of Davis, Balzer & Soatto (CVPR 2014, §3.2): the first returned row is among the true first r.

    The share of queries for which that holds: the mirror image of ``texmex_recall``, and the same at r = 1.

    Parameters
    ----------
    returned : int64[nq, ≥ 1]
        Best first; -1 marks an absent neighbour and matches nothing. Only the first is read.
    true : int64[nq, ≥ r]
        The same.
    r : int
        The rank, ≥ 1.

    Raises
    ------
    ShapeError
        If the query counts differ, a side is empty or not 2-D, or ``r`` is below 1 or above what the truth holds.
    InputError
        If ids are not integers, or below -1.
    """
    returned, true = _checked_pair(returned, true)
    _check_rank(r, true=true)
    return _found(returned[:, :1], true[:, :r]) / len(true)


def tie_aware_recall(returned: Neighbours, true: Neighbours, k: int) -> float:
    """Return the mean over queries of |{i in returned top k: K(x, i) ≥ k-th true score}| / k.

    The recall of ann-benchmarks (Aumüller, Bernhardsson & Faithfull 2020) with ε = 0: rows that tie with the k-th true
    neighbour are all as good as it. big-ann-benchmarks takes ties into account by widening the true ids instead.

    ``returned.scores`` must be values of the true kernel. Where the search's own scores are approximate (those of
    codes), score the returned ids again with the kernel first and give those: an approximate score compared with a true
    one says nothing. Both sides are compared at the coarser of their two precisions, so that a true neighbour whose
    score was stored as float32 is not lost to that rounding.

    Parameters
    ----------
    returned : Neighbours
        ``ids`` int64[nq, ≥ k]; -1 never counts, and a repeated id counts once, where it stands first.
    true : Neighbours
        Scores descending. Where fewer than k are present, the last one present is the threshold.
    k : int
        How many of the first are compared, ≥ 1.

    Raises
    ------
    ShapeError
        If shapes differ, a side is empty or not 2-D, or ``k`` is below 1 or above what a side holds.
    InputError
        If a side has no scores, a present row's score is not finite, or true scores rise (they may be distances).
    """
    returned_ids, true_ids = _checked_pair(returned.ids, true.ids)
    _check_rank(k, returned=returned_ids, true=true_ids)
    scores = _checked_scores(returned.scores, returned_ids, "returned")
    true_scores = _checked_scores(true.scores, true_ids, "true")
    precision = min(scores.dtype, true_scores.dtype, key=lambda dtype: dtype.itemsize)
    hits = 0
    for rows in _query_blocks(len(true_ids), 2 * k):
        present, best = true_ids[rows, :k] >= 0, true_scores[rows, :k].astype(precision)
        _check_descending(best, present, rows.start)
        threshold = np.where(present, best, np.inf).min(axis=1, keepdims=True)
        hits += _reaching(returned_ids[rows, :k], scores[rows, :k].astype(precision), threshold)
    return hits / (len(true_ids) * k)


def _found(first: Ids, among: Ids) -> int:
    """Count the queries whose ``first`` [nq, 1] is present and in its row of ``among`` [nq, r]."""
    blocks = _query_blocks(*among.shape)
    return sum(int(((first[rows] == among[rows]) & (first[rows] >= 0)).any(axis=1).sum()) for rows in blocks)


def _shared(returned: Ids, true: Ids) -> int:
    """Count the distinct ids that each row of one side shares with its row of the other, over all rows."""
    merged = np.sort(np.concatenate([_distinct(returned), _distinct(true)], axis=1), axis=1)
    return int(((merged[:, 1:] == merged[:, :-1]) & (merged[:, 1:] >= 0)).sum())


def _distinct(ids: Ids) -> Ids:
    """Sort each row, with every repeated id made absent."""
    ordered = np.sort(ids, axis=1)
    repeated = ordered[:, 1:] == ordered[:, :-1]
    ordered[:, 1:][repeated] = -1
    return ordered


def _reaching(ids: Ids, scores: Scores, threshold: Scores) -> int:
    """Count the present ids, each where it first stands, whose scores reach their row's threshold."""
    order = np.argsort(ids, axis=1, kind="stable")
    ordered = np.take_along_axis(ids, order, axis=1)
    counted = (np.take_along_axis(scores, order, axis=1) >= threshold) & (ordered >= 0)
    counted[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return int(counted.sum())


def _query_blocks(nq: int, width: int) -> Iterator[slice]:
    """Cut the queries so that a block of ``width`` ids a query stays within ``BLOCK_IDS``."""
    step = max(1, BLOCK_IDS // width)
    return (slice(start, min(nq, start + step)) for start in range(0, nq, step))


def _checked_pair(returned: Ids, true: Ids) -> tuple[Ids, Ids]:
    """Return both sides as int64, or say which of them cannot be compared."""
    returned, true = _checked_ids(returned, "returned"), _checked_ids(true, "true")
    if len(returned) != len(true):
        raise ShapeError(
            f"the two sides answer different numbers of queries: found {len(returned)} returned and {len(true)} true, "
            "expected equal. Fix: give the truth of the very queries that were searched."
        )
    return returned, true


def _checked_ids(ids: Ids, side: str) -> Ids:
    """Return one side's ids as int64, or say what is wrong with them."""
    if ids.ndim != 2 or ids.size == 0:
        raise ShapeError(
            f"the {side} ids are not a table of neighbours: found shape {ids.shape}, expected (nq, k), each ≥ 1. "
            "Fix: give one line of ids a query."
        )
    if not (np.issubdtype(ids.dtype, np.integer) and np.can_cast(ids.dtype, np.int64)):
        raise InputError(
            f"the {side} ids have the wrong type: found {ids.dtype}, expected int64. Fix: give row numbers, not scores."
        )
    if int(ids.min()) < -1:
        query, rank = np.argwhere(ids < -1)[0].tolist()
        raise InputError(
            f"a {side} id is not a row number: found {ids[query, rank]}, expected 0 or more, or -1 for an absent one; "
            f"query {query}, rank {rank + 1}. Fix: write the file again as int64 ids."
        )
    return ids.astype(np.int64, copy=False)


def _check_rank(rank: int, **sides: Ids) -> None:
    """Refuse a rank that is below 1 or that one of the sides does not hold."""
    side, ids = min(sides.items(), key=lambda item: item[1].shape[1])
    held = ids.shape[1]
    if not 1 <= rank <= held:
        raise ShapeError(
            f"the rank is out of range: found {rank}, expected 1 to {held}, the {side} neighbours of a query. "
            f"Fix: ask for a rank within it, or give more {side} neighbours."
        )


def _wanted_ranks(ranks: Iterable[int] | None, held: int) -> list[int]:
    """Return the ranks to evaluate, ascending and without repetition."""
    if ranks is None:
        return [rank for rank in DEFAULT_RANKS if rank <= held]
    wanted = sorted(set(ranks))
    outside = [rank for rank in wanted if not 1 <= rank <= held]
    if outside or not wanted:
        found = ", ".join(map(str, outside)) or "none"
        raise ShapeError(
            f"the ranks are out of range: found {found}, expected 1 to {held}, the most neighbours of a query that "
            "either side holds. Fix: ask for ranks within it, or search with a greater k."
        )
    return wanted


def _checked_scores(scores: Scores | None, ids: Ids, side: str) -> Scores:
    """Return one side's scores, or say why the true kernel cannot be read from them."""
    if scores is None:
        raise InputError(
            f"the {side} neighbours have no scores: found ids alone, expected both. "
            "Fix: give a file that holds scores, or use a definition of recall by ids."
        )
    if scores.shape != ids.shape:
        raise ShapeError(
            f"the {side} scores do not fit their ids: found shape {scores.shape}, expected {ids.shape}. "
            "Fix: give the scores that belong to these ids."
        )
    for rows in _query_blocks(*ids.shape):
        wrong = ~np.isfinite(scores[rows]) & (ids[rows] >= 0)
        if wrong.any():
            query, rank = np.argwhere(wrong)[0].tolist()
            raise InputError(
                f"a {side} score is not finite: found {scores[rows][query, rank]}, expected a kernel value; "
                f"query {rows.start + query}, rank {rank + 1}. Fix: compute the scores again."
            )
    return scores


def _check_descending(scores: Scores, present: NDArray[np.bool_], first: int) -> None:
    """Refuse true scores that rise: they are distances, or not in order."""
    rising = (scores[:, 1:] > scores[:, :-1]) & present[:, 1:] & present[:, :-1]
    if rising.any():
        query, rank = np.argwhere(rising)[0].tolist()
        raise InputError(
            f"the true scores rise: found {scores[query, rank]} before {scores[query, rank + 1]}, expected "
            f"descending kernel values; query {first + query}, rank {rank + 1}. "
            "Fix: give kernel values, best first, not distances."
        )

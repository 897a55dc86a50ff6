"""Checks of the ids, ranks and scores from which a measure is computed."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import InputError, ShapeError

BLOCK_IDS = 1 << 20  # ids in one block of queries: limits the scratch memory to some tens of MB
DEFAULT_RANKS = (1, 10, 100, 1000)

Ids = NDArray[np.int64]
Scores = NDArray[np.floating[Any]]


def checked_pair(returned: Ids, true: Ids) -> tuple[Ids, Ids]:
    """Return the ids of both sides as int64; refuse those that cannot be compared."""
    returned, true = checked_ids(returned, "returned"), checked_ids(true, "true")
    if len(returned) != len(true):
        raise ShapeError(
            f"the two sides answer different numbers of queries: found {len(returned)} returned "
            f"and {len(true)} true, "
            "expected equal. Fix: give the true neighbours of the queries that were searched."
        )
    return returned, true


def checked_ids(ids: Ids, side: str) -> Ids:
    """Return the ids of one side as int64; refuse anything but a table of row numbers."""
    if ids.ndim != 2 or ids.size == 0:
        raise ShapeError(
            f"the {side} ids are not a table of neighbours: found shape {ids.shape}, expected "
            "(nq, k), each ≥ 1. Fix: give one line of ids per query."
        )
    if not (np.issubdtype(ids.dtype, np.integer) and np.can_cast(ids.dtype, np.int64)):
        raise InputError(
            f"the {side} ids have the wrong type: found {ids.dtype}, expected int64. Fix: give "
            "row numbers, not scores."
        )
    if int(ids.min()) < -1:
        query, rank = np.argwhere(ids < -1)[0].tolist()
        raise InputError(
            f"a {side} id is not a row number: found {ids[query, rank]}, expected 0 or more, or "
            "-1 for an absent one; "
            f"query {query}, rank {rank + 1}. Fix: write the file again as int64 ids."
        )
    return ids.astype(np.int64, copy=False)


def check_rank(rank: int, **sides: Ids) -> None:
    """Refuse a rank below 1 or above the width of a side."""
    side, ids = min(sides.items(), key=lambda item: item[1].shape[1])
    width = ids.shape[1]
    if not 1 <= rank <= width:
        raise ShapeError(
            f"the rank is out of range: found {rank}, expected 1 to {width}, the {side} "
            f"neighbours of a query. Fix: ask for a rank within it, or give more {side} neighbours."
        )


def checked_ranks(ranks: Iterable[int] | None, width: int) -> list[int]:
    """Return the ranks to evaluate, ascending and distinct.

    Refuse those that neither side holds.
    """
    if ranks is None:
        return [rank for rank in DEFAULT_RANKS if rank <= width]
    wanted = sorted(set(ranks))
    outside = [rank for rank in wanted if not 1 <= rank <= width]
    if outside or not wanted:
        found = ", ".join(map(str, outside)) or "none"
        raise ShapeError(
            f"the ranks are out of range: found {found}, expected 1 to {width}, the most "
            "neighbours of a query that "
            "either side holds. Fix: ask for ranks within it, or search with a greater k."
        )
    return wanted


def checked_scores(scores: Scores | None, ids: Ids, side: str) -> Scores:
    """Return the scores of one side; refuse scores that are missing or not finite."""
    if scores is None:
        raise InputError(
            f"the {side} neighbours have no scores: found ids alone, expected both. "
            "Fix: give a file that holds scores, or use a definition of recall by ids."
        )
    if scores.shape != ids.shape:
        raise ShapeError(
            f"the {side} scores do not fit their ids: found shape {scores.shape}, expected "
            f"{ids.shape}. Fix: give the scores that belong to these ids."
        )
    for rows in query_blocks(*ids.shape):
        wrong = ~np.isfinite(scores[rows]) & (ids[rows] >= 0)
        if wrong.any():
            query, rank = np.argwhere(wrong)[0].tolist()
            raise InputError(
                f"a {side} score is not finite: found {scores[rows][query, rank]}, expected a "
                "kernel value; "
                f"query {rows.start + query}, rank {rank + 1}. Fix: compute the scores again."
            )
    return scores


def check_descending(scores: Scores, present: NDArray[np.bool_], first: int) -> None:
    """Refuse true scores that rise: they are distances, or out of order."""
    rising = (scores[:, 1:] > scores[:, :-1]) & present[:, 1:] & present[:, :-1]
    if rising.any():
        query, rank = np.argwhere(rising)[0].tolist()
        raise InputError(
            f"the true scores rise: found {scores[query, rank]} before "
            f"{scores[query, rank + 1]}, expected "
            f"descending kernel values; query {first + query}, rank {rank + 1}. "
            "Fix: give kernel values, best first, not distances."
        )


def query_blocks(nq: int, width: int) -> Iterator[slice]:
    """Return blocks of queries with at most ``BLOCK_IDS`` ids, at ``width`` ids per query."""
    step = max(1, BLOCK_IDS // width)
    return (slice(start, min(nq, start + step)) for start in range(0, nq, step))

"""Coverage: how deep the true neighbours must be listed to include the first hits."""

from collections.abc import Iterable

from mercore.pipeline.measures.checks import (
    Ids,
    check_rank,
    checked_pair,
    checked_ranks,
    query_blocks,
)
from mercore.pipeline.measures.counts import count_shared
from mercore.pipeline.measures.recall import Recall


def coverage(returned: Ids, true: Ids, n: int, r: int) -> float:
    """Return the mean over queries of |first n returned ∩ first r true| / n.

    It is the share of the first n hits that a linear scan returns among its first r (Kulis &
    Grauman 2012, Fig. 6). With n = r it is ``k_recall``.

    Parameters
    ----------
    returned : int64[nq, ≥ n]
        Best first; -1 marks an absent neighbour and matches nothing. A repeated id counts once.
    true : int64[nq, ≥ r]
        Best first, in the same form.
    n, r : int
        The numbers of hits and of true neighbours, ≥ 1.

    Raises
    ------
    ShapeError
        If the query counts differ, a side is empty or not 2-D, ``n`` is not 1 to the width of
        ``returned``, or ``r`` is not 1 to the width of ``true``.
    InputError
        If ids are not integers, or below -1.
    """
    returned, true = checked_pair(returned, true)
    check_rank(n, returned=returned)
    check_rank(r, true=true)
    blocks = query_blocks(len(true), n + r)
    shared = sum(count_shared(returned[rows, :n], true[rows, :r]) for rows in blocks)
    return shared / (len(true) * n)


def coverages(
    returned: Ids, true: Ids, counts: Iterable[int], ranks: Iterable[int] | None = None
) -> list[Recall]:
    """Return ``coverage-n`` for every n of ``counts``, at every rank that ``true`` holds.

    ``ranks`` are those of ``evaluate``, with its defaults.

    Raises
    ------
    ShapeError, InputError
        As ``coverage`` does, and if a rank is below 1 or above both widths.
    """
    returned, true = checked_pair(returned, true)
    ranks = checked_ranks(ranks, max(returned.shape[1], true.shape[1]))
    return [
        Recall(
            definition=f"coverage-{n}",
            rank=rank,
            value=coverage(returned, true, n, rank),
            queries=len(true),
        )
        for n in counts
        for rank in ranks
        if rank <= true.shape[1]
    ]

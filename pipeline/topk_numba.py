"""Jitted functions that keep the k best rows of each query; ties go to the lower id."""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.vectors import move_up

ZERO = cast(int, np.int64(0))  # a literal 0 has a type of its own: callees would compile again
LONGEST_SORTED = 128  # entries: up to this length, moving entries is faster than a heap


@jit
def insert(
    scores: NDArray[np.floating], ids: NDArray[np.int64], query: int, score: np.floating, row: int
) -> None:
    """Insert (score, row) into ``scores[query]`` and ``ids[query]`` if it is among the k best.

    The last entry is the worst. Short lists are descending. Long ones grow from the front, and the
    last id counts their entries as −1 − count; full ones are heaps: see ``sink``.
    """
    k = scores.shape[1]
    last = k - 1
    if score < scores[query, last] or (
        score == scores[query, last] and 0 <= ids[query, last] < row
    ):
        return
    if k > LONGEST_SORTED:
        count = -1 - ids[query, last]
        if count < 0:
            sink(scores[query], ids[query], ZERO, score, row)
        elif count < last:
            scores[query, count], ids[query, count] = score, row
            ids[query, last] -= 1
        else:
            scores[query, last], ids[query, last] = score, row
            for parent in range(k // 2 - 1, -1, -1):
                at = last - parent
                sink(scores[query], ids[query], parent, scores[query, at], ids[query, at])
        return
    at = 0
    for place in range(k):  # count the better entries: a search would need several branches
        at += scores[query, place] > score
    while at < last and scores[query, at] == score and 0 <= ids[query, at] < row:
        at += 1
    move_up(scores, query * k + at, query * k + last)
    move_up(ids, query * k + at, query * k + last)
    scores[query, at] = score
    ids[query, at] = row


@jit(inline="always")
def worse(score: np.floating, row: int, other: np.floating, other_row: int) -> bool:
    """Return whether (score, row) ranks behind the other."""
    return score < other or (score == other and row > other_row)


@jit
def sink(
    scores: NDArray[np.floating], ids: NDArray[np.int64], parent: int, score: np.floating, row: int
) -> None:
    """Replace an entry by (score, row), in a binary heap whose root, the worst, comes last.

    Entries below ``parent``, which is replaced, are in the order of a heap; so they are afterwards.
    This touches log2 k entries; moving part of a thousand would touch hundreds of cache lines.
    """
    last = scores.size - 1
    while True:
        child = 2 * parent + 1
        if child > last:
            break
        at = last - child
        if at > 0 and worse(scores[at - 1], ids[at - 1], scores[at], ids[at]):
            at, child = at - 1, child + 1
        if not worse(scores[at], ids[at], score, row):
            break
        scores[last - parent], ids[last - parent] = scores[at], ids[at]
        parent = child
    scores[last - parent], ids[last - parent] = score, row


@jit
def insert_pairs(
    scores: NDArray[np.floating],
    ids: NDArray[np.int64],
    queries: NDArray[np.int64],
    rows: NDArray[np.int64],
    pair_scores: NDArray[np.floating],
) -> None:
    """Insert each (query, row, score) that is among the k best of its query."""
    last = scores.shape[1] - 1
    for p in range(queries.size):
        if pair_scores[p] >= scores[queries[p], last]:  # most pairs fail this test
            insert(scores, ids, queries[p], pair_scores[p], rows[p])


@jit
def survivors(
    block: NDArray[np.float32],
    least: NDArray[np.float32],
    rows: NDArray[np.int64],
    queries: NDArray[np.int64],
) -> int:
    """Return the number of scores that reach ``least[query]``; list as many pairs as fit."""
    count = 0
    for i in range(block.shape[0]):
        line = block[i]
        hits = 0
        for q in range(line.size):
            hits += line[q] >= least[q]
        if hits:
            for q in range(line.size):
                if line[q] >= least[q]:
                    if count < rows.size:
                        rows[count] = i
                        queries[count] = q
                    count += 1
    return count

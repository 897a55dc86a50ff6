"""Top-k lists: the k best rows of each query so far, and the merging of several lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mercore.pipeline.topk_numba import insert_pairs


class TopK:
    """Top-k lists: scores [nq, k] and row numbers int64[nq, k]; free entries hold −inf and −1.

    The last entry is the worst; ties go to the lower row. The other entries are in order where k is
    small (see ``topk_numba.insert``), and always after a merge. ``rescored`` counts the pairs
    (query, row) that a filter could not rule out and that were then scored in full. ``kept`` holds
    what a scanner made for this list and needs again in the next part.
    """

    def __init__(self, nq: int, k: int, dtype: DTypeLike) -> None:
        self.scores: NDArray[np.floating] = np.full((nq, k), -np.inf, dtype)
        self.ids: NDArray[np.int64] = np.full((nq, k), -1, np.int64)
        self.kept: dict[object, Any] = {}
        self.rescored = 0

    @property
    def kth(self) -> NDArray[np.floating]:
        """The k-th best score of each query, −inf until there are k rows."""
        return self.scores[:, -1]

    def insert(
        self, queries: NDArray[np.int64], rows: NDArray[np.int64], scores: NDArray[np.floating]
    ) -> None:
        """Insert the pairs (query, row) with their scores; each pair occurs once."""
        insert_pairs(self.scores, self.ids, queries, rows, scores)


def merge(lists: Sequence[TopK]) -> TopK:
    """Merge several top-k lists over disjoint rows into one."""
    scores = np.concatenate([each.scores for each in lists], axis=1)
    ids = np.concatenate([each.ids for each in lists], axis=1)
    merged = top_k_of(scores, ids, lists[0].ids.shape[1])
    merged.rescored = sum(each.rescored for each in lists)
    return merged


def top_k_of(scores: NDArray[np.floating], ids: NDArray[np.int64], k: int) -> TopK:
    """Return the k best of each query's candidates; ties go to the lower row.

    Parameters
    ----------
    scores : floating[nq, R], −inf for no candidate
    ids : int64[nq, R], −1 for no candidate
    k : int, 1 ≤ k ≤ R
    """
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    top_k = TopK(len(ids), k, scores.dtype)
    top_k.scores = np.take_along_axis(scores, order, axis=1)
    top_k.ids = np.take_along_axis(ids, order, axis=1)
    return top_k

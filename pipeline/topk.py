"""The k best rows of each query so far, and how several such lists become one."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mercore.pipeline.topk_numba import insert_pairs


class TopK:
    """Scores [nq, k] and row numbers int64[nq, k], the worst last; ties to the lower row; −1 at −inf where none is yet.

    The others are in order where k is small (see ``topk_numba.insert``) and always once lists were merged.

    ``rescored`` counts the pairs (query, row) that a filter could not rule out, and that were then scored in full;
    ``kept`` is what a scanner made for this list and needs again in the next part.
    """

    def __init__(self, nq: int, k: int, dtype: DTypeLike) -> None:
        self.scores: NDArray[np.floating] = np.full((nq, k), -np.inf, dtype)
        self.ids: NDArray[np.int64] = np.full((nq, k), -1, np.int64)
        self.kept: dict[object, Any] = {}
        self.rescored = 0

    @property
    def kth(self) -> NDArray[np.floating]:
        """The k-th best score of each query, −inf until there are k."""
        return self.scores[:, -1]

    def insert(self, queries: NDArray[np.int64], rows: NDArray[np.int64], scores: NDArray[np.floating]) -> None:
        """Take in the pairs (query, row) with their scores, each at most once."""
        insert_pairs(self.scores, self.ids, queries, rows, scores)


def merge(lists: Sequence[TopK]) -> TopK:
    """Return the best of several lists over disjoint rows."""
    scores = np.concatenate([best.scores for best in lists], axis=1)
    ids = np.concatenate([best.ids for best in lists], axis=1)
    merged = top_k_of(scores, ids, lists[0].ids.shape[1])
    merged.rescored = sum(best.rescored for best in lists)
    return merged


def top_k_of(scores: NDArray[np.floating], ids: NDArray[np.int64], k: int) -> TopK:
    """Return the k best of each query's candidates; ties to the lower row.

    Parameters
    ----------
    scores : floating[nq, R], −inf for none
    ids : int64[nq, R], −1 for none
    k : int, 1 ≤ k ≤ R
    """
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    best = TopK(len(ids), k, scores.dtype)
    best.scores = np.take_along_axis(scores, order, axis=1)
    best.ids = np.take_along_axis(ids, order, axis=1)
    return best

"""Float32 scores of chosen pairs, straight from raw rows: what rules most of them out, so that float64 decides few."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.aligned import aligned
from pipeline.kernels import screen_numba
from pipeline.kernels.blocks_numba import VECTOR

ROOM_BYTES = 1 << 17  # of float32 rows at a time: they stay in cache

Ids = NDArray[np.int64]


class Sums(NamedTuple):
    """What a score is a sum of: ``terms``, of rows scaled as ``scaling`` says (see ``screen_numba``).

    The score is ``share`` · sum, or exp(``share`` · sum) if it is ``exponential``; it is off by ``error`` at most.
    """

    terms: int
    scaling: int
    share: float
    exponential: bool
    error: float


def distinct(values: Ids) -> tuple[Ids, Ids]:
    """Return the distinct ones of ascending values, and the place of each value among them."""
    first = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first], np.cumsum(first) - 1


class Screen:
    """A batch of prepared queries, float64[nq, d], that pairs with raw rows are ruled out for."""

    def __init__(self, sums: Sums, queries: NDArray[np.float64]) -> None:
        self.sums, self.error = sums, sums.error
        self.dims = queries.shape[1]
        stride = -(-self.dims // VECTOR) * VECTOR
        self.queries = aligned((len(queries), stride), np.float32)
        self.queries[:, : self.dims] = queries

    def scores(self, rows: NDArray[Any], pairs: tuple[Ids, Ids]) -> NDArray[np.float64]:
        """Return scores that are off by ``error`` at most, float64[p]; NaN where float32 may lose digits.

        Parameters
        ----------
        rows : uint8, float16 or float32 [n, d], raw: float32 holds them as they are
        pairs : int64[p] twice: rows, ascending, and queries
        """
        at, of = pairs
        scores, (wanted, places) = np.empty(len(at), np.float32), distinct(at)
        stride = self.queries.shape[1]
        count = max(1, ROOM_BYTES // (4 * stride))
        room = aligned((min(count, len(wanted)), stride), np.float32)
        halves = np.ascontiguousarray(rows).view(np.uint16) if rows.dtype == np.float16 else None
        for first in range(0, len(wanted), count):
            some = wanted[first : first + count]
            if halves is None:
                room[: len(some), : self.dims] = rows[some]
            else:  # which NumPy would widen one by one
                screen_numba.widen_rows(halves, some, room)
            screen_numba.scale_rows(self.sums.scaling, room, len(some))
            here = slice(*np.searchsorted(places, [first, first + count]))
            screen_numba.sum_pairs(self.sums.terms, room, self.queries, places[here], of[here], first, scores[here])
        return self._finished(scores)

    def _finished(self, sums: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the scores that sums make."""
        scores = sums.astype(np.float64)
        scores *= self.sums.share
        scores[~np.isfinite(scores)] = np.nan
        return np.exp(scores) if self.sums.exponential else scores

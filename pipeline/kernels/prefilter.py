"""Float32 scores of chosen pairs of raw rows, which leave few pairs to float64."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.kernels import prefilter_numba
from mercore.pipeline.kernels.blocks_numba import VECTOR
from mercore.pipeline.simd.aligned import aligned

Ids = NDArray[np.int64]


class Sums(NamedTuple):
    """The form of a score: ``terms``, summed over rows scaled by ``scaling``.

    The score is ``share`` · sum, or exp(``share`` · sum) if it is ``exponential``. Its error is at
    most ``error``; if it is ``relative``, at most ``error`` times the score, plus ``underflow``.
    """

    terms: int
    scaling: int
    share: float
    exponential: bool
    error: float
    relative: bool = False
    underflow: float = 0.0


class Prefilter:
    """A batch of prepared queries, float64[nq, d], scored in float32 against raw rows."""

    def __init__(self, sums: Sums, queries: NDArray[np.float64]) -> None:
        self.sums, self.error = sums, sums.error
        self.dims = queries.shape[1]
        stride = -(-self.dims // VECTOR) * VECTOR
        self.queries = aligned((len(queries), stride), np.float32)
        self.queries[:, : self.dims] = queries

    def error_at(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return a bound of the error of a score near each of these, float64 of their shape.

        A relative error has 1 % more for the difference of a score and its float32 value.
        """
        if not self.sums.relative:
            return np.full(np.shape(scores), self.error)
        sizes = np.abs(scores.astype(np.float64))
        return np.asarray(1.01 * self.error * sizes + self.sums.underflow)

    def scores(self, rows: NDArray[Any], pairs: tuple[Ids, Ids]) -> NDArray[np.float64]:
        """Return scores within ``error_at`` of the exact ones, float64[p].

        NaN where float32 may lose digits.

        Parameters
        ----------
        rows : uint8, int8, float16 or float32 [n, d], raw: float32 holds each value exactly
        pairs : int64[p] twice: row numbers, ascending, and query numbers
        """
        row_ids, query_ids = pairs
        raw, scores = np.ascontiguousarray(rows), np.empty(len(row_ids), np.float32)
        raw = raw.view(np.uint16) if raw.dtype == np.float16 else raw
        form, buffer = (
            (self.sums.terms, self.sums.scaling),
            aligned(self.queries.shape[1], np.float32),
        )
        prefilter_numba.sum_pairs(form, raw, row_ids, self.queries, query_ids, buffer, scores)
        return self._finished(scores)

    def _finished(self, sums: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the scores that sums make."""
        scores = sums.astype(np.float64)
        scores *= self.sums.share
        scores[~np.isfinite(scores)] = np.nan
        return np.exp(scores) if self.sums.exponential else scores

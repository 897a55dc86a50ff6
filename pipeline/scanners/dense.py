"""Scan float rows by inner product."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.kernels.blocks import pack_products, products
from mercore.pipeline.scanners.dense_numba import ROWS, score_point, widen
from mercore.pipeline.topk import TopK
from mercore.pipeline.topk_numba import survivors

BLOCK_BYTES = 1 << 20  # scores per block: they are compared while they are in L2
FEW = 6  # up to 6 points are scored faster one by one than together
MAX_BLOCK_ROWS = 1 << 14
FIRST_ROWS = 1 << 8  # rows of the first block, which sets k-th scores


class DenseScanner:
    """The scanner of points: a score is the inner product, summed in float32.

    Parameters
    ----------
    points : float32[nq, E]
    column : str
        The name of the rows' column, float32[n, E] or float16[n, E].
    offsets : float32[nq], optional
        The number that is added to all scores of a query.
    """

    def __init__(self, points: Float32, column: str, offsets: Float32 | None = None) -> None:
        self.names: tuple[str, ...] = (column,)
        self.offsets = offsets
        self.points = np.ascontiguousarray(points, np.float32)
        self._columns = pack_products(self.points.T) if len(points) > FEW else None
        self.rows = max(1, min(MAX_BLOCK_ROWS, BLOCK_BYTES // (4 * len(points))))

    def scan(self, columns: Mapping[str, NDArray[Any]], first: int, best: TopK) -> None:
        """Insert the scores of one part, whose first row is ``first``, into the top-k lists."""
        (values,) = (columns[name] for name in self.names)
        start, few = 0, max(FIRST_ROWS, best.ids.shape[1])
        while start < len(values):
            cold = bool(np.isneginf(best.kth).any())
            stop = start + (min(few, self.rows) if cold else self.rows)
            block = float32_rows(values[start:stop])
            insert_scores(self.scores(block), first + start, best)
            start = stop

    def scores(self, rows: Float32) -> Float32:
        """Return the scores of rows, float32[n, nq]; each depends on its pair alone, to the bit."""
        scores = (
            one_by_one(rows, self.points)
            if self._columns is None
            else products(rows, self._columns)
        )
        return scores if self.offsets is None else np.add(scores, self.offsets, out=scores)


def float32_rows(values: NDArray[Any]) -> Float32:
    """Return C-contiguous float16 or float32 rows [n, E] as float32, faster than NumPy would."""
    if values.dtype != np.float16:
        return np.asarray(values, np.float32)
    out = np.empty(values.shape, np.float32)
    widen(values.reshape(-1).view(np.uint16), out.reshape(-1))
    return out


def one_by_one(rows: Float32, points: Float32) -> Float32:
    """Return the scores of ``products``, point by point: ``products`` would compute 64 columns."""
    n, whole = len(rows), len(rows) // ROWS * ROWS
    rest = np.zeros((ROWS, rows.shape[1]), np.float32)
    rest[: n - whole] = rows[whole:]
    first = np.ascontiguousarray(rows[:whole]).reshape(-1)
    out = np.empty((len(points), whole + ROWS), np.float32)
    for point, scores in zip(points, out, strict=True):
        score_point(first, point, scores[:whole])
        score_point(rest.reshape(-1), point, scores[whole:])
    return np.ascontiguousarray(out[:, :n].T)


def insert_scores(scores: Float32, first: int, top_k: TopK) -> None:
    """Insert the scores [n, nq] of rows ``first``… that may be among the k best."""
    kth = top_k.kth.astype(np.float32)
    # an equal score enters only where the list has a later row, or is not full
    last = top_k.ids[:, -1]
    full = (last >= 0) & (last < first)
    least = np.where(full, np.nextafter(kth, np.float32(np.inf)), kth)
    rows, queries = np.empty((2, scores.size), np.int64)  # unwritten pages cost nothing
    count = survivors(scores, least, rows, queries)
    if count:
        rows, queries = rows[:count], queries[:count]
        top_k.insert(queries, rows + first, scores[rows, queries])

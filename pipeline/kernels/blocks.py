"""Float32 scores of a block: layouts for the jitted functions, and calls of them."""

import math

import numpy as np

from mercore.pipeline.arrays import Float32
from mercore.pipeline.kernels import blocks_numba, terms_numba
from mercore.pipeline.kernels.blocks_numba import (
    CHUNK_ROWS,
    GROUP,
    PANEL,
    SPARSE,
    TILE_ROWS,
    VECTOR,
    Finish,
    SparseRows,
)
from mercore.pipeline.kernels.panels import Columns, Panels
from mercore.pipeline.simd.aligned import aligned

PLAIN = Finish(1.0, 0.0, False, 0.0, -math.inf)


def pack(terms: int, YT: Float32) -> Panels:
    """Return columns YT [d, m] in the layout of ``terms``: packed once, for many blocks of rows."""
    d, m = YT.shape
    columns = np.ascontiguousarray(YT)
    if not columns.flags.writeable:  # a type of its own, for which everything is compiled once more
        columns = columns.copy()
    size = -(-m // PANEL) * PANEL * d
    values = aligned(size, np.float32)
    gains = aligned(size if terms == terms_numba.JENSEN_SHANNON else 0, np.float32)
    for group in range(0, m, GROUP):
        blocks_numba.pack_group(terms, columns, group, values[group * d :], gains[group * d :])
    return Panels(values, gains, d, m, terms)


def score_block(terms: int, X: Float32, Y: Columns, finish: Finish) -> Float32:
    """Return the scores of rows X [n, d] and columns, float32[n, m].

    A score depends on its row and its column alone, to the bit.

    Parameters
    ----------
    terms : int
        The number in ``terms_numba`` of the terms to sum; ``JENSEN_SHANNON`` is of values ≥ 0.
    Y : float32[d, m], or those columns packed for the same terms
    finish : Finish
        The steps from a sum to a score.
    """
    columns = Y if isinstance(Y, Panels) else pack(terms, Y)
    assert columns.terms == terms
    n, d = X.shape
    rows_ = np.ascontiguousarray(X)
    out = np.empty((n, columns.m), np.float32)
    sparse = terms in SPARSE
    rows = _sparse_rows(min(n, CHUNK_ROWS) if sparse else 0, d)
    sums = aligned(TILE_ROWS * PANEL, np.float32)
    for first in range(0, n, CHUNK_ROWS):
        chunk, scores = rows_[first : first + CHUNK_ROWS], out[first : first + CHUNK_ROWS]
        filled = rows._replace(counts=rows.counts[: len(chunk)], totals=rows.totals[: len(chunk)])
        if sparse:
            blocks_numba.gather_rows(terms, chunk, filled)
        blocks_numba.score_rows(terms, chunk, columns, filled, sums, np.float32(1), finish, scores)
    return out


def pack_products(YT: Float32) -> Panels:
    """Return columns YT [d, m] in the layout that ``products`` reads."""
    return pack(terms_numba.PRODUCT, YT)


def products(X: Float32, Y: Columns) -> Float32:
    """Return the inner products of rows X [n, d] and columns [d, m], float32[n, m].

    A product depends on its row and its column alone, to the bit.
    """
    return score_block(terms_numba.PRODUCT, X, Y, PLAIN)


def transform(scores: Float32, scale: float) -> None:
    """Set float32 scores, C-contiguous, to exp(scale (K − 1)); scores above 1 count as 1."""
    flat = scores.reshape(-1)
    whole = flat.size // VECTOR * VECTOR
    blocks_numba.transform(flat[:whole], scale)
    rest = np.zeros(VECTOR, np.float32)
    rest[: flat.size - whole] = flat[whole:]
    blocks_numba.transform(rest, scale)
    flat[whole:] = rest[: flat.size - whole]


def _sparse_rows(n: int, d: int) -> SparseRows:
    """Return buffers for the non-zero values of n rows."""
    stride = -(-d // VECTOR) * VECTOR
    return SparseRows(
        values=aligned(n * stride, np.float32),
        others=aligned(n * stride, np.float32),
        dims=np.empty(n * stride, np.uint32),
        counts=np.empty(n, np.uint64),
        totals=np.empty(n, np.float32),
        stride=stride,
    )

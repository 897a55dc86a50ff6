"""Float32 scores of a block: what the loops need is laid out here."""

import numpy as np

from pipeline.aligned import aligned
from pipeline.kernels import blocks_numba, loops_numba
from pipeline.kernels.blocks_numba import CHUNK_ROWS, GROUP, PANEL, TILE_ROWS, VECTOR, Finish, Scratch, SparseRows
from pipeline.kernels.kernel import Float32


def score_block(terms: int, X: Float32, YT: Float32, finish: Finish) -> Float32:
    """Return the scores of rows X [n, d] and columns YT [d, m], float32[n, m].

    A score depends on its row and its column alone, to the bit.

    Parameters
    ----------
    terms : int
        What is summed: ``CHI2``, ``INTERSECTION``, ``JENSEN_SHANNON`` (of values ≥ 0), ``PRODUCT`` or ``SQUARED``.
    finish : Finish
        What makes a score of a sum.
    """
    (n, d), m = X.shape, YT.shape[1]
    rows_, columns = np.ascontiguousarray(X), np.ascontiguousarray(YT)
    out = np.empty((n, m), np.float32)
    rows = _sparse_rows(min(n, CHUNK_ROWS), d)
    wide = min(GROUP, -(-m // PANEL) * PANEL) * d
    gains = wide if terms == loops_numba.JENSEN_SHANNON else 0
    scratch = Scratch(aligned(wide, np.float32), aligned(gains, np.float32), aligned(TILE_ROWS * PANEL, np.float32))
    for first in range(0, n, CHUNK_ROWS):
        chunk, scores = rows_[first : first + CHUNK_ROWS], out[first : first + CHUNK_ROWS]
        filled = rows._replace(counts=rows.counts[: len(chunk)], totals=rows.totals[: len(chunk)])
        if terms not in (loops_numba.PRODUCT, loops_numba.SQUARED):
            blocks_numba.gather_rows(terms, chunk, filled)
        blocks_numba.score_rows(terms, chunk, columns, filled, scratch, np.float32(1), finish, scores)
    return out


def transform(scores: Float32, scale: float) -> None:
    """Set float32 scores, C-contiguous, to exp(scale (K − 1)), those above 1 taken for 1."""
    flat = scores.reshape(-1)
    whole = flat.size // VECTOR * VECTOR
    blocks_numba.transform(flat[:whole], scale)
    rest = np.zeros(VECTOR, np.float32)
    rest[: flat.size - whole] = flat[whole:]
    blocks_numba.transform(rest, scale)
    flat[whole:] = rest[: flat.size - whole]


def _sparse_rows(n: int, d: int) -> SparseRows:
    """Return room for the values of n rows that are not zero."""
    stride = -(-d // VECTOR) * VECTOR
    return SparseRows(
        values=aligned(n * stride, np.float32),
        others=aligned(n * stride, np.float32),
        dims=np.empty(n * stride, np.uint32),
        counts=np.empty(n, np.uint64),
        totals=np.empty(n, np.float32),
        stride=stride,
    )

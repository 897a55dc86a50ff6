"""Choose the threshold of a range search: the score that a share of sampled pairs reaches."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import draw_rows
from mercore.pipeline.kernels import Kernel
from mercore.stores.vectors import Vectors, gather

ROWS, QUERIES = 1 << 16, 256  # of the sample, at most
BLOCK_ROWS = 1024


class ThresholdChoice(NamedTuple):
    """A threshold, and the share of the sampled pairs that reach it."""

    threshold: float
    share: float


def choose_threshold(
    share: float, kernel: Kernel, vectors: Vectors, queries: NDArray[Any]
) -> ThresholdChoice:
    """Return the score, or the distance, that a share of the pairs of a sample reaches.

    The sample depends on the numbers of rows and queries alone.

    Parameters
    ----------
    share : of all pairs of a query and a row, in (0, 1]
    queries : dtype[nq, d], raw
    """
    rng = np.random.default_rng(0)
    rows = gather(vectors, draw_rows(rng, vectors.rows, min(ROWS, vectors.rows)))
    few = queries[draw_rows(rng, len(queries), min(QUERIES, len(queries)))]
    columns = kernel.prepare(few, label="query").T
    packed = kernel.packed(np.ascontiguousarray(columns).astype(np.float32))
    blocks = (rows[start : start + BLOCK_ROWS] for start in range(0, len(rows), BLOCK_ROWS))
    scores = np.concatenate(
        [kernel.block(kernel.prepare(block).astype(np.float32), packed) for block in blocks]
    ).ravel()
    rank = max(1, round(share * scores.size))
    score = np.partition(scores, scores.size - rank)[scores.size - rank].astype(np.float64)
    return ThresholdChoice(float(kernel.shown(score[None])[0]), rank / scores.size)

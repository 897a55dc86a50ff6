"""The share of a sample that a bound leaves, measured at fitting to predict a search's cost."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.encoder import Encoder
from mercore.pipeline.kernels import Kernel

QUERIES = 64  # rows of a sample that stand for queries
PAIR_VALUES = 1 << 20  # values of pairs of rows that one measurement reads


class Sample(NamedTuple):
    """Random rows, [n, …] as an encoder takes them, and true scores of the first with all."""

    rows: NDArray[Any]
    scores: Float64


def sample_scores(kernel: Kernel, prepared: Float64) -> Float64:
    """Return K of the first prepared rows with all of them, float64[≤ 64, n]."""
    return kernel.exact(prepared[:QUERIES], np.ascontiguousarray(prepared.T))


def sample_shares(encoder: Encoder, sample: Sample) -> Float64:
    """Return ``measured_shares`` of a sample, whose first rows stand for queries."""
    from mercore.pipeline.scanners.bounds.byte_bounds import BoundScanner

    rows = sample.rows
    count = min(QUERIES, max(1, len(rows) // 8))
    first = min(count, len(rows) - 1)  # the only row of a store is query and row
    scanner = encoder.scanner(rows[:count])
    assert isinstance(scanner, BoundScanner)
    size = encoder.block_rows
    blocks = [encoder.encode(rows[start : start + size]) for start in range(first, len(rows), size)]
    codes, terms = (np.concatenate([block[name] for block in blocks]) for name in scanner.names)
    return measured_shares(
        scanner.bounds(codes, terms.astype(np.float32)).T, sample.scores[:count, first:]
    )


def measured_shares(bounds: NDArray[np.float32], scores: Float64) -> Float64:
    """Return the shares of all rows, and of the first eighth, whose bound reaches their best score.

    Parameters
    ----------
    bounds : float32[nq, n]
    scores : float64[nq, n], the true ones

    Returns
    -------
    float64[3]
        Both shares, as means over the queries, and n.
    """
    n = scores.shape[1]
    shares = [
        (bounds[:, :size] >= scores[:, :size].max(axis=1, keepdims=True)).mean()
        for size in (n, max(1, n // 8))
    ]
    return np.array([*shares, n])


def expected_share(shares: Float64, rows_per_neighbour: float) -> float:
    """Return the share that bounds leave of a store, by the power law of the sample's shares."""
    whole, eighth, rows = shares.tolist()
    power = max(0.0, float(np.log(eighth / whole) / np.log(8)))
    return min(1.0, float(whole * (rows / rows_per_neighbour) ** power))

"""What a bound leaves of a sample: measured when it is fitted, so that a search knows whether it pays."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.encoder import Encoder
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.scanners.bounds import BoundScanner

QUERIES = 64  # rows of a sample that stand for queries


class Sample(NamedTuple):
    """Rows drawn at random, [n, …] as an encoder takes them, and the true scores of the first of them with all."""

    rows: NDArray[Any]
    scores: Float64


def true_scores(kernel: Kernel, prepared: Float64) -> Float64:
    """Return K of the first prepared rows with all, float64[≤ 64, n]."""
    return kernel.exact(prepared[:QUERIES], np.ascontiguousarray(prepared.T))


def sample_shares(encoder: Encoder, sample: Sample) -> Float64:
    """Return ``costs.measured_shares`` of a sample, the first rows of which stand for queries."""
    rows = sample.rows
    count = min(QUERIES, max(1, len(rows) // 8))
    first = min(count, len(rows) - 1)  # a store of one row is both
    scanner = encoder.scanner(rows[:count])
    assert isinstance(scanner, BoundScanner)
    size = encoder.block_rows
    blocks = [encoder.encode(rows[start : start + size]) for start in range(first, len(rows), size)]
    codes, terms = (np.concatenate([block[name] for block in blocks]) for name in scanner.names)
    return measured_shares(scanner.bounds(codes, terms.astype(np.float32)).T, sample.scores[:count, first:])


def measured_shares(bounds: NDArray[np.float32], scores: Float64) -> Float64:
    """Return which shares of all rows, and of the first eighth, have a bound that reaches the best score among them.

    Parameters
    ----------
    bounds : float32[nq, n]
    scores : float64[nq, n], the true ones

    Returns
    -------
    float64[3]
        Both shares, on average over the queries, and n.
    """
    n = scores.shape[1]
    shares = [(bounds[:, :size] >= scores[:, :size].max(axis=1, keepdims=True)).mean() for size in (n, max(1, n // 8))]
    return np.array([*shares, n])


def expected_share(shares: Float64, rows_a_neighbour: float) -> float:
    """Return the share that bounds leave of a store with so many rows to a neighbour, by the power that shares show."""
    whole, eighth, rows = shares.tolist()
    power = max(0.0, float(np.log(eighth / whole) / np.log(8)))
    return min(1.0, float(whole * (rows / rows_a_neighbour) ** power))

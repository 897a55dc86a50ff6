"""What a bound leaves of a sample: measured when it is fitted, so that a search knows whether it pays."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import Encoder
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.kernel import Float64
from mercore.pipeline.scanners.bounds import BoundScanner
from mercore.pipeline.search.costs import measured_shares

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

"""What a bound leaves of a sample: measured when it is fitted, so that a search knows whether it pays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.costs import measured_shares
from pipeline.encoders.encoder import Encoder
from pipeline.kernels import Kernel
from pipeline.kernels.kernel import Float64
from pipeline.scanners.bounds import BoundScanner

QUERIES = 64  # rows of a sample that stand for queries


def sample_shares(encoder: Encoder, kernel: Kernel, rows: NDArray[Any]) -> Float64:
    """Return ``costs.measured_shares`` of a sample, the first rows of which stand for queries.

    Parameters
    ----------
    rows : dtype[n, d], raw, drawn at random
    """
    count = min(QUERIES, max(1, len(rows) // 8))
    queries, others = rows[:count], rows[min(count, len(rows) - 1) :]  # a store of one row is both
    prepared = kernel.ranking.prepare(queries)
    scores = kernel.ranking.exact(prepared, np.ascontiguousarray(kernel.ranking.prepare(others).T))
    scanner = encoder.scanner(queries)
    assert isinstance(scanner, BoundScanner)
    size = encoder.block_rows
    blocks = [encoder.encode(others[start : start + size]) for start in range(0, len(others), size)]
    codes, terms = (np.concatenate([block[name] for block in blocks]) for name in scanner.names)
    return measured_shares(scanner.bounds(codes, terms.astype(np.float32)).T, scores)

"""What every bound promises: no score of the kernel is above it."""

from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import BoundEncoder
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.decimals import decimal_score
from mercore.pipeline.scanners.bounds.byte_bounds import BoundScanner
from mercore.pipeline.scanners.bounds.grid import PqBoundScanner

Block = NDArray[Any]


def bounds_of(encoder: BoundEncoder, rows: Block, queries: Block) -> NDArray[np.float32]:
    """The bounds, float32[nq, n]."""
    encoder.prepare_encoding()
    scanner, columns = encoder.bound_scanner(queries), encoder.encode(rows)
    if isinstance(scanner, PqBoundScanner):
        return scanner.bounds(columns).T
    assert isinstance(scanner, BoundScanner)
    codes, terms = (columns[name] for name in scanner.names)
    return scanner.bounds(codes, terms.astype(np.float32)).T


def check_bounds(kernel: Kernel, encoder: BoundEncoder, rows: Block, queries: Block) -> float:
    """No bound is below its score: by float64 where its error allows, else by decimals; return the
    mean excess."""
    kernel, bounds = kernel.ranking, bounds_of(encoder, rows, queries)
    assert bounds.dtype == np.float32
    huge = np.square(rows.astype(np.float64)).sum(axis=1) > 1e35
    huge = huge | (np.square(queries.astype(np.float64)).sum(axis=1) > 1e35)[:, None]
    allowed = np.isposinf(bounds) & huge & (not kernel.normalised)
    assert (np.isfinite(bounds) | allowed).all()
    scores = kernel.exact(kernel.prepare(queries), np.ascontiguousarray(kernel.prepare(rows).T))
    excess: NDArray[np.float64] = bounds.astype(np.float64) - scores
    error = kernel.slack(rows.shape[1], scores) / 2
    assert (excess >= -error).all(), excess.min()
    for query, row in np.argwhere(excess <= error):
        real = decimal_score(kernel, queries[query], rows[row])
        assert real is not None
        assert Decimal(float(bounds[query, row])) >= real
    return float(excess.mean())

"""Rehearsals: jitted functions run on a few made-up rows, so that their machine code is on disk.

``first_use`` starts a process: ``python -m mercore.pipeline.compiling.rehearsal NAME OPTIONS``.
"""

import json
import signal
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np

from mercore.pipeline.encoders.pq_numba import assign, lay_out_codebooks
from mercore.pipeline.encoders.pursuit_numba import TILE, pursue
from mercore.pipeline.encoders.weights_numba import quantise_int8, residuals
from mercore.pipeline.kernels.blocks import pack_products, products
from mercore.pipeline.scanners.bounds.byte_bounds import BoundScanner, QueryTerms
from mercore.pipeline.scanners.pq import ENTRIES, PqScanner
from mercore.pipeline.scanners.sparse import SparseScanner, query_groups
from mercore.pipeline.topk import TopK

ROWS, ATOMS = 64, 16


def pursuit(*, recursive: bool, int8: bool) -> None:
    """Encode a row with a dictionary of one tile."""
    gram = np.eye(int(TILE), dtype=np.float32)
    atoms, weights, residual = np.empty((1, 2), np.int64), np.empty((1, 2)), np.empty(1)
    pursue(gram[:1], gram, recursive, 0.0, atoms, weights)
    if int8:
        quantise_int8(weights, np.ones(1), np.empty((1, 2), np.int8))
    residuals(gram[:1], gram, atoms, weights, residual)


def assignment() -> None:
    """Assign two points to centroids, and project them."""
    books = lay_out_codebooks(np.zeros((1, ENTRIES, 1), np.float32))
    assign(np.zeros((2, 1), np.float32), books, np.empty((2, 1), np.uint8))
    points = np.zeros((2, 2), np.float32)
    products(points, pack_products(points))


def sparse(*, nq: int, alpha: int, residuals: bool) -> None:
    """Scan sparse codes with int8 weights through the filters."""
    columns: dict[str, Any] = {
        "atoms": np.zeros((ROWS, alpha), np.uint16),
        "weights": np.ones((ROWS, alpha), np.int8),
        "factor": np.full(ROWS, 0.01, np.float32),
        "residual": np.full(ROWS, 0.1, np.float16),
    }
    queries = np.zeros((nq, 1))
    groups = query_groups(
        lambda part: np.ones((ATOMS, len(part)), np.float32), queries, alpha=alpha, int8=True
    )
    SparseScanner(groups, metric="distance" if residuals else "product").scan(
        columns, 0, _full_lists(nq)
    )


def pq(*, nq: int, codes: int) -> None:
    """Scan product-quantisation codes through the filters."""
    scanner = PqScanner(np.ones((codes, ENTRIES, nq), np.float32))
    scanner.scan({"code": np.zeros((ROWS, codes), np.uint8)}, 0, _full_lists(nq))


def bounds(*, factors: list[int]) -> None:
    """Compute bounds with each number of factors."""
    for count in factors:
        ones = np.ones(1, np.float32)
        terms = QueryTerms(step=ones, constant=ones, factors=np.ones((count, 1), np.float32))
        scanner = BoundScanner(column="rows", codes=np.ones((1, 4), np.int8), bias=0, terms=terms)
        scanner.bounds(np.ones((ROWS, 4), np.uint8), np.ones((ROWS, 1 + count), np.float32))


def _full_lists(nq: int) -> TopK:
    """Return full lists, so that a filter has a k-th score to work with."""
    lists = TopK(nq, 1, np.float32)
    lists.scores[:], lists.ids[:] = 1e-3, 0
    return lists


REHEARSALS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (pursuit, assignment, sparse, pq, bounds)
}


def _end_with_parent() -> None:
    """End this process as soon as its parent is gone."""
    with open(0, "rb", buffering=0) as pipe:  # a buffer's lock would delay the end
        pipe.read(1)
    signal.raise_signal(signal.SIGKILL)


def main() -> None:
    """Run the named rehearsal."""
    Thread(target=_end_with_parent, daemon=True).start()
    name, options = sys.argv[1:]
    REHEARSALS[name](**json.loads(options))


if __name__ == "__main__":
    main()

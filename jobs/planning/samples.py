"""Samples of stores: their first rows or parts, and spread rows."""

import numpy as np
from numpy.typing import NDArray

from mercore.stores.codes import CodeStore, SelectedCodes
from mercore.stores.selection import RangeSelection
from mercore.stores.vector_views import SelectedVectors
from mercore.stores.vectors import Vectors


def first_rows(vectors: Vectors, rows: int) -> SelectedVectors:
    """Return the first rows of vectors."""
    return SelectedVectors(vectors, RangeSelection(0, rows))


def first_parts(codes: CodeStore, parts: int) -> SelectedCodes:
    """Return the first parts of codes."""
    return SelectedCodes(codes, RangeSelection(0, codes.bounds(parts - 1)[1]))


def spread_rows(vectors: Vectors, count: int, pieces: int = 16) -> NDArray[np.int64]:
    """Return up to ``count`` ascending rows, int64: a run in each of ``pieces`` spread parts."""
    parts = np.unique(
        np.linspace(0, vectors.parts - 1, min(pieces, vectors.parts)).astype(np.int64)
    )
    each = -(-min(count, vectors.rows) // len(parts))
    runs = [
        np.arange(first, min(first + each, last))
        for first, last in map(vectors.bounds, parts.tolist())
    ]
    return np.concatenate(runs)

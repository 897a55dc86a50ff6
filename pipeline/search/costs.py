"""What exact searches cost in nanoseconds: a model, so that what is chosen by it depends on the data alone."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.kernels import Kernel

EXACT_TERM, PROJECTION = 0.28, 0.05  # of a float64 term, and of a multiplication with the components
PREPARED = {"u": 2.5, "f": 5.0}  # of a row's dimension that is read and prepared: floats are looked at, and widened
COMPARED, A_BYTE, READ_BYTE = 0.08, 0.0036, 0.2  # of a pair, of its bytes, and of a row's byte that is read
PAIR, A_DIMENSION = 100.0, 1.0  # of a row that is fetched and scored in float32, and of its dimensions
EXACT_PAIR, EXACT_DIMENSION = 60.0, 2.6  # of a score in float64, and of its dimensions
STEPS = 4  # times k rows are scored in float64 to raise the k-th score: seeds, and the greatest bounds of windows
BATCH = 8e6  # of a batch: the parts that seeds lie in are read twice, windows begin and end
RAISED = 1.3  # times as many rows are scored as reach the last k-th score


SMALL = 1 << 14  # rows: a store with fewer is searched fast in either way


class Search(NamedTuple):
    """A search: rows, dimensions and dtype of the store, its kernel, queries of a batch, neighbours."""

    rows: int
    dims: int
    dtype: np.dtype[Any]
    kernel: Kernel
    queries: int
    k: int


def every_row(search: Search) -> float:
    """Return what a row and query cost where every row is scored."""
    scored = 1.28 * search.dims * search.kernel.ranking.term_cost
    return scored + PREPARED[search.dtype.kind] * search.dims / search.queries


def by_bounds(search: Search, row_bytes: int, model: Mapping[str, NDArray[Any]], share: float) -> float:
    """Return what a row and query cost by bounds of so many bytes that leave a share of the rows."""
    pair = PAIR + A_DIMENSION * search.dims
    scan = COMPARED + row_bytes * (A_BYTE + READ_BYTE / search.queries)
    landmarks, components = model["projection"].shape if "projection" in model else (0, 0)
    query = landmarks * (EXACT_TERM * search.dims + PROJECTION * components)
    query += STEPS * search.k * (EXACT_PAIR + EXACT_DIMENSION * search.dims)
    fixed = query + BATCH / search.queries
    return float(scan + fixed / search.rows + RAISED * share * pair)

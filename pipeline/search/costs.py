"""A model of the cost of exact searches, in ns: choices by it depend on the data alone."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.kernels import Kernel

EXACT_TERM, PROJECTION = 0.28, 0.05  # per float64 term; per multiplication with a component
# per dimension of a row that is read and prepared: floats are checked and widened
PREPARED = {"u": 2.5, "f": 5.0}
# per pair; per byte of its row; per byte that is read
COMPARED, A_BYTE, READ_BYTE = 0.08, 0.0036, 0.2
# per pair and per coordinate of decoded codes
DECODED, DECODED_BYTE = 0.25, 0.25
PAIR, A_DIMENSION = 100.0, 1.0  # per row that is fetched and scored in float32; per dimension
EXACT_PAIR, EXACT_DIMENSION = 60.0, 2.6  # per score in float64; per dimension
WHOLE, WHOLE_DIMENSION, SUMMED = 0.12, 0.0026, 0.07  # per pair in integers; per row's dimension
# times k rows are scored in float64 to raise the k-th score: seeds, and greatest bounds per window
STEPS = 4
BATCH = 8e6  # per batch: the parts of the seeds are read twice, windows begin and end
RAISED = 1.3  # rows scored, per row that reaches the final k-th score
SMALL = 1 << 14  # rows: a smaller store is searched fast in either way


class Search(NamedTuple):
    """A search: rows, dimensions and dtype of the store, its kernel, queries per batch, and k.

    ``as_bytes``: whether its scores are in integers, of rows and queries of bytes.
    """

    rows: int
    dims: int
    dtype: np.dtype[Any]
    kernel: Kernel
    queries: int
    k: int
    as_bytes: bool


def every_row(search: Search) -> float:
    """Return the cost per row and query if every row is scored."""
    if search.as_bytes:
        per_row = (SUMMED + READ_BYTE) / search.queries
        return WHOLE + search.dims * (WHOLE_DIMENSION + per_row)
    scored = 1.28 * search.dims * search.kernel.ranking.term_cost
    return scored + PREPARED[search.dtype.kind] * search.dims / search.queries


def by_bounds(
    search: Search, row_bytes: int, model: Mapping[str, NDArray[Any]], share: float
) -> float:
    """Return the cost per row and query of bounds of ``row_bytes`` that leave ``share``."""
    pair = PAIR + A_DIMENSION * search.dims
    scan = row_bytes * READ_BYTE / search.queries
    if "grid" in model:  # codes are decoded to coordinates once per batch
        coordinates = len(model["centre"])
        scan += DECODED + coordinates * (A_BYTE + DECODED_BYTE / search.queries)
    else:
        scan += COMPARED + row_bytes * A_BYTE
    width, components = model["projection"].shape if "projection" in model else (0, 0)
    scored = EXACT_TERM * search.dims if "landmarks" in model else 0  # per landmark
    query = width * (scored + PROJECTION * components)
    query += STEPS * search.k * (EXACT_PAIR + EXACT_DIMENSION * search.dims)
    fixed = query + BATCH / search.queries
    return float(scan + fixed / search.rows + RAISED * share * pair)

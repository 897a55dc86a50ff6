"""Re-score rows by the true kernel, from the vectors that codes came from."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels import Kernel
from pipeline.kernels.kernel import Float64
from pipeline.parallel import over_parts
from stores.vectors import Vectors


def true_scores(
    vectors: Vectors, kernel: Kernel, queries: NDArray[Any], rows: NDArray[np.int64], *, threads: int
) -> Float64:
    """Return the true score of each query and each of its rows, float64[nq, R]; −inf where the row is −1.

    Every part of the vector store that holds a wanted row is read once.
    """
    prepared = kernel.prepare(queries, label="query")
    scores = np.full(rows.size, -np.inf)
    order = np.argsort(rows, axis=None, kind="stable")
    order = order[np.searchsorted(rows.ravel()[order], 0) :]  # the −1 come first
    wanted = rows.ravel()[order]

    def work(parts: Iterator[int]) -> None:
        for part in parts:
            first, last = vectors.bounds(part)
            here = slice(*np.searchsorted(wanted, [first, last]))
            chosen, at = np.unique(wanted[here], return_inverse=True)
            values = kernel.prepare(vectors.read_part(part)[chosen - first], first=first)
            scores[order[here]] = kernel.exact_pairs(values, prepared, at, order[here] // rows.shape[1])

    over_parts(np.unique(wanted // vectors.part_rows).tolist(), threads, work)
    return scores.reshape(rows.shape)

"""Choose γ of a kernel: 1 / the median distance of a sample of the rows."""

import numpy as np

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.encoder import draw_rows
from mercore.pipeline.kernels import KINDS, canonical_name, make_kernel
from mercore.pipeline.kernels.transform import ExpChi2
from mercore.stores.errors import InputError
from mercore.stores.vectors import Vectors, gather
from mercore.stores.wording import setting

SAMPLE = 1000  # rows whose distances to one another are measured
DIGITS = 4  # of γ: more would be noise of the sample


def median_gamma(vectors: Vectors, name: str) -> float:
    """Return γ = 1 / median distance of pairs of sampled rows, with four digits.

    The distance is that of the exponent: ‖x − y‖² for rbf, Σ (x − y)² / (x + y) for exp_chi2. The
    sample depends on the number of rows alone.

    Raises
    ------
    InputError
        If the median is 0 or the store has a single row.
    """
    count = min(SAMPLE, vectors.rows)
    rows = gather(vectors, draw_rows(np.random.default_rng(0), vectors.rows, count))
    median = float(np.median(_distances(rows, name))) if count > 1 else 0.0
    if not median > 0:
        raise InputError(
            f"gamma median is 1 / the median distance of rows, which is 0 in {vectors.where}. "
            f"Fix: {setting(gamma=1)}"
        )
    return float(f"{1 / median:.{DIGITS}g}")


def _distances(rows: np.ndarray[tuple[int, ...], np.dtype[np.generic]], name: str) -> Float64:
    """Return the distances of all pairs of raw rows."""
    chi2 = issubclass(KINDS[canonical_name(name)], ExpChi2)
    kernel = make_kernel("chi2" if chi2 else "euclidean")
    prepared = kernel.prepare(rows)
    scores = kernel.exact(prepared, np.ascontiguousarray(prepared.T))
    pairs = scores[np.triu_indices(len(scores), 1)]
    return 2 - 2 * pairs if chi2 else -pairs

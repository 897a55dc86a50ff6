"""The min-max kernel, a generalised Jaccard similarity (Ioffe 2010)."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.kernels import preparation
from mercore.pipeline.kernels.kernel import Kernel
from mercore.pipeline.kernels.preparation import Domain

EPS32, EPS64 = 2.0**-24, 2.0**-53  # unit roundoffs u
Floats = NDArray[np.float64]


class MinMax(Kernel):
    """K(x, y) = Σ min(x, y) / Σ max(x, y) of rows ≥ 0 that are not divided by their sum.

    It is positive semi-definite, and K(x, x) = 1.
    """

    name = "mercore_example.minmax"
    description = "Σ min(x, y) / Σ max(x, y)"
    source = "Ioffe 2010"

    def checked(self, rows: NDArray[Any], first: int, label: str) -> Floats:
        """Return the rows as float64[n, d] if they are finite, ≥ 0, and not all zero."""
        domain = Domain(self.name, signed=False, zero_rows=False)
        return preparation.checked(rows, domain, first=first, label=label)

    def prepare(self, rows: NDArray[Any], *, first: int = 0, label: str = "row") -> Floats:
        """Return the rows as they are: the kernel depends on their lengths."""
        return self.checked(rows, first, label)

    def exact(self, X: Floats, YT: Floats) -> Floats:
        """Return the true scores, float64[n, m].

        Both sums add one dimension after another, so a score has the same bits in every block.
        """
        return _ratio(((X[:, j, None], YT[j]) for j in range(X.shape[1])), (len(X), YT.shape[1]))

    def exact_pairs(
        self, X: Floats, Y: Floats, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]
    ) -> Floats:
        """Return the true scores of pairs, float64[p]."""
        return _ratio(((X[x_rows, j], Y[y_rows, j]) for j in range(X.shape[1])), (len(x_rows),))

    def block(self, X: NDArray[np.float32], YT: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the scores of prepared rows, computed in float64, float32[n, m].

        A kernel that is worth its speed computes them in float32, in a jitted loop.
        """
        scores = self.exact(X.astype(np.float64), YT.astype(np.float64))
        return scores.astype(np.float32)

    def block_error(self, X: Floats, Y: Floats) -> float:
        """Return a bound of |block − exact|.

        A value that float32 rounds changes by a factor 1 ± u, so the ratio by (1 ± u) / (1 ∓ u),
        and the score is rounded once: 3 u, and some for products of errors.
        """
        return 3.01 * EPS32

    def exact_error(self, dims: int) -> float:
        """Return a bound of |exact − real|: d − 1 additions per sum of values ≥ 0, one quotient."""
        return 1.01 * (2 * dims - 1) * EPS64

    def decimal(self, x: NDArray[Any], y: NDArray[Any]) -> Decimal:
        """Return K in real numbers, which decides ties."""
        pairs = [(Decimal(float(a)), Decimal(float(b))) for a, b in zip(x, y, strict=True)]
        return sum(map(min, pairs), Decimal(0)) / sum(map(max, pairs), Decimal(0))


def _ratio(dimensions: Iterable[tuple[Floats, Floats]], shape: tuple[int, ...]) -> Floats:
    """Return Σ min / Σ max, added in the order of the dimensions, float64 of a shape."""
    least, most = np.zeros(shape), np.zeros(shape)
    for x, y in dimensions:
        least += np.minimum(x, y)
        most += np.maximum(x, y)
    return least / most

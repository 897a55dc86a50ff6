"""The Gaussian kernel, a function of a sum of squares."""

from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, Rows
from mercore.pipeline.kernels import decimals
from mercore.pipeline.kernels.panels import Columns
from mercore.pipeline.kernels.sums import EPS32, EPS64, SumKernel, depth, finished_block


class Rbf(SumKernel):
    """K(x, y) = exp(−γ ‖x − y‖²)."""

    name = "rbf"
    description = "exp(−γ ‖x − y‖²)"
    source = "the Gaussian kernel, as scikit-learn's rbf_kernel"
    aliases = ("gaussian", "gauss", "rbf_kernel")
    signed = True
    zero_rows = True
    takes_gamma = True
    raw_metrics = ("distance",)
    relative_ties = True
    terms = "SQUARED"
    scaling = "AS_IT_IS"

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    @property
    def configuration(self) -> dict[str, Any]:
        """``gamma``."""
        return {"gamma": self.gamma}

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return the rows as they are."""
        return self.checked(rows, first, label)

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return K of two raw rows."""
        return (-Decimal(self.gamma) * decimals.squared_distance(x, y)).exp()

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return exp(scale (K − 1)), or K if ``scale`` is 0, float32[n, m].

        An infinite distance scores zero.
        """
        return finished_block(self.terms, X, YT, (-self.gamma, 0.0, True, scale, 0.0))

    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m]."""
        return _exp(-self.gamma * self.sums(X, YT))

    def exact_pairs(
        self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]
    ) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        return _exp(-self.gamma * self.pair_sums(X, Y, x_rows, y_rows))

    @property
    def finish(self) -> tuple[float, bool]:
        """exp(−γ · sum)."""
        return -self.gamma, True

    def prefilter_error(self, queries: Float64) -> float:
        """Return ``block_error`` for a shallower sum, with rounded queries and exact rows.

        It includes squares of differences that underflow: a large γ makes them count.
        """
        d = queries.shape[1]
        moved = np.sqrt(self.gamma) * EPS32 * float(np.sqrt(np.square(queries).sum(1).max()))
        lost = self.gamma * d * 2.0**-149
        return float(0.37 * (depth(d) + 4) * EPS32 + 0.86 * moved + moved**2 + lost) * 1.01

    def block_error(self, X: Float64, Y: Float64) -> float:
        """Bound the error of the exponent t = γ‖x − y‖² and carry it through exp.

        The sum's own rounding is relative, (d + 6) u t, and t exp(−t) ≤ 1/e. Rows rounded to
        float32 move the distance by at most δ = u (‖x‖ + ‖y‖), hence t by √(4γt) δ√γ…, and 2√(γt)
        exp(−t) < 0.86.
        """
        d = X.shape[1]
        reach = EPS32 * float(
            np.sqrt(np.square(X).sum(1).max()) + np.sqrt(np.square(Y).sum(1).max())
        )
        moved = np.sqrt(self.gamma) * reach
        return float(0.37 * (d + 8) * EPS32 + 0.86 * moved + moved**2 + 4 * EPS32) * 1.01

    def exact_error(self, dims: int) -> float:
        """Return (0.37 (d + 3) + 8) u · 1.01; the rows are taken as they are.

        A square (x − y)² is off by 3 u, relatively, the sum of d by d − 1 more and the exponent t
        by one more: in all by ε = (d + 3) u. That moves exp(−t) by ε t exp(−t) ≤ ε / e. exp is
        within 4 ulp of values ≤ 1.
        """
        return float((0.37 * (dims + 3) + 8) * EPS64 * 1.01)


def _exp(values: Float64) -> Float64:
    """Return exp in place."""
    np.exp(values, out=values)
    return values

"""The monotone transform of any kernel: exp(s (κ − 1)) (Jiang, Que & Kulis 2014, Eq. 6)."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, Rows
from mercore.pipeline.kernels.kernel import Kernel
from mercore.pipeline.kernels.panels import Columns
from mercore.pipeline.kernels.sums import EPS32, EPS64, Chi2


class Transformed(Kernel):
    """K(x, y) = exp(s (κ(x, y) − 1)), s > 0: the same neighbours as κ, another geometry."""

    name = "transformed"
    description = "exp(s (κ − 1))"
    source = "Jiang, Que & Kulis 2014, Eq. 6"

    def __init__(self, kernel: Kernel, scale: float) -> None:
        self.kernel = kernel
        self.scale = scale
        self.shared_terms = kernel.shared_terms

    @property
    def configuration(self) -> dict[str, Any]:
        """``scale`` and the spec of κ."""
        return {"scale": self.scale, "kernel": self.kernel.spec()}

    @property
    def ranking(self) -> Kernel:
        """The ranking kernel of κ."""
        return self.kernel.ranking

    def from_ranking(self, scores: Float64) -> Float64:
        """Return the scores of this kernel."""
        return self._apply(self.kernel.from_ranking(scores))

    def checked(self, rows: Rows, first: int, label: str) -> Float64:
        """Check the domain of κ."""
        return self.kernel.checked(rows, first, label)

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return the rows as κ prepares them."""
        return self.kernel.prepare(rows, first=first, label=label)

    def packed(self, YT: Float32) -> Columns:
        """Return columns in the layout that κ's blocks read."""
        return self.kernel.packed(YT)

    def block(self, X: Float32, YT: Columns) -> Float32:
        """Return K of prepared rows, float32[n, m]."""
        return self.kernel.transformed_block(X, YT, self.scale)

    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m]."""
        return self._apply(self.kernel.exact(X, YT))

    def exact_pairs(
        self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]
    ) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        return self._apply(self.kernel.exact_pairs(X, Y, x_rows, y_rows))

    def block_error(self, X: Float64, Y: Float64) -> float:
        """Return exp(s ε) − 1 for κ's error ε, plus 2s + 4 units for the exponent; K ≤ 1.

        Both scores lie in [0, 1], so a bound above 1 need not be tight.
        """
        error = float(np.max(self.kernel.block_error(X, Y))) + 4 * EPS32
        carried = float(np.expm1(min(1.0, self.scale * error)))
        return (carried + 4 * EPS32) * 1.01

    def exact_error(self, dims: int) -> float:
        """Return 1 − exp(−s ε) for κ's error ε, the most between exponents ≤ 0, plus 9 u.

        The exponent t = s (κ − 1) is rounded twice, 2 u |t| exp(t) ≤ 0.74 u; exp is within 4 ulp of
        values ≤ 1.
        """
        return (9 * EPS64 - math.expm1(-self.scale * self.kernel.exact_error(dims))) * 1.01

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return K of two raw rows."""
        inner = self.kernel.decimal(x, y)
        return None if inner is None else (Decimal(self.scale) * (inner - 1)).exp()

    def _apply(self, scores: Float64) -> Float64:
        """Transform κ's scores in place.

        A score that rounding put above 1 counts as 1, or it would grow with s.
        """
        np.minimum(scores, 1, out=scores)
        np.subtract(scores, 1, out=scores)
        np.multiply(scores, self.scale, out=scores)
        np.exp(scores, out=scores)
        return scores


class ExpChi2(Transformed):
    """K(x, y) = exp(−γ Σ (x − y)²/(x + y)): the transform of chi2 with s = 2γ."""

    name = "exp_chi2"
    description = "exp(−γ Σ (x − y)² / (x + y))"
    source = "Zhang et al. 2007; with rows that sum to one"
    aliases = ("exponential_chi2", "expchi2")
    takes_gamma = True
    default_gamma = 1.0

    def __init__(self, gamma: float) -> None:
        super().__init__(Chi2(), 2 * gamma)
        self.gamma = gamma

    @property
    def configuration(self) -> dict[str, Any]:
        """``gamma``."""
        return {"gamma": self.gamma}

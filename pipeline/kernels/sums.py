"""Kernels that sum over dimensions: cosine, Hellinger, χ², intersection, Jensen–Shannon; and rbf, a function of one."""

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, Rows
from mercore.pipeline.kernels import blocks, blocks_numba, loops_numba, prefilter, prefilter_numba, preparation
from mercore.pipeline.kernels.kernel import Kernel
from mercore.pipeline.kernels.panels import Columns
from mercore.pipeline.kernels.prefilter import Prefilter
from mercore.pipeline.kernels.preparation import Domain

EPS32 = float(np.finfo(np.float32).eps) / 2  # unit roundoff u
EPS64 = float(np.finfo(np.float64).eps) / 2
TINY = 1e-30  # far below any term that counts, far above the subnormals


def depth(d: int) -> float:
    """Return how often a term is rounded at most in a sum of d by sixteen lanes and their halves."""
    return min(d, d / 16 + 5)


class SumKernel(Kernel):
    """A kernel whose score is a sum of terms over the dimensions."""

    terms: ClassVar[str]
    scaling: ClassVar[str]  # of the rows, one of those of ``prefilter_numba``

    def sums(self, X: Float64, YT: Float64, terms: str | None = None) -> Float64:
        """Return the sums of the kernel's terms, or of those that are named, float64[n, m]."""
        out = np.empty((X.shape[0], YT.shape[1]))
        chosen = getattr(loops_numba, terms or self.terms)
        loops_numba.cross(chosen, np.ascontiguousarray(X), np.ascontiguousarray(YT), TINY, out)
        return out

    def pair_sums(self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]) -> Float64:
        """Return the sums of terms of pairs, float64[p]."""
        out = np.empty(len(x_rows))
        loops_numba.pairs(getattr(loops_numba, self.terms), X, Y, x_rows, y_rows, TINY, out)
        return out

    def prefilter(self, queries: Float64) -> Prefilter:
        """Return what rules out pairs of raw rows and prepared queries in float32."""
        share, exponential = self.finish
        sums = prefilter.Sums(
            terms=getattr(loops_numba, self.terms),
            scaling=getattr(prefilter_numba, self.scaling),
            share=share,
            exponential=exponential,
            error=self.prefilter_error(queries),
        )
        return prefilter.Prefilter(sums, queries)

    @property
    def finish(self) -> tuple[float, bool]:
        """What a score is times its sum of terms, and whether it is the exponential of that."""
        return 1.0, False

    @abstractmethod
    def prefilter_error(self, queries: Float64) -> float:
        """Return a bound of |screened − exact| for any rows and these prepared queries."""

    def packed(self, YT: Float32) -> Columns:
        """Return columns YT [d, m] as the loops read them."""
        return blocks.pack(getattr(loops_numba, self.terms), YT)

    def block(self, X: Float32, YT: Columns) -> Float32:
        """Return K of prepared rows, float32[n, m]."""
        return self.transformed_block(X, YT, 0.0)

    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m]."""
        return self.sums(X, YT)

    def exact_pairs(self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        return self.pair_sums(X, Y, x_rows, y_rows)


class _Histogram(SumKernel):
    """An additive kernel of rows that sum to one: homogeneous, so a relative error of the rows is one of the score.

    What blocks sum makes the score as ``factor`` · sum + ``share`` · Σ x, and ``roundings(d)`` u bounds their error.
    """

    factor: ClassVar[float] = 1.0
    share: ClassVar[float] = 0.0
    scaling = "SUM_ONE"
    exact_roundings: ClassVar[int] = 0  # of u that the terms of ``exact`` together are off at most

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return rows that sum to one."""
        values = preparation.checked(rows, Domain(self.name, signed=False, zero_rows=False), first=first, label=label)
        return preparation.l1_normalised(values)

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return exp(scale (K − 1)), or K if ``scale`` is 0, float32[n, m]."""
        return _score(self.terms, X, YT, (self.factor, self.share, False, scale, 0.0))

    def roundings(self, d: int) -> float:
        """Return how many u a block of d dimensions is off at most: d − 1 for the sum, 1 for rounded rows; K ≤ 1."""
        return d

    def block_error(self, X: Float64, Y: Float64) -> float:
        """Return the roundings in units of u; 1 % more is for their products, underflow and what keeps from 0/0."""
        return float(self.roundings(X.shape[1]) * EPS32 * 1.01)

    def prefilter_error(self, queries: Float64) -> float:
        """Return the roundings in units of u: of the sums of terms and of the row, 2 of its values, 1 of the query's.

        The rows are as homogeneous as those of ``exact_error``; 1 % more is for what that one leaves it for.
        """
        dims = queries.shape[1]
        return float((2 * depth(dims) + 3 + self.prefilter_roundings(dims)) * EPS32 * 1.01)

    def prefilter_roundings(self, d: int) -> float:
        """Return how many u the terms that a screen adds are off together: none, if nothing is computed of values."""
        return 0

    def exact_error(self, dims: int) -> float:
        """Return the roundings in units of u: of the d − 1 additions, of the terms, and of the rows.

        The terms are ≥ 0, sum to K ≤ 1, and grow with each value: rows off by a factor 1 + ε put K off by no more.
        1 % more is for products of roundings, underflow and what keeps chi2 from 0/0, 5e−31 a dimension.
        """
        roundings = dims - 1 + self.exact_roundings + preparation.l1_roundings(dims)
        return float(roundings * EPS64 * 1.01)


class Chi2(_Histogram):
    """K(x, y) = Σ 2xy / (x + y) (Bourrier et al. 2015, Eq. 19, with the factor that K(x, x) = 1 needs).

    Blocks compute it as 2 Σ x − 2 Σ x² / (x + y): one operation less, and two terms share a division.
    """

    name = "chi2"
    terms = "CHI2"
    factor = -2.0
    share = 2.0
    exact_roundings = 7  # of two terms with one division; of one alone 4: the product, x + y, what keeps it from 0, ÷

    def landmark_values(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m], two terms to a division.

        (2xy t + 2x₂y₂ s) / (s t), s = x + y + 1e-30, is within 7 u of its terms: 2 of s (t stands above and below it),
        and one each of the product, that with t, their sum, s t, and the quotient.
        """
        return self.sums(X, YT, "CHI2_BY_TWOS")

    def prefilter_roundings(self, d: int) -> float:
        """Return 4, of the product, x + y, what keeps it from 0, and the quotient."""
        return 4

    def roundings(self, d: int) -> float:
        """Return d + 25.

        Two terms (p t + q s) / (s t), p = x², s = x + y + 1e-18, are within 11 u of theirs: 1 for a square, 2 for a
        sum of two, at most 5 for the numerator, 5 for the denominator, 1 for the quotient. Then (d − 1) / 2 additions.
        All that twice, of at most Σ x² / (x + y) ≤ 1; 2 for 2 Σ x, 1 for the difference, 1 for rounded rows.
        """
        return d + 25


class Intersection(_Histogram):
    """K(x, y) = Σ min(x, y)."""

    name = "intersection"
    terms = "INTERSECTION"


class JensenShannon(_Histogram):
    """K(x, y) = Σ ½ [x log2((x + y)/x) + y log2((x + y)/y)].

    Blocks compute it as ½ Σ [f(x + y) − f(x) − f(y)], f(s) = s log2 s: one logarithm, where there were two.

    In ``exact`` the argument of a logarithm is off by 2 u, which adds 2 u / ln 2 to it: times ½ Σ (x + y) = 1, that is
    2.9 u. Within 4 ulp the logarithm itself is 8 u off, relatively; two more are the product and the sum of a term.
    """

    name = "jensen_shannon"
    terms = "JENSEN_SHANNON"
    factor = 0.5
    exact_roundings = 13

    @property
    def finish(self) -> tuple[float, bool]:
        """Half of the sum."""
        return self.factor, False

    def prefilter_roundings(self, d: int) -> float:
        """Return 11 + 9.5 log2 d, of ½ Σ [f(x + y) − f(x) − f(y)].

        A logarithm is within 2 (1 + |log2|) u. So f(x + y) is off by 3.5 (x + y) + 4 |f(x + y)|, f(x) by 2 x + 2 |f(x)|
        and f(y) by 2 y + 3 |f(y)|; their sum and the difference round |f(x + y)| + 2 |f(x)| + 2 |f(y)|. Added up by the
        sums that ``roundings`` names, half of that is 10.5 + 9.5 log2 d.
        """
        return 11 + 9.5 * math.log2(d)

    def roundings(self, d: int) -> float:
        """Return d + 10 + 5.5 log2 d.

        A logarithm is within (1.3 + |log2|) u, and Σ |f(x)| ≤ log2 d, Σ |f(x + y)| ≤ 2 (1 + log2 d). So in halves of u:
        f(x + y) is off by 5.5 + 2 Σ |f(x + y)|, f(x) and f(y) by 2.6 + 2 (Σ |f(x)| + Σ |f(y)|), the first difference
        rounds Σ |f(x + y)| + Σ |f(y)|, the second and the sum 2 + 2 d. Another u is for rounded rows.
        """
        return d + 10 + 5.5 * math.log2(d)


class _Inner(SumKernel):
    """An inner product of unit vectors."""

    terms = "PRODUCT"

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return exp(scale (K − 1)), or K if ``scale`` is 0, float32[n, m]."""
        return _score(self.terms, X, YT, (1.0, 0.0, False, scale, -math.inf))

    def block_error(self, X: Float64, Y: Float64) -> float:
        """Return (d + 4) u · 1.01: |fl(Σ xy) − Σ xy| ≤ γ_d Σ|xy| and Σ|xy| ≤ ‖x‖‖y‖ = 1, rows rounded once each."""
        return float((X.shape[1] + 4) * EPS32 * 1.01)

    def exact_error(self, dims: int) -> float:
        """Return the roundings in units of u: d for the products and their sum, for Σ|xy| ≤ 1, and those of two rows.

        1 % more is for products of roundings, and for underflow.
        """
        return float((dims + 2 * self.row_roundings(dims)) * EPS64 * 1.01)

    def prefilter_error(self, queries: Float64) -> float:
        """Return the roundings in units of u: of the sum for Σ|xy| ≤ 1, of the row, and of the query.

        Half of the row's are those of a sum, for they are of its root; 4 are the root, two products and the query's.
        """
        return float((1.5 * depth(queries.shape[1]) + 5) * EPS32 * 1.01)

    @abstractmethod
    def row_roundings(self, d: int) -> float:
        """Return how many u a value of a prepared row is off at most, relatively."""


class Cosine(_Inner):
    """K(x, y) = ⟨x, y⟩ / (‖x‖ ‖y‖)."""

    name = "cosine"
    scaling = "NORM_ONE"

    def row_roundings(self, d: int) -> float:
        """Return 4.5 + d / 2: 2 for the divisions, 1 for the root, and half of 3 for the squares and d for their sum.

        So it holds in whatever order NumPy adds.
        """
        return 4.5 + d / 2

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return rows of unit norm."""
        values = preparation.checked(rows, Domain(self.name, signed=True, zero_rows=False), first=first, label=label)
        return preparation.l2_normalised(values)


class Hellinger(_Inner):
    """K(x, y) = Σ √(xy) of rows that sum to one."""

    name = "hellinger"
    scaling = "ROOTS"

    def row_roundings(self, d: int) -> float:
        """Return half of those of rows that sum to one, and 1 for the root."""
        return preparation.l1_roundings(d) / 2 + 1

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return the square roots of rows that sum to one."""
        values = preparation.checked(rows, Domain(self.name, signed=False, zero_rows=False), first=first, label=label)
        return np.sqrt(preparation.l1_normalised(values))


class Rbf(SumKernel):
    """K(x, y) = exp(−γ ‖x − y‖²)."""

    name = "rbf"
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
        return preparation.checked(rows, Domain(self.name, signed=True, zero_rows=True), first=first, label=label)

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return exp(scale (K − 1)), or K if ``scale`` is 0, float32[n, m]; an infinite distance scores zero."""
        return _score(self.terms, X, YT, (-self.gamma, 0.0, True, scale, 0.0))

    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m]."""
        return _exp(-self.gamma * self.sums(X, YT))

    def exact_pairs(self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        return _exp(-self.gamma * self.pair_sums(X, Y, x_rows, y_rows))

    @property
    def finish(self) -> tuple[float, bool]:
        """exp(−γ · sum)."""
        return -self.gamma, True

    def prefilter_error(self, queries: Float64) -> float:
        """Return what ``block_error`` does, of a shallower sum and of rounded queries: rows are float32 as they are.

        Squares of differences that underflow are in it too, for γ may make much of them.
        """
        d = queries.shape[1]
        moved = np.sqrt(self.gamma) * EPS32 * float(np.sqrt(np.square(queries).sum(1).max()))
        lost = self.gamma * d * 2.0**-149
        return float(0.37 * (depth(d) + 4) * EPS32 + 0.86 * moved + moved**2 + lost) * 1.01

    def block_error(self, X: Float64, Y: Float64) -> float:
        """Bound the error of the exponent t = γ‖x − y‖² and carry it through exp.

        The sum's own rounding is relative, (d + 6) u t, and t exp(−t) ≤ 1/e. Rows rounded to float32 move the distance
        by at most δ = u (‖x‖ + ‖y‖), hence t by √(4γt) δ√γ…, and 2√(γt) exp(−t) < 0.86.
        """
        d = X.shape[1]
        reach = EPS32 * float(np.sqrt(np.square(X).sum(1).max()) + np.sqrt(np.square(Y).sum(1).max()))
        moved = np.sqrt(self.gamma) * reach
        return float(0.37 * (d + 8) * EPS32 + 0.86 * moved + moved**2 + 4 * EPS32) * 1.01

    def exact_error(self, dims: int) -> float:
        """Return (0.37 (d + 3) + 8) u · 1.01; the rows are taken as they are.

        A square (x − y)² is off by 3 u, relatively, the sum of d by d − 1 more and the exponent t by one more: in all
        by ε = (d + 3) u. That moves exp(−t) by ε t exp(−t) ≤ ε / e. exp is within 4 ulp of values ≤ 1.
        """
        return float((0.37 * (dims + 3) + 8) * EPS64 * 1.01)


def _score(terms: str, X: Float32, YT: Columns, finish: tuple[float, float, bool, float, float]) -> Float32:
    """Return the scores of a block, float32[n, m]; ``finish`` makes them of the sums."""
    return blocks.score_block(getattr(loops_numba, terms), X, YT, blocks_numba.Finish(*finish))


def _exp(values: Float64) -> Float64:
    """Return exp in place."""
    np.exp(values, out=values)
    return values

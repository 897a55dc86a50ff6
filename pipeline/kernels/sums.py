"""Kernels that are sums of terms over the dimensions."""

import functools
import math
from abc import abstractmethod
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, Rows
from mercore.pipeline.kernels import decimals, preparation
from mercore.pipeline.kernels.decimals import BITS, Shape
from mercore.pipeline.kernels.kernel import Kernel
from mercore.pipeline.kernels.panels import Columns
from mercore.pipeline.kernels.preparation import Domain

if TYPE_CHECKING:
    from mercore.pipeline.kernels.prefilter import Prefilter

EPS32 = float(np.finfo(np.float32).eps) / 2  # unit roundoff u
EPS64 = float(np.finfo(np.float64).eps) / 2
LEAST_TERM = 2.0**-148  # error of a float32 term that underflows
SHAPES = 64  # whose decimal scores are cached: rows that tie with one another follow one another
TINY = 1e-30  # far below any term that counts, far above the subnormals


def depth(d: int) -> float:
    """Return the most roundings of a term when sixteen lanes add d terms, then their halves."""
    return min(d, d / 16 + 5)


class SumKernel(Kernel):
    """A kernel whose score is a sum of terms over the dimensions, or a function of that sum."""

    terms: ClassVar[str]
    """The name of the terms in ``terms_numba``."""

    scaling: ClassVar[str]
    """The name in ``prefilter_numba`` of the scaling of raw rows."""

    def checked(self, rows: Rows, first: int, label: str) -> Float64:
        """Return raw rows as float64[n, d] after checking that they lie in the kernel's domain."""
        domain = Domain(self.name, signed=self.signed, zero_rows=self.zero_rows)
        return preparation.checked(rows, domain, first=first, label=label)

    def sums(self, X: Float64, YT: Float64, terms: str | None = None) -> Float64:
        """Return the sums of the kernel's terms, or of the named ones, float64[n, m]."""
        from mercore.pipeline.kernels import pair_sums_numba

        out = np.empty((X.shape[0], YT.shape[1]))
        chosen = _number_of(terms or self.terms)
        pair_sums_numba.sum_terms(
            chosen, np.ascontiguousarray(X), np.ascontiguousarray(YT), TINY, out
        )
        return out

    def pair_sums(
        self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]
    ) -> Float64:
        """Return the sums of the kernel's terms of pairs, float64[p]."""
        from mercore.pipeline.kernels import pair_sums_numba

        out = np.empty(len(x_rows))
        pair_sums_numba.pairs(_number_of(self.terms), X, Y, x_rows, y_rows, TINY, out)
        return out

    def prefilter(self, queries: Float64) -> "Prefilter | None":
        """Return the float32 prefilter of raw rows for prepared queries."""
        from mercore.pipeline.kernels import prefilter, prefilter_numba

        share, exponential = self.finish
        sums = prefilter.Sums(
            terms=_number_of(self.terms),
            scaling=getattr(prefilter_numba, self.scaling),
            share=share,
            exponential=exponential,
            error=self.prefilter_error(queries),
            relative=self.relative_error,
            underflow=queries.shape[1] * LEAST_TERM,
        )
        return prefilter.Prefilter(sums, queries)

    @property
    def finish(self) -> tuple[float, bool]:
        """The factor of the sum of terms, and whether the score is the exponential of that."""
        return 1.0, False

    @abstractmethod
    def prefilter_error(self, queries: Float64) -> float:
        """Return a bound of |prefilter − exact| for any rows and these prepared queries.

        It is a share of the score if ``exact_error`` is one.
        """

    def packed(self, YT: Float32) -> Columns:
        """Return columns YT [d, m] in the layout that the jitted functions read."""
        from mercore.pipeline.kernels import blocks

        return blocks.pack(_number_of(self.terms), YT)

    def block(self, X: Float32, YT: Columns) -> Float32:
        """Return K of prepared rows, float32[n, m]."""
        return self.transformed_block(X, YT, 0.0)

    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m]."""
        return self.sums(X, YT)

    def exact_pairs(
        self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]
    ) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        return self.pair_sums(X, Y, x_rows, y_rows)


class _Histogram(SumKernel):
    """An additive kernel of rows that sum to one.

    It is homogeneous, so a relative error of the rows is a relative error of the score. A block's
    score is ``factor`` · sum + ``share`` · Σ x, and ``roundings(d)`` u bounds its error.
    """

    factor: ClassVar[float] = 1.0
    share: ClassVar[float] = 0.0
    scaling = "SUM_ONE"
    shared_terms = True
    exact_roundings: ClassVar[int] = 0  # bound, in u, of the error of all exact terms

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return rows that sum to one."""
        return preparation.l1_normalised(self.checked(rows, first, label))

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return exp(scale (K − 1)), or K if ``scale`` is 0, float32[n, m]."""
        return finished_block(self.terms, X, YT, (self.factor, self.share, False, scale, 0.0))

    def roundings(self, d: int) -> float:
        """Return the bound, in u, of a block's error: d − 1 for the sum, 1 for rounded rows.

        K ≤ 1.
        """
        return d

    def block_error(self, X: Float64, Y: Float64) -> float:
        """Return the roundings in units of u.

        1 % more is for their products, underflow and the guard of 0/0.
        """
        return float(self.roundings(X.shape[1]) * EPS32 * 1.01)

    def prefilter_error(self, queries: Float64) -> float:
        """Return the roundings in u: those of both sums, 2 of the row's values, 1 of the query's.

        Relative errors of rows carry over as in ``exact_error``, and 1 % more is for the same
        reasons.
        """
        dims = queries.shape[1]
        return float((2 * depth(dims) + 3 + self.prefilter_roundings(dims)) * EPS32 * 1.01)

    def prefilter_roundings(self, d: int) -> float:
        """Return the bound, in u, of the error of all float32 terms: 0 for minima."""
        return 0

    def exact_error(self, dims: int) -> float:
        """Return the roundings in units of u: of d − 1 additions, of terms, and of rows.

        The terms are ≥ 0, sum to K ≤ 1, and grow with each value: rows that are off by a factor 1 +
        ε move K by at most that factor. 1 % more is for products of roundings, for underflow, and
        for the guard of chi2 against 0/0, 5e−31 per dimension.
        """
        roundings = dims - 1 + self.exact_roundings + preparation.l1_roundings(dims)
        return float(roundings * EPS64 * 1.01)


class Chi2(_Histogram):
    """K(x, y) = Σ 2xy / (x + y) (Bourrier et al. 2015, Eq. 19, with a factor for K(x, x) = 1).

    Blocks compute it as 2 Σ x − 2 Σ x² / (x + y): one operation less, and two terms share a
    division.
    """

    name = "chi2"
    description = "Σ 2xy / (x + y)"
    source = "Bourrier et al. 2015, Eq. 19, times 2; Vedaldi & Zisserman 2012"
    aliases = ("additive_chi2", "chi_square", "chi_squared", "chisquare")
    term_cost = 0.028
    terms = "CHI2"
    term_bound = "root"
    factor = -2.0
    share = 2.0
    exact_roundings = 7  # two terms, one division; 4 for one: product, x + y, guard of 0, ÷

    def landmark_values(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m], two terms per division.

        (2xy t + 2x₂y₂ s) / (s t), s = x + y + 1e-30, is within 7 u of its terms: 2 of s (t stands
        above and below it), and one each of the product, that with t, their sum, s t, and the
        quotient.
        """
        return self.sums(X, YT, "CHI2_BY_TWOS")

    def prefilter_roundings(self, d: int) -> float:
        """Return 4: the product, x + y, the guard of 0, and the quotient."""
        return 4

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return K of two raw rows."""
        a, b, _ = decimals.integers(x, y)
        X, Y = sum(a), sum(b)
        terms = ((p * q << BITS + 1) // (p * Y + q * X) for p, q in decimals.shared(a, b))
        return decimals.from_units(sum(terms))

    def roundings(self, d: int) -> float:
        """Return d + 25.

        Two terms (p t + q s) / (s t), p = x², s = x + y + 1e-18, are within 11 u of theirs: 1 for a
        square, 2 for a sum of two, at most 5 for the numerator, 5 for the denominator, 1 for the
        quotient. Then (d − 1) / 2 additions. All that twice, of at most Σ x² / (x + y) ≤ 1; 2 for 2
        Σ x, 1 for the difference, 1 for rounded rows.
        """
        return d + 25


class Intersection(_Histogram):
    """K(x, y) = Σ min(x, y)."""

    name = "intersection"
    description = "Σ min(x, y)"
    source = "Swain & Ballard 1991; Bourrier et al. 2015"
    aliases = ("hik", "histogram_intersection", "histogram_intersection_kernel")
    terms = "INTERSECTION"
    term_bound = "minimum"

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return K of two raw rows."""
        a, b, _ = decimals.integers(x, y)
        X, Y = sum(a), sum(b)
        terms = (min(p * Y, q * X) for p, q in decimals.shared(a, b))
        return decimals.from_units((sum(terms) << BITS) // (X * Y))


class JensenShannon(_Histogram):
    """K(x, y) = Σ ½ [x log2((x + y)/x) + y log2((x + y)/y)].

    Blocks compute it as ½ Σ [f(x + y) − f(x) − f(y)], f(s) = s log2 s: one logarithm per term, not
    two.

    In ``exact`` the argument of a logarithm is off by 2 u, which adds 2 u / ln 2 to it: times ½ Σ
    (x + y) = 1, that is 2.9 u. The logarithm itself, within 4 ulp, is off by 8 u, relatively; the
    product and the sum of a term add 2 u.
    """

    name = "jensen_shannon"
    description = "Σ ½ [x log2((x + y)/x) + y log2((x + y)/y)]"
    source = "Hein & Bousquet 2005; Vedaldi & Zisserman 2012"
    aliases = ("js", "jensenshannon")
    term_cost = 0.125
    terms = "JENSEN_SHANNON"
    term_bound = "root"
    factor = 0.5
    exact_roundings = 13

    @property
    def finish(self) -> tuple[float, bool]:
        """Half of the sum."""
        return self.factor, False

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return K of two raw rows."""
        return self.decimal_of_shape(decimals.shape(x, y))

    @staticmethod
    @functools.lru_cache(maxsize=SHAPES)
    def decimal_of_shape(shape: Shape) -> Decimal:
        """Return K of two rows of one ``decimals.shape``.

        Different rows that tie mostly have the same shape, and logarithms to 130 digits are slow.
        """
        X, Y = sum(a for a, _ in shape), sum(b for _, b in shape)
        total = Decimal(0)
        for a, b in ((a * Y, b * X) for a, b in shape if a and b):
            both = Decimal(a + b)
            total += a * (both / a).ln() + b * (both / b).ln()
        return total / (2 * X * Y * Decimal(2).ln())

    def prefilter_roundings(self, d: int) -> float:
        """Return 11 + 9.5 log2 d, of ½ Σ [f(x + y) − f(x) − f(y)].

        A logarithm is within 2 (1 + |log2|) u. So f(x + y) is off by 3.5 (x + y) + 4 |f(x + y)|,
        f(x) by 2 x + 2 |f(x)| and f(y) by 2 y + 3 |f(y)|; their sum and the difference round |f(x +
        y)| + 2 |f(x)| + 2 |f(y)|. Added up by the sums that ``roundings`` names, half of that is
        10.5 + 9.5 log2 d.
        """
        return 11 + 9.5 * math.log2(d)

    def roundings(self, d: int) -> float:
        """Return d + 10 + 5.5 log2 d.

        A logarithm is within (1.3 + |log2|) u, and Σ |f(x)| ≤ log2 d, Σ |f(x + y)| ≤ 2 (1 + log2
        d). So in halves of u: f(x + y) is off by 5.5 + 2 Σ |f(x + y)|, f(x) and f(y) by 2.6 + 2 (Σ
        |f(x)| + Σ |f(y)|), the first difference rounds Σ |f(x + y)| + Σ |f(y)|, the second and the
        sum 2 + 2 d. Another u is for rounded rows.
        """
        return d + 10 + 5.5 * math.log2(d)


class _Inner(SumKernel):
    """An inner product of unit vectors."""

    terms = "PRODUCT"
    raw_metrics = ("distance", "product")
    shared_terms = True

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return exp(scale (K − 1)), or K if ``scale`` is 0, float32[n, m]."""
        return finished_block(self.terms, X, YT, (1.0, 0.0, False, scale, -math.inf))

    def block_error(self, X: Float64, Y: Float64) -> float:
        """Return (d + 4) u · 1.01: |fl(Σ xy) − Σ xy| ≤ γ_d Σ|xy| ≤ γ_d, rows rounded once each."""
        return float((X.shape[1] + 4) * EPS32 * 1.01)

    def exact_error(self, dims: int) -> float:
        """Return the roundings in units of u: d for the sum, as Σ|xy| ≤ 1, and those of two rows.

        1 % more is for products of roundings, and for underflow.
        """
        return float((dims + 2 * self.row_roundings(dims)) * EPS64 * 1.01)

    def prefilter_error(self, queries: Float64) -> float:
        """Return the roundings in units of u: of the sum, as Σ|xy| ≤ 1, the row and the query.

        The row's are half of those of a sum, because it is divided by a root; 4 are for the root,
        two products and the query.
        """
        return float((1.5 * depth(queries.shape[1]) + 5) * EPS32 * 1.01)

    @abstractmethod
    def row_roundings(self, d: int) -> float:
        """Return the bound, in u, of the relative error of a value of a prepared row."""


class Cosine(_Inner):
    """K(x, y) = ⟨x, y⟩ / (‖x‖ ‖y‖)."""

    name = "cosine"
    description = "⟨x, y⟩ / (‖x‖ ‖y‖)"
    source = "the cosine similarity, as scikit-learn's cosine_similarity"
    aliases = ("angular", "cosine_similarity", "cos")
    signed = True
    scaling = "NORM_ONE"
    of_bytes = "cosine"

    def row_roundings(self, d: int) -> float:
        """Return 4.5 + d / 2: 2 for ÷, 1 for √, half of 3 for squares, half of d for their sum.

        It holds for every order in which NumPy may add.
        """
        return 4.5 + d / 2

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return rows of unit norm."""
        return preparation.l2_normalised(self.checked(rows, first, label))

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return K of two raw rows."""
        a, b, _ = decimals.integers(x, y)
        product = sum(p * q for p, q in zip(a, b, strict=True))
        squares = sum(p * p for p in a) * sum(q * q for q in b)
        size = math.isqrt((product * product << 2 * BITS) // squares)
        return decimals.from_units(size if product >= 0 else -size)


class Hellinger(_Inner):
    """K(x, y) = Σ √(xy) of rows that sum to one."""

    name = "hellinger"
    description = "Σ √(xy)"
    source = "Bhattacharyya 1943; Vedaldi & Zisserman 2012"
    aliases = ("bhattacharyya",)
    term_bound = "root"
    scaling = "ROOTS"

    def row_roundings(self, d: int) -> float:
        """Return half the error of rows that sum to one, and 1 for the root."""
        return preparation.l1_roundings(d) / 2 + 1

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return the square roots of rows that sum to one."""
        return np.sqrt(preparation.l1_normalised(self.checked(rows, first, label)))

    def histograms(self, prepared: Float64) -> Float64:
        """Return the squares of prepared rows."""
        return np.square(prepared)

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return K of two raw rows."""
        a, b, _ = decimals.integers(x, y)
        both = sum(a) * sum(b)
        terms = (math.isqrt((p * q << 2 * BITS) // both) for p, q in decimals.shared(a, b))
        return decimals.from_units(sum(terms))


SUM_KERNELS = (Cosine, Hellinger, Chi2, Intersection, JensenShannon)


def _number_of(terms: str) -> int:
    """Return the number of the terms that a name in ``terms_numba`` stands for."""
    from mercore.pipeline.kernels import terms_numba

    number: int = getattr(terms_numba, terms)
    return number


def finished_block(
    terms: str, X: Float32, YT: Columns, finish: tuple[float, float, bool, float, float]
) -> Float32:
    """Return the scores of a block, float32[n, m]; ``finish`` makes a score of a sum."""
    from mercore.pipeline.kernels import blocks, blocks_numba

    return blocks.score_block(_number_of(terms), X, YT, blocks_numba.Finish(*finish))

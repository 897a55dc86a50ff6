"""Euclidean distance and inner product: similarities of raw rows, whose scores have no maximum.

Inside, the larger score is the nearer row, as for every kernel. Errors are shares of a score.
"""

import math
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, Rows
from mercore.pipeline.kernels import decimals
from mercore.pipeline.kernels.panels import Columns, Panels
from mercore.pipeline.kernels.sums import EPS32, EPS64, LEAST_TERM, SumKernel, depth, finished_block

LARGEST = 1e37  # of float32 sums that cannot overflow


class RawKernel(SumKernel):
    """A similarity of rows as they are: any finite rows, no K(x, x) = 1."""

    signed = True
    zero_rows = True
    normalised = False
    relative_error = True
    relative_ties = True
    scaling = "AS_IT_IS"

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return the rows as they are."""
        return self.checked(rows, first, label)


class Euclidean(RawKernel):
    """The distance ‖x − y‖. Inside, the score is −‖x − y‖²."""

    name = "euclidean"
    description = "‖x − y‖, the Euclidean (L2) distance"
    score = "the distance ‖x − y‖ itself, not squared; smaller is nearer"
    source = "the L2 distance of faiss (which squares it), scikit-learn and ann-benchmarks"
    aliases = ("l2",)
    ascending = True
    raw_metrics = ("distance",)
    of_bytes = "distance"
    terms = "SQUARED"

    def shown(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the distances, in the dtype of the scores; an upper bound above 0 becomes 0."""
        distances: NDArray[np.floating] = np.sqrt(np.maximum(-scores, 0)) + scores.dtype.type(0)
        return distances

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return −‖x − y‖² of two raw rows."""
        return -decimals.squared_distance(x, y)

    def packed(self, YT: Float32) -> Columns:
        """Return the columns (2 y, −1, −‖y‖²), packed for products: see ``transformed_block``."""
        from mercore.pipeline.kernels import blocks

        ones = np.ones((1, YT.shape[1]), np.float32)
        with np.errstate(over="ignore"):
            squares = np.square(YT).sum(axis=0, keepdims=True)
            return blocks.pack_products(np.concatenate([2 * YT, -ones, -squares]))

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return −‖x − y‖², float32[n, m]; ``scale`` must be 0.

        It is the product of (x, ‖x‖², 1) and (2 y, −1, −‖y‖²), which is faster than a sum of
        squares. See ``_finite`` for overflow.
        """
        from mercore.pipeline.kernels import blocks

        assert scale == 0
        n, d = X.shape
        columns = YT if isinstance(YT, Panels) else self.packed(YT)
        extended = np.ones((n, d + 2), np.float32)
        extended[:, :d] = X
        np.einsum("ij,ij->i", X, X, out=extended[:, d])
        return _finite(blocks.products(extended, columns))

    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m]."""
        return np.subtract(0.0, self.sums(X, YT))

    def exact_pairs(
        self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]
    ) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        return np.subtract(0.0, self.pair_sums(X, Y, x_rows, y_rows))

    @property
    def finish(self) -> tuple[float, bool]:
        """−sum."""
        return -1.0, False

    def prefilter_error(self, queries: Float64) -> float:
        """Return the relative error of a float32 sum: 3 u of a square, and those of the sum."""
        return float((depth(queries.shape[1]) + 4) * EPS32 * 1.01)

    def block_error(self, X: Float64, Y: Float64) -> Float64:
        """Return a share of (‖x‖ + ‖y‖)² for the largest ‖x‖.

        ‖x‖² and ‖y‖² are off by d u of themselves, and the sum of d + 2 products, whose sizes add
        up to (‖x‖ + ‖y‖)², by (d + 2) u of that. Rows that are no float32 move by u of their norms,
        and the squared distance by (2 u + u²) (‖x‖ + ‖y‖)².
        """
        reach = np.square(_norms(X).max() + _norms(Y)) * 1.01
        error = (2 * X.shape[1] + 10) * EPS32 * reach + 3 * X.shape[1] * LEAST_TERM
        return np.where(reach < LARGEST, error, np.inf)

    def exact_error(self, dims: int) -> float:
        """Return (d + 2) u · 1.01: 3 u of a square, d − 1 additions; no term is negative."""
        return float((dims + 2) * EPS64 * 1.01)


class InnerProduct(RawKernel):
    """K(x, y) = ⟨x, y⟩ of rows as they are."""

    name = "inner_product"
    description = "⟨x, y⟩, the inner product of rows as they are"
    score = "⟨x, y⟩, which may be negative; larger is nearer"
    source = "maximum inner product search, as in faiss and big-ann"
    aliases = ("ip", "dot", "dot_product", "mips", "linear")
    raw_metrics = ("product",)
    of_bytes = "product"
    shared_terms = True
    terms = "PRODUCT"

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return ⟨x, y⟩ of two raw rows."""
        a, b, exponent = decimals.integers(x, y)
        return sum(p * q for p, q in zip(a, b, strict=True)) * Decimal(4) ** exponent

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return ⟨x, y⟩, float32[n, m]; ``scale`` must be 0.

        A score that overflowed becomes the largest float32: ``block_error`` is infinite there.
        """
        assert scale == 0
        return _finite(finished_block(self.terms, X, YT, (1.0, 0.0, False, 0.0, -math.inf)))

    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores, float64[n, m]."""
        from mercore.pipeline.kernels.raw import products_numba

        out = np.empty((X.shape[0], YT.shape[1]))
        products_numba.multiply_rows(np.ascontiguousarray(X), np.ascontiguousarray(YT.T), out)
        return out

    def exact_pairs(
        self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]
    ) -> Float64:
        """Return the true scores of pairs, float64[p]."""
        from mercore.pipeline.kernels.raw import products_numba

        out = np.empty(len(x_rows))
        products_numba.pairs(np.ascontiguousarray(X), np.ascontiguousarray(Y), x_rows, y_rows, out)
        return out

    def prefilter(self, queries: Float64) -> None:
        """Return None: terms may cancel, so the error of a float32 product is no share of it."""

    def prefilter_error(self, queries: Float64) -> float:
        """Return ∞: float32 scores of pairs rule nothing out."""
        return math.inf

    def block_error(self, X: Float64, Y: Float64) -> Float64:
        """Return (d + 4) u ‖x‖ ‖y‖ · 1.01, as Σ|xy| ≤ ‖x‖ ‖y‖; both rows are rounded once."""
        reach = _norms(X).max() * _norms(Y) * 1.01
        error = (X.shape[1] + 4) * EPS32 * reach + X.shape[1] * LEAST_TERM
        return np.where(reach < LARGEST, error, np.inf)

    def exact_error(self, dims: int) -> float:
        """Return 2 u · 1.01, as ``products_numba`` proves."""
        return float(2 * EPS64 * 1.01)


def _norms(rows: Float64) -> Float64:
    """Return the norm of each row, float64[n]."""
    norms: Float64 = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return norms


def _finite(scores: Float32) -> Float32:
    """Replace scores that overflowed by the largest float32: ``block_error`` is infinite there."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(scores.sum())
    if not finite:
        most = float(np.finfo(np.float32).max)
        np.nan_to_num(scores, copy=False, nan=most, posinf=most, neginf=-most)
    return scores

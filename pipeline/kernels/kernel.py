"""The Kernel contract: traits, prepared rows, fast float32 blocks, and exact float64 scores.

No kernel class imports numba before it computes, so that a command's ``--help`` can read the
traits.
"""

from abc import ABC, abstractmethod
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, Rows
from mercore.pipeline.kernels.panels import Columns

if TYPE_CHECKING:
    from mercore.pipeline.kernels.prefilter import Prefilter


class Kernel(ABC):
    """A Mercer kernel with K(x, x) = 1 on prepared rows: K(x, y) = ⟨Φ(x), Φ(y)⟩.

    A kernel that is not ``normalised`` is any similarity whose larger score is the nearer row.

    ``block`` is fast, float32, and within ``block_error`` of the true score. ``exact`` and
    ``exact_pairs`` are the true score: float64, terms added in ascending dimension, so that its
    bits do not depend on the block, batch or thread.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    """The formula, for the help text."""

    score: ClassVar[str] = "K(x, y), at most 1; larger is nearer"
    """What a score is that users see."""

    source: ClassVar[str]
    """The paper or the library that defines the kernel so."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names of kernels that rank rows alike."""

    normalised: bool = True
    """Whether K is a Mercer kernel with K(x, x) = 1: all encoders serve such kernels."""

    ascending: ClassVar[bool] = False
    """Whether the scores that users see ascend, because they are distances."""

    relative_error: ClassVar[bool] = False
    """Whether ``exact_error`` is a share of the score."""

    signed: ClassVar[bool] = False
    """Whether rows may have negative values."""

    zero_rows: ClassVar[bool] = False
    """Whether rows may be all zero."""

    takes_gamma: ClassVar[bool] = False
    """Whether the class is made with a ``gamma``."""

    default_gamma: ClassVar[float | None] = None
    """The ``gamma`` of a kernel that is made without one; None if it needs one."""

    term_bound: ClassVar[Literal["minimum", "root"] | None] = None
    """The upper bound of each term of an additive kernel, min(x, y) or √(xy): bin-bound serves it.

    None: the kernel is no sum over bins, or has no such bound.
    """

    raw_metrics: ClassVar[tuple[str, ...]] = ()
    """The metrics of prepared rows that rank as the kernel does: ``pq`` serves these."""

    of_bytes: ClassVar[Literal["distance", "product", "cosine"] | None] = None
    """The form of scores that are computed in integers where rows and queries are bytes."""

    term_cost: ClassVar[float] = 0.012
    """The time of one float32 term of a block, in nanoseconds."""

    shared_terms: bool = False
    """Whether dimensions in which one of the rows is zero add nothing to the score."""

    symmetric: bool = True
    """Whether the computed scores of (x, y) and (y, x) have the same bits."""

    relative_ties: ClassVar[bool] = False
    """Whether a tie is a share of the score, because scores of far rows are all near zero."""

    @property
    def configuration(self) -> dict[str, Any]:
        """The parameters that, with the name, make this kernel again."""
        return {}

    @abstractmethod
    def checked(self, rows: Rows, first: int, label: str) -> Float64:
        """Check the domain as ``prepare`` does, and return the rows as they are, float64[n, d]."""

    @abstractmethod
    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Check the domain and return the normalised rows, float64[n, d].

        Parameters
        ----------
        rows : uint8, int8, float16 or float32 [n, d]
        first : int
            Number of the first row, for messages.
        label : str
            The word for a row in messages: "row", "query".

        Raises
        ------
        InputError
            If a value is NaN, infinite or negative, or a row all zero, and the kernel forbids it.
        """

    @property
    def ranking(self) -> "Kernel":
        """The simplest kernel that this one is a strictly increasing function of."""
        return self

    def from_ranking(self, scores: Float64) -> Float64:
        """Return this kernel's scores from those of ``ranking``, to the bit those of ``exact``.

        ``scores`` may be overwritten.
        """
        return scores

    def packed(self, YT: Float32) -> Columns:
        """Return columns YT [d, m] in the layout that ``block`` reads fastest."""
        return YT

    @abstractmethod
    def block(self, X: Float32, YT: Columns) -> Float32:
        """Return K of prepared float32 rows, float32[n, m].

        Parameters
        ----------
        X : float32[n, d]
        YT : float32[d, m], C-contiguous, or the result of ``packed``
        """

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return exp(scale (K − 1)) of a block, ``scale`` > 0, float32[n, m].

        A K above 1 counts as 1.
        """
        from mercore.pipeline.kernels import blocks

        scores = self.block(X, YT)
        blocks.transform(scores, scale)
        return scores

    @abstractmethod
    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores of prepared rows X [n, d] and columns YT [d, m], float64[n, m]."""

    def landmark_values(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores of prepared rows X [n, d] and landmarks YT [d, m], float64[n, m].

        They are as accurate as those of ``exact``, but the last bits may differ. That is safe: they
        are only compared with one another, never with a score.
        """
        return self.exact(X, YT)

    @abstractmethod
    def exact_pairs(
        self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]
    ) -> Float64:
        """Return the true scores of pairs (X[x_rows[p]], Y[y_rows[p]]), float64[p].

        They have the same bits as those of ``exact``.
        """

    def prefilter(self, queries: Float64) -> "Prefilter | None":
        """Return the float32 prefilter of prepared queries [nq, d], if the kernel has one."""
        return None

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return K of two raw rows [d] in real numbers (see ``decimals``).

        None without a formula.
        """
        return None

    def histograms(self, prepared: Float64) -> Float64:
        """Return rows that sum to one, float64[n, d], from an additive kernel's prepared rows."""
        return prepared

    def shown(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the scores that users see, in the same dtype."""
        return scores

    @abstractmethod
    def block_error(self, X: Float64, Y: Float64) -> float | Float64:
        """Return a bound of |block − exact| over prepared rows, float32 rounding included.

        It is one number, or one per row of Y: float64[m].
        """

    @abstractmethod
    def exact_error(self, dims: int) -> float:
        """Return a bound of |exact − real| over all rows of the domain, in units of the score.

        The real score is K of the raw rows in real numbers: the bound includes the roundings of
        ``prepare``.
        """

    def slack(self, dims: int, scores: NDArray[np.floating]) -> Float64:
        """Return the errors of two computed scores together, float64 of the shape of ``scores``.

        One of the two is given, or is the larger one in size. Where errors are shares of a score,
        5 % more is for the difference of the two.
        """
        if self.relative_error:
            return 2.1 * self.exact_error(dims) * np.abs(scores.astype(np.float64))
        return np.full(np.shape(scores), 2 * self.exact_error(dims))

    def spec(self) -> dict[str, Any]:
        """Return the JSON that names this kernel: ``{"name", "configuration"}``."""
        return {"name": self.name, "configuration": self.configuration}

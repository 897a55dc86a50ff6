"""The Kernel contract: prepare rows once, score blocks fast, and decide scores in float64."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, Rows
from mercore.pipeline.kernels import blocks
from mercore.pipeline.kernels.panels import Columns
from mercore.pipeline.kernels.prefilter import Prefilter


class Kernel(ABC):
    """A Mercer kernel with K(x, x) = 1 on prepared rows: K(x, y) = ⟨Φ(x), Φ(y)⟩.

    ``block`` is fast, float32, and within ``block_error`` of the true score. ``exact`` and ``exact_pairs`` are the
    true score: float64, terms added in ascending dimension, the same bits whatever the block, batch or thread.
    """

    name: ClassVar[str]

    @property
    def configuration(self) -> dict[str, Any]:
        """The parameters that, with the name, make this kernel again."""
        return {}

    @abstractmethod
    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Check the domain and return the normalised rows, float64[n, d].

        Parameters
        ----------
        rows : uint8, float16 or float32 [n, d]
        first : int
            Number of the first row, for messages.
        label : str
            What a row is called in messages: "row", "query".

        Raises
        ------
        InputError
            If a value is NaN, infinite or (where the kernel has none) negative, or a row is zero that may not be.
        """

    @property
    def ranking(self) -> "Kernel":
        """The kernel that this one is a strictly increasing function of, or itself: the neighbours are the same."""
        return self

    def from_ranking(self, scores: Float64) -> Float64:
        """Return the scores of this kernel, of those of ``ranking``, to the bit those of ``exact``; may change them."""
        return scores

    def packed(self, YT: Float32) -> Columns:
        """Return columns YT [d, m] as ``block`` reads them fastest: worth it for more than one block of rows."""
        return YT

    @abstractmethod
    def block(self, X: Float32, YT: Columns) -> Float32:
        """Return K of prepared float32 rows, float32[n, m].

        Parameters
        ----------
        X : float32[n, d]
        YT : float32[d, m], C-contiguous, or what ``packed`` makes of it
        """

    def transformed_block(self, X: Float32, YT: Columns, scale: float) -> Float32:
        """Return exp(scale (K − 1)) of a block, ``scale`` > 0, float32[n, m]; a K above 1 counts as 1."""
        scores = self.block(X, YT)
        blocks.transform(scores, scale)
        return scores

    @abstractmethod
    def exact(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores of prepared rows X [n, d] and columns YT [d, m], float64[n, m]."""

    def landmark_values(self, X: Float64, YT: Float64) -> Float64:
        """Return the true scores of rows X [n, d] and landmarks YT [d, m], both prepared, float64[n, m].

        They are as near to the real ones as those of ``exact``, and may differ from these in the last bits: what they
        make of a row is compared with what they made of others, and with no score.
        """
        return self.exact(X, YT)

    @abstractmethod
    def exact_pairs(self, X: Float64, Y: Float64, x_rows: NDArray[np.int64], y_rows: NDArray[np.int64]) -> Float64:
        """Return the true scores of pairs (X[x_rows[p]], Y[y_rows[p]]), float64[p], to the bit those of ``exact``."""

    def prefilter(self, queries: Float64) -> Prefilter | None:
        """Return what rules out pairs of raw rows and prepared queries [nq, d] in float32, if there is such a thing."""
        return None

    @abstractmethod
    def block_error(self, X: Float64, Y: Float64) -> float:
        """Return a bound of |block − exact| over these prepared rows, rounding of the rows to float32 included."""

    @abstractmethod
    def exact_error(self, dims: int) -> float:
        """Return a bound of |exact − real| over all rows of the domain, in units of the score.

        The real score is K of the raw rows in real numbers: the roundings of ``prepare`` are in the bound too.
        """

    def spec(self) -> dict[str, Any]:
        """Return the JSON that names this kernel: ``{"name", "configuration"}``."""
        return {"name": self.name, "configuration": self.configuration}

"""The Collector contract: what a search keeps of the scored pairs of a query and a row."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64


class Collector(Protocol):
    """What is kept of the scored pairs of a batch: the k best rows of each query, or others.

    Each thread makes an empty collector, and fills it from rows of its own; all are merged at the
    end. The answer depends on no thread if the order of rows and of collectors does not matter.
    """

    def least(self, scores: Float32, error: float | Float64) -> Float64:
        """Return the approximate score below which no pair of a block is kept, float64[nq].

        Parameters
        ----------
        scores : float32[n, nq], the approximate scores of a block, before any of it is inserted
        error : float, or float64[nq], by which they differ at most from the true scores
        """
        ...

    def insert(
        self, queries: NDArray[np.int64], rows: NDArray[np.int64], scores: NDArray[np.floating[Any]]
    ) -> None:
        """Keep what is wanted of pairs (query, row) with true scores; each pair comes once."""
        ...

    @classmethod
    def merge(cls, collectors: Sequence[Self]) -> Self:
        """Merge collectors of disjoint rows into one."""
        ...


Kept = TypeVar("Kept", bound=Collector)
NewCollector = Callable[[], Kept]  # makes an empty one; it is sent to the workers of a cluster

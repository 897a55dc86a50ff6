"""The Scanner contract: queries are prepared once, then scanned against one part after another."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.topk import TopK

GiveUp = Callable[[NDArray[np.int64], int], NDArray[np.bool_]]


class Scanner(Protocol):
    """A batch of queries, prepared for scanning codes; any number of threads may use it at once.

    A score is a float32 that depends on its row and its query alone, to the bit: not on the part,
    the block, the batch or the thread.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that ``scan`` reads, if the store has them."""
        ...

    def scan(self, columns: Mapping[str, NDArray[Any]], first: int, best: TopK) -> None:
        """Insert the scores of one part, whose first row is ``first``, into the top-k lists.

        Parameters
        ----------
        columns : dtype[rows of the part(, width)] by name
        best : TopK
            float32 scores [nq, k]; ties go to the lower row. A row enters only if it reaches the
            score of the free entries, ``TopK(…, least=…)``: so a scan is given a threshold.
        """
        ...


class Pairs(NamedTuple):
    """Pairs of a query and a row, with bounds of their scores: int64[p], int64[p], float32[p]."""

    queries: NDArray[np.int64]
    rows: NDArray[np.int64]
    bounds: Float32


class Bounds(Scanner, Protocol):
    """A batch of queries whose scores are upper bounds: it also lists rows by thresholds."""

    def collect(
        self, columns: Mapping[str, NDArray[Any]], first: int, least: Float32, give_up: GiveUp
    ) -> tuple[Pairs, NDArray[np.bool_]]:
        """Return one part's pairs with bounds ≥ ``least[query]``, and the queries given up.

        The pairs of a query that was given up are incomplete.

        Parameters
        ----------
        least : float32[nq]
        give_up : (pairs per query int64[nq], rows so far) → bool[nq], queries with too many pairs
        """
        ...


def joined(pairs: list[Pairs]) -> Pairs:
    """Concatenate lists of pairs."""
    if not pairs:
        return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    queries, rows, bounds = (np.concatenate(values) for values in zip(*pairs, strict=True))
    return Pairs(queries, rows, bounds)


def select_pairs(pairs: Pairs, kept: NDArray[np.bool_]) -> Pairs:
    """Return the pairs for which ``kept`` is true."""
    return Pairs(pairs.queries[kept], pairs.rows[kept], pairs.bounds[kept])

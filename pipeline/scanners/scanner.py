"""The Scanner contract: a batch of queries made ready once, then shown one part's codes after another."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from mercore.pipeline.topk import TopK


class Scanner(Protocol):
    """A batch of queries, ready to be scored against codes. Any number of threads may scan with it at once.

    A score is a float32 that depends on its row and its query alone, to the bit: not on the part, block, batch or
    thread it comes in.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that ``scan`` reads, of those that the store has."""
        ...

    def scan(self, columns: Mapping[str, NDArray[Any]], first: int, best: TopK) -> None:
        """Take one part's codes, whose first row is ``first``, into the best of all queries.

        Parameters
        ----------
        columns : dtype[rows of the part(, width)] by name
        best : Best
            float32 scores [nq, k]; ties go to the lower row.
        """
        ...

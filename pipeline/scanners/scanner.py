"""The Scanner contract: queries are prepared once, then scanned against one part after another."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from mercore.pipeline.topk import TopK


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
            float32 scores [nq, k]; ties go to the lower row.
        """
        ...

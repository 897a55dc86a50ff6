"""Several sources as one: their rows in order, numbered through."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, ShapeError
from mercore.stores.formats.source import Source, check_row_range
from mercore.stores.spec import digest


class ChainedSource:
    """The rows of ``sources``, of one dimension and one dtype, one source after another.

    Raises
    ------
    ShapeError, FormatError
        If a source has another dimension or another dtype than the first; the message names it.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        first = sources[0]
        for source in sources[1:]:
            check_same_kind(source, first.shape[1], first.dtype, first.name)
        self.sources = tuple(sources)
        self.name = ", ".join(source.name for source in sources)
        self.dtype: np.dtype[Any] = first.dtype
        self.source_dtype: np.dtype[Any] = np.result_type(*(each.source_dtype for each in sources))
        self._starts = [0, *accumulate(source.shape[0] for source in sources)]
        self.shape = (self._starts[-1], first.shape[1])

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)``, C-contiguous; see ``Source.read``."""
        check_row_range(self, start, stop)
        pieces = [
            source.read(max(start - first, 0), min(stop - first, source.shape[0]))
            for source, first in zip(self.sources, self._starts, strict=False)
            if first < stop and start < first + source.shape[0]
        ]
        if not pieces:
            return np.empty((0, self.shape[1]), self.dtype)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def fingerprint(self) -> str:
        """Return a digest of the fingerprints of the sources."""
        return digest([source.fingerprint() for source in self.sources])


def sources_of(source: Source) -> tuple[Source, ...]:
    """Return the sources that a chain reads, or the source alone."""
    return source.sources if isinstance(source, ChainedSource) else (source,)


def check_same_kind(source: Source, dims: int, dtype: np.dtype[Any], where: str) -> None:
    """Refuse a source of another dimension or dtype than those of ``where``.

    Raises
    ------
    ShapeError, FormatError
        If it differs.
    """
    if source.shape[1] != dims:
        raise ShapeError(
            f"{source.name} has d = {source.shape[1]}: expected {dims}, the dimension of {where}. "
            "Fix: name sources of the same kind."
        )
    if source.dtype != dtype:
        raise FormatError(
            f"{source.name} has rows of {source.dtype}: expected {dtype}, the dtype of {where}. "
            f"Fix: convert it to {dtype}."
        )

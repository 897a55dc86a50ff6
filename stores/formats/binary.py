"""Files of rows of equal size, read at positions, with no memory beyond the block."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.dtypes import convert, returned_dtype
from mercore.stores.formats.source import check_row_range, check_shape, digest_rows
from mercore.stores.location.local_file import LocalFile
from mercore.stores.location.protocol import PositionalFile
from mercore.stores.location.resolve import location_of, scheme_of

WINDOW_BYTES = 4 << 20


def open_binary(path: str) -> PositionalFile:
    """Open a regular file, or an object if ``path`` is a URL.

    Raises
    ------
    NotFoundError, FormatError, StorageError
        If it does not exist, or cannot be read.
    """
    return location_of(path).open_file() if scheme_of(path) else LocalFile(path)


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """The layout of a file: from ``offset`` on ``n`` rows of ``head`` bytes and ``d`` numbers."""

    kind: str
    n: int
    d: int
    stored: np.dtype[Any]
    offset: int = 0
    head: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes from one row to the next."""
        return self.head + self.d * self.stored.itemsize

    @property
    def end(self) -> int:
        """The byte after the last row."""
        return self.offset + self.n * self.row_bytes


class BinarySource:
    """A ``Source`` over a binary file whose layout is known."""

    def __init__(self, file: PositionalFile, layout: RowLayout) -> None:
        check_shape(file.name, layout.n, layout.d)
        self.name = file.name
        self.shape = (layout.n, layout.d)
        self.dtype = returned_dtype(layout.stored, file.name)
        self._file = file
        self._layout = layout

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` as ``dtype``; see ``Source.read``."""
        return self._fill(start, stop, self.dtype)

    def read_stored(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` in the dtype of the file, in the machine's byte order."""
        return self._fill(start, stop, self._layout.stored.newbyteorder("="))

    def fingerprint(self) -> str:
        """Return the digest that ``Source.fingerprint`` describes."""
        return digest_rows(
            self, kind=self._layout.kind, stored=self._layout.stored, size=self._file.size
        )

    def _fill(self, start: int, stop: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Read into the result if it has the file's bytes, else through windows of a few MiB."""
        check_row_range(self, start, stop)
        layout = self._layout
        rows = np.empty((stop - start, layout.d), dtype)
        if layout.head == 0 and layout.stored == dtype:
            self._file.read_into(rows, layout.offset + start * layout.row_bytes)
            return rows
        step = max(1, WINDOW_BYTES // layout.row_bytes)
        for first in range(start, stop, step):
            block = self._window(first, min(first + step, stop))
            rows[first - start : first - start + len(block)] = convert(
                block, dtype, name=self.name, first=first
            )
        return rows

    def _window(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows as stored, without their heads, which are checked."""
        layout = self._layout
        raw = np.empty((stop - start, layout.row_bytes), np.uint8)
        self._file.read_into(raw, layout.offset + start * layout.row_bytes)
        if layout.head:
            self._check_heads(np.ascontiguousarray(raw[:, : layout.head]).view("<i4")[:, 0], start)
        numbers = np.ascontiguousarray(raw[:, layout.head :])
        return numbers.view(np.uint8 if layout.stored.kind == "b" else layout.stored)

    def _check_heads(self, heads: NDArray[np.int32], start: int) -> None:
        """Refuse rows whose d is not that of row 0."""
        wrong = np.flatnonzero(heads != self._layout.d)
        if wrong.size:
            row = int(wrong[0])
            message = (
                f"{self.name}: row {start + row} says d = {heads[row]}, expected "
                f"{self._layout.d} as in row 0. "
                f"Fix: fetch the file again; rows of different d cannot be one set of vectors."
            )
            raise FormatError(message)

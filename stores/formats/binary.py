"""Files of rows of equal size, read at positions, with no memory beyond the block."""

import errno
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError
from mercore.stores.formats.dtypes import convert
from mercore.stores.formats.source import StoredSource, check_row_range, check_shape
from mercore.stores.location.local_file import LocalFile
from mercore.stores.location.protocol import PositionalFile
from mercore.stores.location.resolve import location_of, scheme_of
from mercore.stores.wording import setting

WINDOW_BYTES = 4 << 20
RAW = "raw:"
RAW_EXAMPLE = "raw:float32:384"
# The GIST of the tiny images, and their pixels: 32 × 32 × 3 bytes per image.
RAW_STORED: dict[str, tuple[np.dtype[Any], int]] = {
    "tinygist": (np.dtype("<f4"), 384),
    "tinyimages": (np.dtype("u1"), 3072),
}


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
    """The layout of a file: from ``offset`` on ``n`` rows of ``head`` bytes and ``d`` numbers.

    ``by_column``: the numbers of a column lie together (Fortran order).
    ``open_ended``: the rows go on to the end of a stream, and ``n`` is 0.
    """

    kind: str
    n: int
    d: int
    stored: np.dtype[Any]
    offset: int = 0
    head: int = 0
    by_column: bool = False
    open_ended: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes from one row to the next."""
        return self.head + self.d * self.stored.itemsize

    @property
    def end(self) -> int:
        """The byte after the last row."""
        return self.offset + self.n * self.row_bytes

    def numbers(self, raw: NDArray[np.uint8], *, name: str, first: int) -> NDArray[Any]:
        """Return the numbers of the bytes of rows, uint8[b, row_bytes]; their heads are checked.

        Raises
        ------
        FormatError
            If the head of a row is not d. Row 0 of the block is row ``first`` of the file.
        """
        if self.head:
            self._check_heads(raw, name=name, first=first)
        return raw[:, self.head :].view(np.uint8 if self.stored.kind == "b" else self.stored)

    def _check_heads(self, raw: NDArray[np.uint8], *, name: str, first: int) -> None:
        """Refuse rows whose d is not that of row 0."""
        heads = np.ascontiguousarray(raw[:, : self.head]).view("<i4")[:, 0]
        wrong = np.flatnonzero(heads != self.d)
        if wrong.size:
            row = int(wrong[0])
            raise FormatError(
                f"{name}: row {first + row} says d = {heads[row]}, expected {self.d} as in row 0. "
                "Fix: fetch the file again; rows of different d cannot be one set of vectors."
            )


# A function from the first bytes of a file, its name and its size (None: a stream) to its layout.
# It raises ``FormatError`` if the header is damaged or cut off, or does not fit the size.
Layout = Callable[[bytes, str, int | None], RowLayout]


def raw_format(text: str) -> tuple[np.dtype[Any], int]:
    """Return the dtype and d of a format such as ``raw:float32:384``.

    Raises
    ------
    InputError
        If it names no dtype of numbers, or no number of dimensions.
    """
    words = text.removeprefix(RAW).split(":")
    try:
        stored, d = np.dtype(words[0]), int(words[1])
        good = len(words) == 2 and d > 0 and stored.kind in "biuf"
    except (TypeError, ValueError, IndexError, SyntaxError):
        good = False
    if not good:
        raise InputError(
            f"format is {text!r}: expected raw, a dtype and the numbers per row. "
            f"Fix: {setting(format=RAW_EXAMPLE)}"
        )
    return stored.newbyteorder("<") if words[0][:1] not in "<>" else stored, d


def raw_layout(
    stored: np.dtype[Any], d: int, prefix: bytes, name: str, size: int | None
) -> RowLayout:
    """Return the layout of a raw file of rows of ``d`` numbers: see ``Layout``."""
    check_shape(name, 0, d)
    n, rest = divmod(size or 0, d * stored.itemsize)
    if rest:
        raise FormatError(
            f"{name}: {size} bytes, expected a multiple of {d * stored.itemsize} (d = {d} of "
            f"{stored.itemsize} bytes). Fix: fetch the file again, or check its format."
        )
    return RowLayout(kind="raw", n=n, d=d, stored=stored, open_ended=size is None)


class BinarySource(StoredSource):
    """A ``Source`` over a binary file whose layout is known."""

    def __init__(self, file: PositionalFile, layout: RowLayout) -> None:
        super().__init__(file.name, (layout.n, layout.d), layout.stored)
        self.kind = layout.kind
        self._file, self._layout = file, layout

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        return self._fill(start, stop, self.dtype)

    def read_stored(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` in the dtype of the file, in the machine's byte order."""
        check_row_range(self, start, stop)
        return self._fill(start, stop, self._layout.stored.newbyteorder("="))

    @property
    def source_bytes(self) -> int:
        """Bytes of the file."""
        return self._file.size

    def _fill(self, start: int, stop: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Read into the result if it has the file's bytes, else through windows of a few MiB."""
        layout = self._layout
        rows = np.empty((stop - start, layout.d), dtype)
        if layout.head == 0 and not layout.by_column and layout.stored == dtype:
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
        if layout.by_column:
            return self._columns(start, stop)
        raw = np.empty((stop - start, layout.row_bytes), np.uint8)
        self._file.read_into(raw, layout.offset + start * layout.row_bytes)
        return layout.numbers(raw, name=self.name, first=start)

    def _columns(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows of a file in Fortran order, a column at a time."""
        layout = self._layout
        width = layout.stored.itemsize
        raw = np.empty((layout.d, (stop - start) * width), np.uint8)
        for column, numbers in enumerate(raw):
            self._file.read_into(numbers, layout.offset + (column * layout.n + start) * width)
        return raw.view(np.uint8 if layout.stored.kind == "b" else layout.stored).T


class FileReader(io.RawIOBase):
    """A ``PositionalFile`` as Python's own readers take it, with a position."""

    def __init__(self, file: PositionalFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a byte and return its number."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "a position before the first byte")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """Fill the buffer, or as much of it as the file has; return the count of bytes."""
        count = max(0, min(len(buffer), self._file.size - self._at))
        if count:
            self._file.read_into(np.frombuffer(buffer, np.uint8, count), self._at)
            self._at += count
        return count


class MemberFile(PositionalFile):
    """The bytes [``offset``, ``offset + size``) of another file, as a file."""

    def __init__(self, file: PositionalFile, *, name: str, offset: int, size: int) -> None:
        self._file, self._offset = file, offset
        self.name, self.size = name, size

    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill ``buffer`` with the bytes from ``offset`` on: see ``PositionalFile``."""
        if offset + buffer.nbytes > self.size:
            raise FormatError(
                f"{self.name}: the array ends at byte {self.size}, expected "
                f"{offset + buffer.nbytes} bytes. Fix: fetch the file again."
            )
        self._file.read_into(buffer, self._offset + offset)

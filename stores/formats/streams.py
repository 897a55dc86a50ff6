"""Streams: gzip files and stdin, whose rows are read forward once, as fast as they come."""

import gzip
import io
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError
from mercore.stores.formats.binary import WINDOW_BYTES, FileReader, RowLayout, open_binary
from mercore.stores.formats.damage import damage_refused
from mercore.stores.formats.dtypes import convert, returned_dtype
from mercore.stores.formats.source import Source, check_shape

GZIP = ".gz"
STDIN = "-"


class Stream:
    """Bytes that are read forward once; ``name`` is what messages call them."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self.name, self._file = name, file
        self._prefix = b""

    def peek(self, count: int) -> bytes:
        """Return the first ``count`` bytes, which ``fill`` returns again; fewer if it ends."""
        prefix = np.empty(count, np.uint8)
        self._prefix = prefix[: self.fill(prefix)].tobytes()
        return self._prefix

    def fill(self, buffer: NDArray[np.uint8]) -> int:
        """Fill ``buffer``, uint8[any]; return the count of bytes, fewer only at the end.

        Raises
        ------
        FormatError
            If the gzip data are damaged or cut off.
        StorageError
            If the operating system refuses.
        """
        view = buffer.data
        done = min(len(self._prefix), len(view))
        view[:done] = self._prefix[:done]
        self._prefix = self._prefix[done:]
        while done < len(view):
            count = self._read(view[done:])
            if count == 0:
                break
            done += count
        return done

    def _read(self, view: memoryview) -> int:
        wrong = "the gzip data are damaged or cut off"
        with damage_refused(self.name, wrong, "fetch the file again"):
            return cast("Any", self._file).readinto(view) or 0


def open_gzip(path: str) -> Stream:
    """Open a gzip file or object.

    Raises
    ------
    NotFoundError, FormatError, StorageError
        If it does not exist, or cannot be read.
    """
    compressed = io.BufferedReader(FileReader(open_binary(path)), 1 << 20)
    return Stream(path, cast("BinaryIO", gzip.GzipFile(fileobj=compressed)))


def open_stdin(*, compressed: bool) -> Stream:
    """Return the stream of stdin.

    Raises
    ------
    InputError
        If this process has no stdin.
    """
    if sys.stdin is None:
        raise InputError("-: this process has no stdin. Fix: name a file.")
    file: Any = sys.stdin.buffer
    return Stream(STDIN, cast("BinaryIO", gzip.GzipFile(fileobj=file)) if compressed else file)


class StreamSource:
    """A ``Source`` whose rows are read forward once; ``rows`` [first, last) of the stream.

    While it is ``open_ended`` the number of rows is not known, and ``shape`` counts those that were
    read; a block that is shorter than asked for is the last.
    """

    def __init__(
        self, stream: Stream, layout: RowLayout, *, first: int = 0, last: int | None = None
    ) -> None:
        check_shape(stream.name, layout.n, layout.d)
        if layout.by_column:
            raise FormatError(
                f"{stream.name}: an array in Fortran order cannot be read as a stream, expected "
                "C order. Fix: decompress the file, and name it."
            )
        self.name = stream.name
        self.source_dtype = layout.stored
        self.dtype = returned_dtype(layout.stored, stream.name)
        self.open_ended = layout.open_ended and last is None
        total = None if layout.open_ended else layout.n
        stop = total if last is None else last
        self.shape = (0 if stop is None else stop - first, layout.d)
        self._whole = last is None or last == total
        self._stream, self._layout = stream, layout
        self._skip, self._first, self._row = layout.offset + first * layout.row_bytes, first, 0

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop), which must follow those that were read last.

        Raises
        ------
        InputError
            If they do not follow.
        FormatError
            If the stream ends within them, or does not end after the last row.
        """
        self._check_order(start, stop)
        if self._skip:
            self._skip_bytes()
        rows = np.empty((stop - start, self._layout.d), self.dtype)
        step = max(1, WINDOW_BYTES // self._layout.row_bytes)
        ended = False
        while self._row < stop and not ended:
            count = min(step, stop - self._row)
            block = self._window(count)
            rows[self._row - start : self._row - start + len(block)] = block
            self._row += len(block)
            ended = len(block) < count
        if self.open_ended:
            self.shape, self.open_ended = (self._row, self.shape[1]), not ended
        elif self._whole and self._row == self.shape[0]:
            self._check_end()
        return rows[: self._row - start]

    def fingerprint(self) -> str:
        """Refuse: a fingerprint needs rows from everywhere."""
        raise self._refusal("a fingerprint was asked for")

    def _check_order(self, start: int, stop: int) -> None:
        """Refuse rows that were passed, or lie ahead."""
        end = stop if self.open_ended else self.shape[0]
        if start != self._row or not start <= stop <= end:
            raise self._refusal(f"rows [{start}, {stop}) were asked for after row {self._row}")

    def _refusal(self, what: str) -> InputError:
        return InputError(
            f"{self.name}: {what}, but a stream is read forward once. Fix: decompress or save it, "
            "and name the file; or mercore ingest it."
        )

    def _window(self, count: int) -> NDArray[Any]:
        """Return the next rows, fewer than ``count`` only at the end of an open-ended stream."""
        layout, first = self._layout, self._first + self._row
        raw = np.empty((count, layout.row_bytes), np.uint8)
        whole, rest = divmod(self._stream.fill(raw.reshape(-1)), layout.row_bytes)
        if rest or (whole < count and not self.open_ended):
            raise self._cut_off(first + whole)
        block = layout.numbers(raw[:whole], name=self.name, first=first)
        return convert(block, self.dtype, name=self.name, first=first)

    def _cut_off(self, row: int) -> FormatError:
        return FormatError(
            f"{self.name}: the stream ends within row {row}, expected "
            f"{'whole rows' if self.open_ended else f'{self._first + self.shape[0]} rows'}. "
            "Fix: fetch the file again."
        )

    def _skip_bytes(self) -> None:
        """Read the header, and the rows before the first."""
        left, buffer = self._skip, np.empty(min(self._skip, WINDOW_BYTES), np.uint8)
        while left:
            count = self._stream.fill(buffer[:left])
            if not count:
                raise self._cut_off((self._skip - left) // self._layout.row_bytes)
            left -= count
        self._skip = 0

    def _check_end(self) -> None:
        """Refuse bytes behind the last row."""
        if self._stream.fill(np.empty(1, np.uint8)):
            raise FormatError(
                f"{self.name}: the stream goes on after the header's {self.shape[0]} rows. "
                "Fix: fetch the file again, or check its format."
            )


def row_blocks(source: Source, block_rows: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield (first row, dtype[≤ block_rows, d]) over all rows in order.

    The shape of a stream may be known only afterwards.
    """
    start = 0
    while is_open_ended(source) or start < source.shape[0]:
        end = start + block_rows
        stop = end if is_open_ended(source) else min(end, source.shape[0])
        rows = source.read(start, stop)
        if len(rows):
            yield start, rows
        start += len(rows)


def is_open_ended(source: Source) -> bool:
    """Return whether the number of rows is not known."""
    return bool(getattr(source, "open_ended", False))

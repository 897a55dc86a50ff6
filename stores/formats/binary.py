"""Positional reads of a file of equal rows, by any number of threads, with no memory beyond the block."""

import os
import stat
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, NotFoundError
from mercore.stores.formats.dtypes import convert, returned_dtype
from mercore.stores.formats.source import check_range, check_shape, digest_rows
from mercore.stores.location.publish import storage_errors
from mercore.stores.location.resolve import location_of, scheme_of

WINDOW_BYTES = 4 << 20


def path_status(path: str) -> os.stat_result:
    """Return what the operating system knows of ``path``.

    Raises
    ------
    NotFoundError
        If there is nothing at ``path``.
    StorageError
        If it may not be looked at.
    """
    with storage_errors("read", path):
        try:
            return Path(path).stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            message = f"{path}: no such file or folder. Fix: check the path."
            raise NotFoundError(message) from error


class BinaryFile:
    """A regular file read at positions; it is closed when nothing refers to it any more."""

    def __init__(self, path: str) -> None:
        # Looked at before it is opened: opening a pipe would wait for a writer.
        if not stat.S_ISREG(path_status(path).st_mode):
            message = f"{path}: not a regular file. Fix: name a file; copy a pipe or a device to one first."
            raise FormatError(message)
        self.name = path
        with storage_errors("read", path):
            self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size

    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill ``buffer``, which is C-contiguous, with the bytes from ``offset`` on.

        Raises
        ------
        FormatError
            If the file ends first.
        StorageError
            If the operating system refuses.
        """
        view = buffer.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(view):
            with storage_errors("read", self.name):
                count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if count == 0:
                message = (
                    f"{self.name}: the file ends at byte {offset + done}, expected {offset + len(view)} bytes. "
                    f"Fix: fetch the file again, and change no file while it is read."
                )
                raise FormatError(message)
            done += count

    def read_prefix(self, count: int) -> bytes:
        """Return the first ``count`` bytes, or all of a shorter file."""
        buffer = np.empty(min(count, self.size), np.uint8)
        self.read_into(buffer, 0)
        return buffer.tobytes()


class PositionalFile(Protocol):
    """A file of this machine or an object, read at positions: see ``BinaryFile``."""

    name: str
    size: int

    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill ``buffer``, which is C-contiguous, with the bytes from ``offset`` on."""

    def read_prefix(self, count: int) -> bytes:
        """Return the first ``count`` bytes, or all of a shorter file."""


def open_binary(path: str) -> PositionalFile:
    """Open a regular file, or an object if it is a URL.

    Raises
    ------
    NotFoundError, FormatError, StorageError
        If there is none, or it may not be read.
    """
    if scheme_of(path) is None:
        return BinaryFile(path)
    at = location_of(path)
    from mercore.stores.formats.s3_file import S3File
    from mercore.stores.location.s3 import S3Location

    assert isinstance(at, S3Location)
    return S3File(at)


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """Where the rows of a file lie: ``n`` rows of ``head`` bytes and ``d`` numbers each, from byte ``offset`` on."""

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
        return digest_rows(self, kind=self._layout.kind, stored=self._layout.stored, size=self._file.size)

    def _fill(self, start: int, stop: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Read straight into the result when its bytes are the file's, else through windows of a few MiB."""
        check_range(self, start, stop)
        layout = self._layout
        rows = np.empty((stop - start, layout.d), dtype)
        if layout.head == 0 and layout.stored == dtype:
            self._file.read_into(rows, layout.offset + start * layout.row_bytes)
            return rows
        step = max(1, WINDOW_BYTES // layout.row_bytes)
        for first in range(start, stop, step):
            block = self._window(first, min(first + step, stop))
            rows[first - start : first - start + len(block)] = convert(block, dtype, name=self.name, first=first)
        return rows

    def _window(self, start: int, stop: int) -> NDArray[Any]:
        """Return the rows as the file has them, their heads checked and cut off."""
        layout = self._layout
        raw = np.empty((stop - start, layout.row_bytes), np.uint8)
        self._file.read_into(raw, layout.offset + start * layout.row_bytes)
        if layout.head:
            self._check_heads(np.ascontiguousarray(raw[:, : layout.head]).view("<i4")[:, 0], start)
        numbers = np.ascontiguousarray(raw[:, layout.head :])
        return numbers.view(np.uint8 if layout.stored.kind == "b" else layout.stored)

    def _check_heads(self, heads: NDArray[np.int32], start: int) -> None:
        """Refuse rows that claim another d than the file's first."""
        wrong = np.flatnonzero(heads != self._layout.d)
        if wrong.size:
            row = int(wrong[0])
            message = (
                f"{self.name}: row {start + row} says d = {heads[row]}, expected {self._layout.d} as in row 0. "
                f"Fix: fetch the file again; rows of different d cannot be one set of vectors."
            )
            raise FormatError(message)

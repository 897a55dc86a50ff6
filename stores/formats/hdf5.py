"""HDF5 files: a 2-D dataset of numbers, named as ``file.h5::train``."""

import json
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.dtypes import convert
from mercore.stores.formats.source import StoredSource
from mercore.stores.location.local_file import LocalFile
from mercore.stores.location.resolve import refuse_url

READER = Path(__file__).with_name("hdf5_reader.py")
WINDOW_BYTES = 8 << 20
LINE_BYTES = 16 << 20


class Hdf5Dataset:
    """A dataset [n, d] as it is stored, which another process reads: see ``hdf5_reader``.

    ``name`` is ``file.h5::dataset``; ``names`` are what the root of the file holds.

    Raises
    ------
    FormatError
        If the file is damaged, or it has no such dataset, or several without a ``member``; or if
        the numbers lie in another file, or are too many for the size of this one.
    InputError
        If it is a URL.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """

    def __init__(self, path: str, member: str | None) -> None:
        refuse_url(path, "an HDF5 file")
        LocalFile(path)  # which says why it cannot be read
        self._lock, self.name = Lock(), path
        words = [sys.executable, "-P", str(READER), str(Path(path).absolute())]
        self._process: Any = subprocess.Popen(  # noqa: S603 - our own file
            [*words, *([] if member is None else [member])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        weakref.finalize(self, _end, self._process)
        header = self._answer()
        self.name = f"{path}::{header['member']}"
        self.names = frozenset[str](header["names"])
        n, d = header["shape"]
        self.shape, self.dtype = (int(n), int(d)), np.dtype(header["dtype"])

    def windows(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield (first row, ``dtype``[some, d]) over the rows [start, stop), in order."""
        step = max(1, WINDOW_BYTES // max(1, self.shape[1] * self.dtype.itemsize))
        for first in range(start, stop, step):
            yield first, self._window(first, min(first + step, stop))

    def read_all(self) -> NDArray[Any]:
        """Return all rows, ``dtype``[n, d]."""
        rows = np.empty(self.shape, self.dtype)
        for first, window in self.windows(0, len(rows)):
            rows[first : first + len(window)] = window
        return rows

    def _window(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows as they are stored."""
        stored = self.dtype
        raw = np.empty((stop - start, self.shape[1] * stored.itemsize), np.uint8)
        with self._lock:
            try:
                self._process.stdin.write(f"{start} {stop}\n".encode())
                self._process.stdin.flush()
            except BrokenPipeError as error:
                raise self._crash() from error
            count = self._answer()["bytes"]
            view = raw.reshape(-1).data
            if count != len(view) or self._process.stdout.readinto(view) != count:
                raise self._crash()
        rows: NDArray[Any] = raw.view(stored).reshape(stop - start, self.shape[1])
        return rows

    def _answer(self) -> dict[str, Any]:
        """Return the next answer of the process."""
        line = self._process.stdout.readline(LINE_BYTES)
        if not line.endswith(b"\n"):
            raise self._crash()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise FormatError(f"{self.name}: {answer['error']}")
        return answer

    def _crash(self) -> FormatError:
        return FormatError(
            f"{self.name}: the HDF5 library crashed on this file (exit code "
            f"{self._process.wait()}). Fix: fetch the file again, or repair it with h5repack."
        )


class Hdf5Source(StoredSource):
    """A ``Source`` over a dataset of an HDF5 file: ``member``, or the only one of two dimensions.

    Raises
    ------
    MercoreError
        The errors of ``Hdf5Dataset``.
    FormatError
        If the numbers are of a dtype that mercore does not read.
    """

    kind = "hdf5"

    def __init__(self, path: str, member: str | None) -> None:
        self._dataset = Hdf5Dataset(path, member)
        super().__init__(self._dataset.name, self._dataset.shape, self._dataset.dtype)

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        rows = np.empty((stop - start, self.shape[1]), self.dtype)
        for first, window in self._dataset.windows(start, stop):
            place = rows[first - start : first - start + len(window)]
            # Bytes of bools need not be 0 or 1.
            numbers = window.view(np.uint8) if window.dtype.kind == "b" else window
            place[:] = convert(numbers, self.dtype, name=self.name, first=first)
        return rows


def _end(process: Any) -> None:  # noqa: ANN401 - a Popen with pipes
    """End the process of a source, at once."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # what was not written is of no use
            pipe.close()

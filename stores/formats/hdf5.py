"""HDF5 files: a 2-D dataset of numbers, named as ``file.h5::train``."""

import json
import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.dtypes import convert, returned_dtype
from mercore.stores.formats.source import check_row_range, check_shape, digest_rows
from mercore.stores.location.local_file import LocalFile
from mercore.stores.location.resolve import refuse_url

READER = Path(__file__).with_name("hdf5_reader.py")
WINDOW_BYTES = 8 << 20
LINE_BYTES = 1 << 20


class Hdf5Source:
    """A ``Source`` over a dataset, which another process reads: see ``hdf5_reader``."""

    def __init__(self, path: str, member: str | None) -> None:
        self._lock, self.name = Lock(), path
        words = [sys.executable, "-P", str(READER), str(Path(path).absolute())]
        self._process = subprocess.Popen(  # noqa: S603 - our own file
            [*words, *([] if member is None else [member])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        weakref.finalize(self, _end, self._process)
        header = self._answer()
        self.name = f"{path}::{header['member']}"
        n, d = header["shape"]
        check_shape(self.name, n, d)
        self.shape = (n, d)
        self.source_dtype = np.dtype(header["dtype"])
        self.dtype = returned_dtype(self.source_dtype, self.name)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` as ``dtype``; see ``Source.read``."""
        check_row_range(self, start, stop)
        rows = np.empty((stop - start, self.shape[1]), self.dtype)
        step = max(1, WINDOW_BYTES // (self.shape[1] * self.source_dtype.itemsize))
        with self._lock:
            for first in range(start, stop, step):
                last = min(first + step, stop)
                rows[first - start : last - start] = convert(
                    self._window(first, last), self.dtype, name=self.name, first=first
                )
        return rows

    def fingerprint(self) -> str:
        """Return the digest of ``Source.fingerprint``, with the size of the uncompressed rows."""
        size = self.shape[0] * self.shape[1] * self.source_dtype.itemsize
        return digest_rows(self, kind="hdf5", stored=self.source_dtype, size=size)

    def _window(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows as they are stored."""
        stored = self.source_dtype
        raw = np.empty((stop - start, self.shape[1] * stored.itemsize), np.uint8)
        try:
            cast("Any", self._process.stdin).write(f"{start} {stop}\n".encode())
            cast("Any", self._process.stdin).flush()
        except BrokenPipeError as error:
            raise self._crash() from error
        count = self._answer()["bytes"]
        view = raw.reshape(-1).data
        if count != len(view) or cast("Any", self._process.stdout).readinto(view) != count:
            raise self._crash()
        return raw.view(np.uint8 if stored.kind == "b" else stored)

    def _answer(self) -> dict[str, Any]:
        """Return the next answer of the process."""
        line = cast("Any", self._process.stdout).readline(LINE_BYTES)
        if not line.endswith(b"\n"):
            raise self._crash()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise FormatError(f"{self.name}: {answer['error']}")
        return answer

    def _crash(self) -> FormatError:
        return FormatError(
            f"{self.name}: the HDF5 library broke down on it (exit code {self._process.wait()}). "
            "Fix: fetch the file again, or repair it with h5repack."
        )


def open_hdf5(path: str, member: str | None) -> Hdf5Source:
    """Open a dataset of an HDF5 file: ``member``, or the only one of two dimensions.

    Raises
    ------
    FormatError
        If the file is damaged, or it has no such dataset, or several without a ``member``.
    InputError
        If it is a URL.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    refuse_url(path, "an HDF5 file")
    LocalFile(path)  # which says why it cannot be read
    return Hdf5Source(path, member)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process of a source, at once."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # what was not written is of no use
            cast("Any", pipe).close()

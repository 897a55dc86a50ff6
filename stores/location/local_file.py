"""Positional reads of a file of this machine."""

import os
import stat
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, NotFoundError
from mercore.stores.location.protocol import PositionalFile
from mercore.stores.location.publish import storage_errors


def path_status(path: str) -> os.stat_result:
    """Return the operating system's ``stat`` of ``path``.

    Raises
    ------
    NotFoundError
        If there is nothing at ``path``.
    StorageError
        If the operating system refuses.
    """
    with storage_errors("read", path):
        try:
            return Path(path).stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            message = f"{path}: no such file or folder. Fix: check the path."
            raise NotFoundError(message) from error


def check_regular(path: str) -> None:
    """Refuse a folder, a pipe, a socket or a device before it is opened; a pipe would wait.

    Raises
    ------
    FormatError
        If something is there that is no regular file.
    """
    with suppress(OSError):  # whoever opens it says why that fails
        _refuse_irregular(Path(path).stat(), path)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Yield the descriptor of a regular file for the block."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # otherwise a pipe would wait
    try:
        _refuse_irregular(os.fstat(handle), path)
        yield handle
    finally:
        os.close(handle)


def _refuse_irregular(status: os.stat_result, path: str | Path) -> None:
    """Refuse what is no regular file: see ``check_regular``."""
    if not stat.S_ISREG(status.st_mode):
        fix = "Fix: name a file; copy a pipe or a device to one first."
        raise FormatError(f"{path}: not a regular file. {fix}")


class LocalFile(PositionalFile):
    """A regular file read at positions; it is closed when nothing refers to it any more."""

    def __init__(self, path: str) -> None:
        path_status(path)
        check_regular(path)
        self.name = path
        with storage_errors("read", path):
            self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size

    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill the C-contiguous ``buffer`` from byte ``offset`` on: see ``PositionalFile``."""
        view = buffer.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(view):
            with storage_errors("read", self.name):
                count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if count == 0:
                raise FormatError(
                    f"{self.name}: the file ends at byte {offset + done}, "
                    f"expected {offset + len(view)} bytes. "
                    "Fix: fetch the file again, and change no file while it is read."
                )
            done += count

"""Files of a store in the system's page cache."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mercore.stores.location.local import LocalLocation
from mercore.stores.part_store.part_store import PartStore

AHEAD_BYTES = 128 << 10  # of one request: the system cuts larger ones to its limit


def chunk_files(store: PartStore, parts: Iterable[int]) -> list[Path]:
    """Return those files of some parts that lie on this machine."""
    columns = store.columns.values()
    files = (store.chunk_file(column, part) for part in parts for column in columns)
    return [file.path for file in files if isinstance(file, LocalLocation)]


def receipt_files(store: PartStore, parts: Iterable[int]) -> list[Path]:
    """Return the files of the receipts of some parts, if they lie on this machine."""
    files = map(store.receipt_file, parts)
    return [file.path for file in files if isinstance(file, LocalLocation)]


def forget(files: Iterable[Path]) -> None:
    """Drop files from the page cache, so that they are read from the disk again.

    A file that cannot be opened is left to its reader, which says what is wrong.
    """
    for path in files:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)


def read_soon(files: Iterable[Path]) -> None:
    """Ask the system to read files into the page cache, which it does in the background.

    A file that cannot be opened is left to its reader, which says what is wrong.
    """
    for path in files:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY)
            try:
                for start in range(0, os.fstat(handle).st_size, AHEAD_BYTES):
                    os.posix_fadvise(handle, start, AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(handle)

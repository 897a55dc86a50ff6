"""Publish files atomically and durably: a reader sees the whole file or none, a power cut included."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mercore.stores.errors import NotFoundError, StorageError
from mercore.stores.location.scratch import scratch_file


def publish(path: Path, data: bytes | memoryview) -> None:
    """Write ``data`` to ``path`` under a name of its own, fsync it, then rename it into place.

    Two writers never share a temporary name, so whoever renames last wins with a whole file.

    Raises
    ------
    StorageError
        If the disk is full or the folder cannot be written; nothing is left behind.
    """
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_file(path) as (scratch, file):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            scratch.rename(path)
        sync_folder(path.parent)


def exists(path: Path) -> bool:
    """Return whether there is something at ``path``.

    Raises
    ------
    StorageError
        If that may not be looked at.
    """
    with storage_errors("read", path):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def check_folder(path: Path) -> None:
    """Refuse a path whose folder is not there.

    Raises
    ------
    NotFoundError
        If it is not.
    StorageError
        If it may not be looked at.
    """
    with storage_errors("write", path):
        if not path.parent.is_dir():
            raise NotFoundError(f"cannot write {path}: there is no folder {path.parent}. Fix: create it.")


def sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def storage_errors(verb: str, path: Path | str) -> Iterator[None]:
    """Turn an ``OSError`` of the block into a ``StorageError`` or ``NotFoundError`` that names path and mend."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} does not exist: cannot {verb} it. Fix: check the path.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        message = (
            f"cannot {verb} {path}: {reason}. Fix: free space or grant access there, then run the same command again."
        )
        raise StorageError(message) from error

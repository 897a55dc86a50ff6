"""Publishing of files: a reader sees the whole file or none, even after a power cut."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mercore.stores.errors import NotFoundError, StorageError
from mercore.stores.location.scratch import scratch_file, sweep

REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free space there"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "grant access there"),
    **dict.fromkeys(
        (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP),
        "name a folder of a local disk, or start the lock service of this file system (lockd of "
        "NFS)",
    ),
}


def publish(path: Path, *pieces: bytes | memoryview) -> None:
    """Write ``pieces`` to a scratch file, fsync it, then rename it to ``path``.

    Two writers never share a scratch name, so the last to rename leaves a whole file.

    Raises
    ------
    StorageError
        If the disk is full or the folder cannot be written; no scratch file is left.
    """
    publish_by(path, lambda file: file.writelines(pieces))


def publish_by(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Publish, as ``publish`` does, what ``write`` writes to the scratch file."""
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_file(path) as (scratch, file):
            write(file)
            _sync(file)
            scratch.rename(path)
        sync_folder(path.parent)


def write_hidden(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a file that nobody reads yet, and fsync it; its folders are to be synced later."""
    with storage_errors("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.writelines(pieces)
            _sync(file)


def _sync(file: BinaryIO) -> None:
    """Write the bytes of a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def publish_output(path: Path, data: bytes | memoryview) -> None:
    """Publish the file that a verb was asked for; first remove what killed writers of it left."""
    sweep(path.parent, path.name)
    publish(path, data)


def exists(path: Path) -> bool:
    """Return whether there is something at ``path``.

    Raises
    ------
    StorageError
        If the operating system refuses to say.
    """
    with storage_errors("read", path):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def check_folder(path: Path) -> None:
    """Refuse a path whose folder does not exist.

    Raises
    ------
    NotFoundError
        If the folder does not exist.
    StorageError
        If the operating system refuses to say.
    """
    with storage_errors("write", path):
        if not path.parent.is_dir():
            raise NotFoundError(
                f"cannot write {path}: there is no folder {path.parent}. Fix: create it."
            )


def sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def storage_errors(verb: str, path: Path | str) -> Iterator[None]:
    """Turn an ``OSError`` of the block into a ``StorageError`` or ``NotFoundError`` with a fix."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(
            f"{path} does not exist: cannot {verb} it. Fix: check the path."
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = REMEDIES.get(error.errno or 0, "free space or grant access there")
        raise StorageError(
            f"cannot {verb} {path}: {reason}. Fix: {remedy}, then run the same command again."
        ) from error

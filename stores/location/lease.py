"""The lease of a store on this machine: the lock of a file beside it.

The lease of ``NAME`` is the kernel lock of the file ``.NAME.lease`` (see ``file_lock``). The text
of the file names the owner, for the message of a process that waits. If the owner dies, the next
process has the lease at once; an owner that is stopped keeps it.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from mercore.stores.errors import LeaseError
from mercore.stores.location.file_lock import lies_at, take
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.publish import check_folder, storage_errors


class LocalLease(LeaseHandle):
    """A lease that is the lock of a file: see ``LeaseHandle``."""

    def __init__(self, path: Path, file: Path, descriptor: int) -> None:
        self._path = path
        self._file = file
        self._descriptor = descriptor
        self._owner = this_process()

    def sign(self) -> None:
        """Write the owner's name to the file, over that of an owner that was killed."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, self._owner.encode(), 0)

    def check(self) -> None:
        """Raise ``LeaseError`` if the file was removed or replaced: then its lock means nothing."""
        with storage_errors("read", self._file):
            if lies_at(self._file, self._descriptor):
                return
            exists = self._file.exists()
            found = f"{_owner_in(self._file)} has it" if exists else f"{self._file} is gone"
            raise lost(self._path, found, self._owner)

    def release(self) -> None:
        """Remove the file, unless it is another process's by now, and free the lock."""
        try:
            with suppress(OSError):
                if lies_at(self._file, self._descriptor):
                    self._file.unlink()
        finally:
            os.close(self._descriptor)


@contextmanager
def lease(
    path: Path, print_fn: Callable[[str], None] = lambda sentence: None
) -> Iterator[LocalLease]:
    """Hold the exclusive lease of ``path``, which need not exist, for the block.

    Parameters
    ----------
    print_fn : prints a sentence that names the owner, if there is one to wait for

    Raises
    ------
    NotFoundError
        If the folder of ``path`` does not exist.
    StorageError
        If no file can be written beside ``path``, or its file system has no locks.
    """
    check_folder(path)
    file = lease_path(path)
    with storage_errors("write", file):
        descriptor = take(file)
        if descriptor is None:
            print_fn(f"waiting for {path}: {_owner_in(file)} is at work on it")
            descriptor = take(file, wait=True)
        assert descriptor is not None
    handle = LocalLease(path, file, descriptor)
    try:
        with storage_errors("write", file):
            handle.sign()
        yield handle
    finally:
        handle.release()


def lease_path(path: Path) -> Path:
    """Return the file that is the lease of ``path``; two names of one store have one lease."""
    target = path.resolve()
    return target.with_name(f".{target.name}.lease")


def this_process() -> str:
    """Return what messages call this process: its number, its host, and the time."""
    now = datetime.now(UTC)
    return f"process {os.getpid()} on {socket.gethostname()} since {now:%Y-%m-%d %H:%M:%S} UTC"


def owner_in(text: str) -> str:
    """Return the owner that the first line of a lease names."""
    line = text.partition("\n")[0]
    return line if line and line.isprintable() else "another process"


def lost(store: object, found: str, owner: str) -> LeaseError:
    """Return the error of an owner that lost the lease of a store."""
    return LeaseError(
        f"{store} is no longer this process's to write: found that {found}, expected {owner}. "
        "Fix: run the same command again: it waits for its turn, and what is done stays done."
    )


def _owner_in(file: Path) -> str:
    """Return the owner that a lease's file names; it may be removed at any moment."""
    try:
        return owner_in(file.read_text(errors="replace"))
    except FileNotFoundError:
        return owner_in("")

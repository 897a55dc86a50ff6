"""Kernel locks on files: the system frees a lock when the process that holds it ends."""

import fcntl
import os
import time
from itertools import count
from pathlib import Path

TRIES, TRY_SECONDS = 10, 0.01  # `held` takes a lock, too, for a moment


def take(path: Path, *, wait: bool = False) -> int | None:
    """Lock ``path``, made if missing; return a descriptor that holds the lock until closed.

    Child processes do not hold the lock, except those that the descriptor is passed to.

    Parameters
    ----------
    wait : wait until the lock is free; otherwise return None if another process holds it

    Raises
    ------
    OSError
        If there is no regular file and none can be made, or its file system has no locks.
    """
    for tries in count(1):
        descriptor = _try(path, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        if descriptor is not None or (tries == TRIES and not wait):
            return descriptor
        time.sleep(TRY_SECONDS)
    raise AssertionError


def held(path: Path) -> bool:
    """Return whether some living process holds the lock of the file ``path``."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that ask do not meet
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def lies_at(path: Path, descriptor: int) -> bool:
    """Return whether an open file is still the one at ``path``: neither removed nor replaced."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _try(path: Path, how: int) -> int | None:
    """Open and lock the file; None if another process holds the lock, or has removed the file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    locked = False
    try:
        fcntl.flock(descriptor, how)
        locked = lies_at(path, descriptor)
    except BlockingIOError:
        pass
    finally:
        if not locked:
            os.close(descriptor)
    return descriptor if locked else None

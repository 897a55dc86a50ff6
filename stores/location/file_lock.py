"""Locks that the system drops with their holder: who holds one is alive, whatever became of its number."""

import fcntl
import os
import time
from pathlib import Path

LOOKS, LOOK_SECONDS = 10, 0.01  # those who only look hold a lock for a moment, too


def take(path: Path) -> int | None:
    """Return a descriptor that holds the lock of the file ``path`` until it is closed, None if another holds it.

    Children that inherit the descriptor hold the lock with it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(LOOKS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_SECONDS)
        else:
            return descriptor
    os.close(descriptor)
    return None


def held(path: Path) -> bool:
    """Return whether some living process holds the lock of the file ``path``."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: those who only look do not disturb each other
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False

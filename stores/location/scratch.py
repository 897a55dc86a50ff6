"""Scratch names: what is being written has a name and a lock of its own, so what a killed writer left can be told."""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

SCRATCH = re.compile(r"\.(?P<name>.+)\.\d+-[0-9a-f]{8}\.tmp")


@contextmanager
def scratch_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield a new file beside ``path`` and its name; if it still has that name at the end, it is removed."""
    while True:
        scratch = _scratch_name(path)
        with scratch.open("xb") as file:
            if not _hold(scratch, file.fileno()):
                continue
            try:
                yield scratch, file
            finally:
                with suppress(OSError):
                    scratch.unlink(missing_ok=True)
        return


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside ``path``; if it still has its name at the end, it is removed with all that is in it."""
    while True:
        scratch = _scratch_name(path)
        scratch.mkdir()
        try:
            descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # a sweep took it before it could be locked
        try:
            if not _hold(scratch, descriptor):
                continue
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            os.close(descriptor)
        return


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove what killed writers left in ``folder``: all of it, or only what was to be called ``name``.

    A living writer holds a lock on its scratch, which the system drops with the process: its scratch stays.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = SCRATCH.fullmatch(entry.name)
            if match and name in (None, match["name"]):
                _remove_unheld(Path(entry.path), is_folder=entry.is_dir(follow_symlinks=False))


def sweep_tree(folder: Path) -> None:
    """Remove what killed writers left in ``folder`` and every folder below it."""
    for below, _, _ in os.walk(folder):
        sweep(Path(below))


def _scratch_name(path: Path) -> Path:
    """Return a name beside ``path`` that no other writer has."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _hold(scratch: Path, descriptor: int) -> bool:
    """Lock what was just created; False if a sweep was quicker, and it is gone."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: there a sweep cannot lock either, and removes nothing
    try:
        return os.path.samestat(scratch.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_unheld(scratch: Path, *, is_folder: bool) -> None:
    """Remove a scratch file or folder unless its writer holds it, or it cannot be locked."""
    with suppress(OSError):
        descriptor = os.open(scratch, os.O_NOFOLLOW | (os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(scratch) if is_folder else scratch.unlink()
        finally:
            os.close(descriptor)

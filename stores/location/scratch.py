"""Scratch files and folders: locked while they are written, so that remains can be swept.

A living writer holds a lock on its scratch, which the system frees with the process.
"""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mercore.stores.location.file_lock import lies_at

SCRATCH = re.compile(r"\.(?P<name>.+)\.\d+-[0-9a-f]{8}\.tmp")


@contextmanager
def scratch_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield a new path beside ``path``, and its file; remove it unless it is renamed."""
    while True:
        scratch = _scratch_name(path)
        with scratch.open("xb") as file:
            if not _lock(scratch, file.fileno()):
                continue
            try:
                yield scratch, file
            finally:
                with suppress(OSError):
                    scratch.unlink(missing_ok=True)
        return


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside ``path``; remove it and its files unless it is renamed."""
    while True:
        scratch = _scratch_name(path)
        scratch.mkdir()
        try:
            descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # a sweep took it before it could be locked
        try:
            if not _lock(scratch, descriptor):
                continue
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            os.close(descriptor)
        return


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove the scratch files that killed writers left in ``folder``.

    With ``name``, only those of that file are removed.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = SCRATCH.fullmatch(entry.name)
            if match and name in (None, match["name"]):
                _remove_unlocked(Path(entry.path), is_folder=entry.is_dir(follow_symlinks=False))


def sweep_tree(folder: Path) -> None:
    """Remove the scratch files of killed writers in ``folder`` and in every folder below it."""
    for below, _, _ in os.walk(folder):
        sweep(Path(below))


def _scratch_name(path: Path) -> Path:
    """Return a path beside ``path`` that no other writer uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _lock(scratch: Path, descriptor: int) -> bool:
    """Lock new scratch; return False if a sweep was quicker and has removed it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # without locks on this file system, a sweep removes nothing
    return lies_at(scratch, descriptor)


def _remove_unlocked(scratch: Path, *, is_folder: bool) -> None:
    """Remove a scratch file or folder, unless its writer holds its lock."""
    with suppress(OSError):
        descriptor = os.open(
            scratch, os.O_NOFOLLOW | (os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR)
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(scratch) if is_folder else scratch.unlink()
        finally:
            os.close(descriptor)

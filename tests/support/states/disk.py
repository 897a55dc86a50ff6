"""Where stores of a state machine lie, and what disturbs a verb that writes them: a kill or another
process, before any change of a file."""

import builtins
import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import obstore

from tests.support.killing import Killed
from tests.support.object_server import BUCKET, ObjectServer

Files = dict[str, bytes]
PREFIXES = map("stores-{}".format, count())
CHANGES = (
    *((os, name) for name in ("rename", "replace", "unlink", "remove", "mkdir", "rmdir")),
    *((obstore, name) for name in ("put", "delete")),
)
OPENINGS = ((io, "open"), (builtins, "open"), (os, "open"))


class Folder:
    """A folder of stores on this machine."""

    here = True

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def __call__(self, name: str) -> str:
        """Return the path of a store."""
        return str(self.path / name)

    def files(self, name: str) -> Files:
        """Return all files of a store by their keys; of a file that is none, its bytes."""
        path = self.path / name
        if path.is_file():
            return {"": path.read_bytes()}
        files = (each for each in sorted(path.rglob("*")) if each.is_file())
        return {str(each.relative_to(path)): each.read_bytes() for each in files}

    def put(self, name: str, files: Files) -> None:
        """Put files in place of all that are there."""
        path = self.path / name
        if path.is_file():
            path.unlink()
        shutil.rmtree(path, ignore_errors=True)
        for key, data in files.items():
            file = path / key if key else path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)

    def move(self) -> None:
        """Move all stores together to another folder."""
        stem, _, count = self.path.name.partition("-")
        self.path = self.path.rename(self.path.with_name(f"{stem}-{int(count or 0) + 1}"))

    def free(self, name: str) -> None:
        """Free the lease of a killed process at once: here the system does it."""


class Bucket:
    """A prefix of stores on an object server; ``here`` says that they are on this machine."""

    here = False

    def __init__(self, server: ObjectServer) -> None:
        self._server, self._prefix = server, next(PREFIXES)

    def __call__(self, name: str) -> str:
        """Return the URL of a store."""
        return f"s3://{BUCKET}/{self._prefix}/{name}"

    def files(self, name: str) -> Files:
        """Return all objects of a store by their keys."""
        prefix = f"{self._prefix}/{name}"
        return {key: self._server.get(f"{prefix}/{key}") for key in self._server.keys(prefix)}

    def put(self, name: str, files: Files) -> None:
        """Put objects in place of all that are there."""
        for key in self._server.keys(f"{self._prefix}/{name}"):
            self._server.delete(f"{self._prefix}/{name}/{key}")
        for key, data in files.items():
            self._server.put(f"{self._prefix}/{name}/{key}", data)

    def move(self) -> None:
        """Move all stores together to another prefix."""
        old, self._prefix = self._prefix, next(PREFIXES)
        for key in self._server.keys(old):
            self._server.put(f"{self._prefix}/{key}", self._server.get(f"{old}/{key}"))
            self._server.delete(f"{old}/{key}")

    def free(self, name: str) -> None:
        """Free the lease of a killed process at once: it would be silent for too long."""
        with suppress(FileNotFoundError):
            self._server.delete(f"{self._prefix}/{name}.lease")


class Disturbance:
    """A call before the n-th change of a file; a process that it kills changes nothing more."""

    def __init__(self, number: int, call: Callable[[], object]) -> None:
        self.number, self.call, self.changes = number, call, 0
        self._inside = self._dead = False
        self._lock = threading.Lock()

    def before_change(self) -> None:
        """Count a change; call, if it is the one."""
        with self._lock:
            if self._dead:
                raise Killed
            if self._inside:
                return
            self.changes += 1
            if self.changes - 1 != self.number:
                return
            self._inside = True
        try:
            self.call()
        except Killed:
            self._dead = True
            raise
        finally:
            self._inside = False


def kill() -> None:
    """End the process."""
    raise Killed


@contextmanager
def disturbed(number: int, call: Callable[[], object]) -> Iterator[Disturbance]:
    """Call before the change ``number`` of a file in the block; nothing waits for the disk."""
    disturbance = Disturbance(number, call)

    def counted(function: Callable[..., Any], counts: Callable[..., bool]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            if counts(*arguments, **options):
                disturbance.before_change()
            return function(*arguments, **options)

        return run

    with ExitStack() as stack:
        stack.enter_context(patch.object(os, "fsync"))
        for module, name in CHANGES:
            changed = counted(getattr(module, name), partial(_changes, name))
            stack.enter_context(patch.object(module, name, changed))
        for module, name in OPENINGS:
            opened = counted(getattr(module, name), _writes)
            stack.enter_context(patch.object(module, name, opened))
        yield disturbance


def _changes(name: str, path: object, *_: object, dir_fd: int | None = None, **__: object) -> bool:
    """Return whether a call changes anything: no folder is made twice, and no file removed."""
    if dir_fd is not None or not isinstance(path, str | Path):  # of a folder that is removed
        return True
    return name == "rename" or os.path.lexists(path) != (name == "mkdir")


def _writes(_: object, mode: str | int = "r", *__: object, **___: object) -> bool:
    """Return whether a file is opened to be made."""
    return bool(mode & os.O_CREAT) if isinstance(mode, int) else mode[0] in "wxa"

"""Places of this machine: files appear under their names whole and durable, and stores at once."""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import ExistsError, NotFoundError
from mercore.stores.location.lease import lease
from mercore.stores.location.protocol import ROOT, Draft, Item, LeaseHandle, Result
from mercore.stores.location.publish import check_folder, exists, publish, storage_errors, sync_folder
from mercore.stores.location.scratch import scratch_folder, sweep, sweep_tree


@dataclass(frozen=True)
class LocalLocation:
    """A file or a folder: see ``Location``."""

    path: Path

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def __truediv__(self, key: str) -> "LocalLocation":
        """Return the place of a key below this one."""
        return LocalLocation(self.path / key)

    def exists(self) -> bool:
        """Return whether there is something here."""
        return exists(self.path)

    def is_folder(self) -> bool:
        """Return whether it is a folder."""
        return self.path.is_dir()

    def read(self) -> bytes:
        """Return the file's bytes, or raise ``NotFoundError``, also where a file is in the folder's place."""
        with storage_errors("read", self.path):
            try:
                return self.path.read_bytes()
            except NotADirectoryError as error:
                raise FileNotFoundError(self.path) from error

    def read_into(self, buffer: NDArray[np.uint8]) -> int:
        """Fill ``buffer`` with the file's bytes if it has as many, and return how many it has."""
        with storage_errors("read", self.path), self.path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != len(buffer):
                return size
            done = 0
            while done < size and (count := file.readinto(buffer.data[done:])):
                done += count
        return done

    def sizes(self) -> Callable[[str], int | None]:
        """Return what tells the bytes of the file of each key below, or None if there is none."""
        return lambda key: _size(self.path / key)

    def publish(self, data: bytes) -> None:
        """Write the file beside its name, fsync it, and rename it into place."""
        publish(self.path, data)

    def each(self, function: Callable[[Item], Result], items: Iterable[Item], *, held: int = 0) -> Iterator[Result]:
        """Yield ``function`` of each item, one after another: a disk is no quicker for threads that ask it at once."""
        return map(function, items)

    def check_new(self) -> None:
        """Refuse a path that exists, or whose folder does not: see ``Location``."""
        with storage_errors("write", self.path):
            if os.path.lexists(self.path):
                raise ExistsError(f"{self.path} exists: expected a new path. Fix: name another, or remove it.")
        check_folder(self.path)

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """Yield a store in a scratch folder, which takes the path's name when it is finished."""
        sweep(self.path.parent, self.path.name)
        with ExitStack() as stack:
            with storage_errors("write", self.path):
                scratch = stack.enter_context(scratch_folder(self.path))
            yield LocalDraft(LocalLocation(scratch), self.path)

    def sweep(self) -> None:
        """Remove the scratch files that killed writers left here and in the folders below."""
        sweep_tree(self.path)

    def resolved(self) -> "LocalLocation":
        """Return the absolute path."""
        return LocalLocation(self.path.resolve())

    def lease(self, tell: Callable[[str], None]) -> AbstractContextManager[LeaseHandle]:
        """Have the lease, a file beside the path, for the block."""
        return lease(self.path, tell)

    def held_bytes(self) -> int:
        """Return the bytes of the files below."""
        total = 0
        for folder, _, names in os.walk(self.path):
            for name in names:
                with suppress(FileNotFoundError):  # another process's scratch comes and goes
                    total += (Path(folder) / name).lstat().st_size
        return total

    def free_bytes(self) -> int:
        """Return the bytes that are free where the path is, or is to be."""
        with storage_errors("write", self.path):
            folder = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.is_dir())
            return shutil.disk_usage(folder).free

    def spill_folder(self) -> Path:
        """Return the folder that the path is in: there is room, or the store would not fit either."""
        return self.path.parent


@dataclass(frozen=True)
class LocalDraft:
    """A scratch folder that becomes the store at ``path``: see ``Draft``."""

    place: LocalLocation
    path: Path

    def finish(self, root: bytes) -> None:
        """Publish the metadata of the root and give the folder its name, durably."""
        (self.place / ROOT).publish(root)
        with storage_errors("write", self.path):
            try:
                self.place.path.rename(self.path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                raise ExistsError(
                    f"{self.path} appeared a moment ago: expected a new path. Fix: name another."
                ) from None
            sync_folder(self.path.parent)


def _size(path: Path) -> int | None:
    """Return the bytes of a file, or None if there is none."""
    try:
        with storage_errors("read", path):
            return path.stat().st_size
    except NotFoundError:
        return None

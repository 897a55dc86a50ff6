"""Locations on this machine: a file or a store appears whole, and survives a power cut."""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import ExistsError, NotFoundError
from mercore.stores.location.lease import lease
from mercore.stores.location.local_file import LocalFile, check_regular, opened
from mercore.stores.location.protocol import ROOT, Draft, Item, LeaseHandle, Piece, Result
from mercore.stores.location.publish import (
    check_folder,
    exists,
    publish,
    storage_errors,
    sync_folder,
    write_hidden,
)
from mercore.stores.location.scratch import scratch_folder, sweep, sweep_tree

SYNCS = 4  # folders that are synced at once


@dataclass(frozen=True)
class LocalLocation:
    """A file or a folder: see ``Location``."""

    path: Path
    request_bytes: ClassVar[int] = 16 << 10
    requests: ClassVar[int] = 1

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def __truediv__(self, key: str) -> Self:
        """Return the path of a key below this one."""
        return type(self)(self.path / key)

    def exists(self) -> bool:
        """Return whether there is something here."""
        return exists(self.path)

    def is_folder(self) -> bool:
        """Return whether it is a folder."""
        return self.path.is_dir()

    def read(self) -> bytes:
        """Return the file's bytes, or raise ``NotFoundError``, also if its folder is a file."""
        check_regular(str(self.path))
        with storage_errors("read", self.path):
            try:
                return self.path.read_bytes()
            except NotADirectoryError as error:
                raise FileNotFoundError(self.path) from error

    def read_into(self, buffer: NDArray[np.uint8]) -> int:
        """Fill ``buffer`` with the file's bytes if the sizes agree, and return the file's size."""
        check_regular(str(self.path))
        with storage_errors("read", self.path), self.path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != len(buffer):
                return size
            done = 0
            while done < size and (count := file.readinto(buffer.data[done:])):
                done += count
        return done

    def read_ranges(
        self, ranges: Sequence[tuple[int, int]], buffer: NDArray[np.uint8], *, wait: bool = True
    ) -> int:
        """Fill ``buffer`` with ranges of the file's bytes: see ``Location``."""
        view, done, flags = buffer.data, 0, 0 if wait else os.RWF_NOWAIT
        with storage_errors("read", self.path), opened(self.path) as handle:
            for start, stop in ranges:
                end = done + stop - start
                while done < end:
                    try:
                        count = os.preadv(handle, [view[done:end]], stop - (end - done), flags)
                    except OSError as error:
                        if wait or error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
                            raise
                        for first, last in ranges:
                            os.posix_fadvise(handle, first, last - first, os.POSIX_FADV_WILLNEED)
                        return done
                    if count == 0:
                        return done
                    done += count
        return done

    def open_file(self) -> LocalFile:
        """Open the file for reads at positions."""
        return LocalFile(str(self.path))

    def sizes(self) -> Callable[[str], int | None]:
        """Return a function from a key below to the bytes of its file, None if there is no file."""
        return lambda key: _size(self.path / key)

    def publish(self, *pieces: Piece) -> None:
        """Write the file beside its name, fsync it, and rename it into place."""
        publish(self.path, *pieces)

    def remove(self) -> None:
        """Remove the file, if there is one, and the folders that it leaves empty."""
        with storage_errors("write", self.path):
            self.path.unlink(missing_ok=True)
        with suppress(OSError):
            os.removedirs(next(folder for folder in self.path.parents if folder.is_dir()))

    def each(
        self, function: Callable[[Item], Result], items: Iterable[Item], *, call_bytes: int = 0
    ) -> Iterator[Result]:
        """Yield ``function`` of each item, one by one: several threads do not speed up a disk."""
        return map(function, items)

    def check_new(self) -> None:
        """Refuse a path that exists, or whose folder does not exist: see ``Location``."""
        with storage_errors("write", self.path):
            if os.path.lexists(self.path):
                raise ExistsError(
                    f"{self.path} exists: expected a new path. Fix: name another, or remove it."
                )
        check_folder(self.path)

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """Yield a store in a scratch folder, which is renamed to the path when it is finished."""
        sweep(self.path.parent, self.path.name)
        with ExitStack() as stack:
            with storage_errors("write", self.path):
                scratch = stack.enter_context(scratch_folder(self.path))
            yield LocalDraft(HiddenFolder(scratch), self.path)

    def sweep(self) -> None:
        """Remove the scratch files that killed writers left, and sync the folders."""
        sweep_tree(self.path)
        self.sync_folders()

    def sync_folders(self) -> None:
        """Fsync the folders that hold folders; those of single chunks are synced with these."""
        with storage_errors("write", self.path):
            for folder, below, names in os.walk(self.path):
                sync_folder(Path(folder))
                if Path(folder).name == "c" and ROOT not in names:  # a store may be called c
                    below.clear()

    def resolved(self) -> "LocalLocation":
        """Return the absolute path."""
        return LocalLocation(self.path.resolve())

    def lease(self, print_fn: Callable[[str], None]) -> AbstractContextManager[LeaseHandle]:
        """Hold the lease, the lock of a file beside the path, for the block."""
        return lease(self.path, print_fn)

    def stored_bytes(self) -> int:
        """Return the bytes of the files below."""
        total = 0
        for folder, _, names in os.walk(self.path):
            for name in names:
                with suppress(FileNotFoundError):  # a scratch file of another process
                    total += (Path(folder) / name).lstat().st_size
        return total

    def free_bytes(self) -> int:
        """Return the free bytes of the disk that holds the path, or would hold it."""
        with storage_errors("write", self.path):
            folder = next(
                folder for folder in (self.path, *self.path.absolute().parents) if folder.is_dir()
            )
            return shutil.disk_usage(folder).free

    def spill_folder(self) -> Path:
        """Return the folder of the path, which has space if the store is to fit there."""
        return self.path.parent


@dataclass(frozen=True)
class HiddenFolder(LocalLocation):
    """A file or a folder that nobody reads before it is renamed, so files need no scratch names."""

    def publish(self, *pieces: Piece) -> None:
        """Write the file and fsync it, but not its name: see ``sync_folders``."""
        write_hidden(self.path, *pieces)

    def sync_folders(self) -> None:
        """Fsync all folders, some at a time: they share the waits for the disk."""
        with storage_errors("write", self.path), ThreadPoolExecutor(SYNCS) as pool:
            for _ in pool.map(sync_folder, [Path(folder) for folder, _, _ in os.walk(self.path)]):
                pass


@dataclass(frozen=True)
class LocalDraft:
    """A scratch folder that becomes the store at ``path``: see ``Draft``."""

    location: HiddenFolder
    path: Path

    def finish(self, root: bytes) -> None:
        """Publish the metadata of the root and rename the folder to the path."""
        (self.location / ROOT).publish(root)
        self.location.sync_folders()
        with storage_errors("write", self.path):
            try:
                self.location.path.rename(self.path)
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

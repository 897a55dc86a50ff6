"""Locations: folders of this machine and prefixes of object stores, as stores use them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

ROOT = "zarr.json"
Piece = bytes | memoryview  # of a file, one behind the other

Item = TypeVar("Item")
Result = TypeVar("Result")


class Location(Protocol):
    """A file, or a folder of files; messages show its ``str``."""

    @property
    def request_bytes(self) -> int:
        """Bytes that take as long to read as one more request takes."""

    @property
    def requests(self) -> int:
        """Requests that are faster side by side than one after another."""

    def __truediv__(self, key: str) -> "Location":
        """Return the location of a key below this one."""

    def exists(self) -> bool:
        """Return whether something is here; remains of an interrupted creation do not count."""

    def is_folder(self) -> bool:
        """Return whether there can be files below."""

    def read(self) -> bytes:
        """Return the file's bytes, or raise ``NotFoundError``."""

    def read_into(self, buffer: NDArray[np.uint8]) -> int:
        """Fill ``buffer`` with the file's bytes if the sizes agree, and return the file's size.

        Raises
        ------
        NotFoundError
            If there is no file.
        """

    def read_ranges(
        self, ranges: Sequence[tuple[int, int]], buffer: NDArray[np.uint8], *, wait: bool = True
    ) -> int:
        """Fill ``buffer`` with the bytes [start, stop) of each range, one behind the other.

        Return the number of bytes read: fewer if the file ends too early.

        Parameters
        ----------
        wait : otherwise stop at bytes that this machine's memory does not hold, and ask the system
            to read all ranges in the background

        Raises
        ------
        NotFoundError
            If there is no file.
        """

    def open_file(self) -> "PositionalFile":
        """Open the file for reads at positions.

        Raises
        ------
        NotFoundError, FormatError, StorageError
            If it does not exist, is no regular file, or cannot be read.
        """

    def sizes(self) -> Callable[[str], int | None]:
        """Return a function from a key below to the bytes of its file, None if there is no file."""

    def publish(self, *pieces: Piece) -> None:
        """Write the pieces as the file: a reader sees all of it, or the file as it was before."""

    def remove(self) -> None:
        """Remove the file, if there is one, and folders that hold nothing else."""

    def each(
        self, function: Callable[[Item], Result], items: Iterable[Item], *, call_bytes: int = 0
    ) -> Iterator[Result]:
        """Yield ``function`` of each item in order; over a network several calls run at once.

        Parameters
        ----------
        call_bytes : memory that one call takes while it runs
        """

    def check_new(self) -> None:
        """Refuse a location at which no store can be made, before any work is done for it.

        Raises
        ------
        ExistsError
            If something is there.
        NotFoundError
            If its folder does not exist.
        StorageError
            If nothing can be written there.
        """

    def draft(self) -> AbstractContextManager["Draft"]:
        """Yield a new store at this location; unless it is finished, it is removed again."""

    def sweep(self) -> None:
        """Remove the scratch files that killed writers left in the store, and sync its folders."""

    def sync_folders(self) -> None:
        """Make the folders of the store at this location survive a power cut.

        Publishing a file makes its folder, and syncs that alone: not the folder's name above it.
        """

    def resolved(self) -> "Location":
        """Return the location as a process in another folder would name it."""

    def lease(self, print_fn: Callable[[str], None]) -> AbstractContextManager["LeaseHandle"]:
        """Hold the exclusive lease of a store here, which need not exist, for the block.

        Parameters
        ----------
        print_fn : prints a sentence that names the owner, if there is one to wait for
        """

    def stored_bytes(self) -> int:
        """Return the bytes of the files below."""

    def free_bytes(self) -> int | None:
        """Return the free bytes here, or None if that is not known."""

    def spill_folder(self) -> Path:
        """Return the folder of this machine for temporary files of a store that is made here."""


class Draft(Protocol):
    """A store that is being made; it does not count as a store before it is finished."""

    @property
    def location(self) -> Location:
        """The location to which its files are written."""

    def finish(self, root: bytes) -> None:
        """Publish the metadata of the root, which makes the draft a store.

        Raises
        ------
        ExistsError
            If another process has made a store there meanwhile.
        """


class LeaseHandle(ABC):
    """The exclusive lease of a location, held by this process unless it was lost."""

    @abstractmethod
    def check(self) -> None:
        """Raise ``LeaseError`` if the lease was lost: another process may be the owner now."""

    def checked(self, advance: Callable[[int], None]) -> Callable[[int], None]:
        """Wrap ``advance`` so that it first checks that the lease is still held."""

        def advance_checked(count: int) -> None:
            self.check()
            advance(count)

        return advance_checked


class PositionalFile(ABC):
    """A file read at positions, by any number of threads; ``name`` is what messages call it."""

    name: str
    size: int

    @abstractmethod
    def read_into(self, buffer: NDArray[Any], offset: int) -> None:
        """Fill ``buffer``, which is C-contiguous, with the bytes from ``offset`` on.

        Raises
        ------
        FormatError
            If the file ends too early, or was replaced after it was opened.
        StorageError
            If the operating system or the object store refuses.
        """

    def read_prefix(self, count: int) -> bytes:
        """Return the first ``count`` bytes, or all bytes of a shorter file."""
        buffer = np.empty(min(count, self.size), np.uint8)
        self.read_into(buffer, 0)
        return buffer.tobytes()

"""Where a store lies, a folder here or a prefix of an object store, and the few things that stores do there."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

ROOT = "zarr.json"

Item = TypeVar("Item")
Result = TypeVar("Result")


class Location(Protocol):
    """A file, or what has files below it; ``str`` of it is what messages show."""

    def __truediv__(self, key: str) -> "Location":
        """Return the place of a key below this one."""

    def exists(self) -> bool:
        """Return whether there is something here; what an interrupted creation left is nothing."""

    def is_folder(self) -> bool:
        """Return whether there can be files below."""

    def read(self) -> bytes:
        """Return the file's bytes, or raise ``NotFoundError``."""

    def read_into(self, buffer: NDArray[np.uint8]) -> int:
        """Fill ``buffer`` with the file's bytes and return their number; if that is not its size, it holds anything.

        Raises
        ------
        NotFoundError
            If there is no file.
        """

    def sizes(self) -> Callable[[str], int | None]:
        """Return what tells the bytes of the file of each key below, or None if there is none."""

    def publish(self, data: bytes) -> None:
        """Write the file: a reader sees all of it or what was there before."""

    def each(self, function: Callable[[Item], Result], items: Iterable[Item], *, held: int = 0) -> Iterator[Result]:
        """Yield ``function`` of each item in order; where each waits for a network, several at once.

        Parameters
        ----------
        held : bytes of memory that one takes while it runs
        """

    def check_new(self) -> None:
        """Refuse, before any work is done for it, a place at which no store can be made.

        Raises
        ------
        ExistsError
            If something is there.
        NotFoundError
            If its folder is not there.
        StorageError
            If nothing can be written there.
        """

    def draft(self) -> AbstractContextManager["Draft"]:
        """Yield a store to be made here; unless it is finished, nothing of it stays."""

    def sweep(self) -> None:
        """Remove what killed writers left in the store that is here."""

    def resolved(self) -> "Location":
        """Return the place as processes in other folders find it."""

    def lease(self, tell: Callable[[str], None]) -> AbstractContextManager["LeaseHandle"]:
        """Have what lies here, or will, to this process alone for the block; ``tell`` says what it waits for."""

    def held_bytes(self) -> int:
        """Return the bytes of the files below."""

    def free_bytes(self) -> int | None:
        """Return the bytes that are free here, None where nobody tells."""

    def spill_folder(self) -> Path:
        """Return the folder of this machine for what does not fit the memory while a store is made here."""


class Draft(Protocol):
    """A store that is being made: nobody takes it for one before it is finished."""

    @property
    def place(self) -> Location:
        """Where its files are written to."""

    def finish(self, root: bytes) -> None:
        """Publish the metadata of its root, and with it the store.

        Raises
        ------
        ExistsError
            If another process was quicker.
        """


class LeaseHandle(Protocol):
    """The lease of a place."""

    def check(self) -> None:
        """Raise ``LeaseError`` if it was lost."""

    def checked(self, advance: Callable[[int], None]) -> Callable[[int], None]:
        """Return what does as ``advance``, once the lease is known not to be lost."""

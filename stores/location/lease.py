"""Leases: one process at a time works on a store; the next waits for it, or takes over once it is dead or silent.

The lease of ``NAME`` is the file ``.NAME.lease`` beside it. Its owner holds the ``flock`` of that very file, which the
system drops with the process, and raises the number of ``beats`` in it, for where locks do not reach: file systems
without, other hosts, processes that are stopped. The file changes owner only by being replaced as a whole, and only
while its ``turn`` is held on the file that is replaced. So whoever still sees its own file there is the one owner.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mercore.stores.errors import LeaseError
from mercore.stores.location.lease_file import (
    Owner,
    computed,
    contents,
    is_dead,
    lies_at,
    opened,
    owner_at,
    parsed,
    read,
    this_process,
    turn,
)
from mercore.stores.location.publish import check_folder, storage_errors
from mercore.stores.location.scratch import scratch_file, sweep

HEARTBEAT_SECONDS, TAKEOVER_SECONDS, LOOK_SECONDS = 5.0, 30.0, 0.2

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds between beats, without a beat until a lease is taken over, and between two looks of who waits."""

    heartbeat: float = HEARTBEAT_SECONDS
    takeover: float = TAKEOVER_SECONDS
    look: float = LOOK_SECONDS


class OwnLease(ABC):
    """A lease that this process has, unless another took it over meanwhile."""

    @abstractmethod
    def check(self) -> None:
        """Raise ``LeaseError`` if the lease was lost: another process is the owner now, or may be any moment."""

    def checked(self, advance: Callable[[int], None]) -> Callable[[int], None]:
        """Return what does as ``advance``, once the lease is known not to be lost."""

        def advance_held(count: int) -> None:
            self.check()
            advance(count)

        return advance_held

    @contextmanager
    def beating(self, seconds: float) -> Iterator[None]:
        """Show every so many seconds that this process is well."""
        stop = threading.Event()
        thread = threading.Thread(target=self._beat, args=(stop, seconds), name="mercore-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    @abstractmethod
    def _beat(self, stop: threading.Event, seconds: float) -> None:
        """Raise the number that others look at until told to stop."""


def lost(what: object, found: str, owner: Owner) -> LeaseError:
    """Return the error that says who has a lease now, or that it is gone."""
    return LeaseError(
        f"{what} is no longer this process's to write: found that {found}, expected {owner}. "
        "Fix: run the same command again: it waits for its turn, and what is done stays done."
    )


class Lease(OwnLease):
    """A lease that is a file: see ``OwnLease``."""

    def __init__(self, path: Path, place: Path, descriptor: int, owner: Owner) -> None:
        self._path = path
        self._place = place
        self._descriptor = descriptor
        self._owner = owner

    def check(self) -> None:
        """Raise ``LeaseError`` if the lease was lost: another process is the owner now, or may be any moment."""
        with storage_errors("read", self._place):
            if lies_at(self._place, self._descriptor):
                return
            now = owner_at(self._place)
        found = f"{now or 'another process'} has it" if self._place.exists() else f"{self._place} is gone"
        raise lost(self._path, found, self._owner)

    def release(self) -> None:
        """Remove the file if it is still this process's, and with it the lease."""
        try:
            with suppress(OSError), turn(self._descriptor, wait=True):
                if lies_at(self._place, self._descriptor):
                    self._place.unlink()
        finally:
            os.close(self._descriptor)
        sweep(self._place.parent, self._place.name)

    def _beat(self, stop: threading.Event, seconds: float) -> None:
        """Raise the number in the file until told to stop; it is a file of our own, also if it has been replaced."""
        beats = 0
        while not stop.wait(seconds):
            beats += 1
            with suppress(OSError):  # no beat is what tells others of it
                os.pwrite(self._descriptor, contents(replace(self._owner, beats=beats)), 0)
                os.fdatasync(self._descriptor)


@contextmanager
def lease(path: Path, tell: Tell = lambda sentence: None, *, pace: Pace | None = None) -> Iterator[Lease]:
    """Have the lease of the store, folder or file at ``path``, which need not be there yet, for the block.

    While another process has it, wait. One that is dead is followed at once if it ran on this host. One that shows no
    beat, nor computes on this host, is followed after ``pace.takeover`` seconds, counted here: clocks of hosts are
    never compared.

    Parameters
    ----------
    tell : called with a sentence when it begins to wait, and with one when it takes over

    Raises
    ------
    NotFoundError
        If the folder of ``path`` is not there.
    StorageError
        If no file can be written beside ``path``.
    """
    pace = pace or Pace()
    check_folder(path)
    place = lease_path(path)
    with storage_errors("write", place):
        sweep(place.parent, place.name)
        held = _Waiting(path, place, tell, pace).take()
    try:
        with held.beating(pace.heartbeat):
            yield held
    finally:
        held.release()


def lease_path(path: Path) -> Path:
    """Return the file that is the lease of ``path``; two names of one store have one lease."""
    whole = path.resolve()
    return whole.with_name(f".{whole.name}.lease")


class _Waiting:
    """A process that waits for a lease: what it saw, and for how many looks that has not changed."""

    def __init__(self, path: Path, place: Path, tell: Tell, pace: Pace) -> None:
        self._path = path
        self._place = place
        self._tell = tell
        self._pace = pace
        self._seen: tuple[object, ...] = ()
        self._looks = 0
        self._told = False

    def take(self) -> Lease:
        """Return the lease as soon as it is free, or its owner dead or silent."""
        while True:
            with opened(self._place) as (descriptor, created):
                held = self._try(descriptor, created=created)
            if held is not None:
                return held
            time.sleep(self._pace.look)

    def _try(self, descriptor: int, *, created: bool) -> Lease | None:
        """Replace the file that lies there, if its owner is no more; None if that is not so, or another was quicker."""
        seen = read(descriptor)
        if created:
            return self._replace(descriptor, seen)
        owner = parsed(seen)
        if owner is not None and is_dead(owner, descriptor):
            how = "which ended without giving it back"
            return self._replace(descriptor, seen, f"taking {self._path} over from {owner}, {how}")
        if self._is_silent(os.fstat(descriptor).st_ino, seen, computed(owner)):
            how = f"which showed no sign of life for {self._pace.takeover:g} s"
            told = f"taking {self._path} over from {owner or 'another process'}, {how}"
            return self._settled(self._replace(descriptor, seen, told))
        if not self._told and seen:  # empty: its owner is about to write to it
            self._tell(f"waiting for {self._path}: {owner or 'another process'} is at work on it")
            self._told = True
        return None

    def _is_silent(self, *now: object) -> bool:
        """Return whether nothing changed for long. Looks are counted, so that while this process is stopped none is."""
        self._looks = self._looks + 1 if now == self._seen else 0
        self._seen = now
        return self._looks * self._pace.look >= self._pace.takeover

    def _replace(self, old: int, seen: bytes, told: str | None = None) -> Lease | None:
        """Put a file of ours in the old one's place; None if the old one has changed or lies there no more."""
        owner = this_process()
        with scratch_file(self._place) as (scratch, file):  # locked since it was created
            with suppress(OSError):  # a file system without modes
                os.fchmod(file.fileno(), 0o600)
            os.pwrite(file.fileno(), contents(owner), 0)
            with turn(old) as ours:
                if not (ours and lies_at(self._place, old) and read(old) == seen):
                    return None
                scratch.rename(self._place)
            descriptor = os.dup(file.fileno())  # the lock lasts until this one is closed too
        if told:
            self._tell(told)
        return Lease(self._path, self._place, descriptor, owner)

    def _settled(self, held: Lease | None) -> Lease | None:
        """Return a lease taken from a silent owner once it is sure; None if another host's process took it as well.

        Where locks do not reach all who wait, the last to replace the file has it: after a while all see which.
        """
        if held is None:
            return None
        try:
            time.sleep(self._pace.heartbeat)
            held.check()
        except BaseException as error:
            held.release()
            if isinstance(error, LeaseError):
                return None
            raise
        return held

"""Leases of stores on object stores: an object beside the store, created, changed and taken over on condition.

The server changes the object only for whoever names the version that it has seen last, so of two that try one wins.
Its owner raises the number of ``beats`` in it; who sees the same version for long follows. On the owner's own host a
lock tells sooner that it was killed: one on a file of this machine whose name only the object says.
"""

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from mercore.stores.errors import MercoreError, NotFoundError
from mercore.stores.location.lease import OwnLease, Pace, Tell, lost
from mercore.stores.location.lease_file import Owner, contents, parsed, this_process
from mercore.stores.location.s3 import S3Location
from mercore.stores.location.s3_errors import object_errors


@dataclass(frozen=True)
class Seen:
    """A version of the object: its tag, and whom it names."""

    tag: str | None
    owner: Owner | None


class S3Lease(OwnLease):
    """A lease that is an object: see ``OwnLease``."""

    def __init__(self, at: S3Location, seen: Seen) -> None:
        assert seen.owner is not None
        self._at = at
        self._owner = seen.owner
        self._tag = seen.tag
        self._changing = threading.Lock()

    def check(self) -> None:
        """Raise ``LeaseError`` if the lease was lost: another process is the owner now."""
        found = look(self._at)
        if found is not None and self._is_ours(found):
            return
        told = f"{found.owner or 'another process'} has it" if found else f"{lease_at(self._at)} is gone"
        raise lost(self._at, told, self._owner)

    def release(self) -> None:
        """Delete the object if it is still this process's, and with it the lease."""
        with suppress(MercoreError):
            if self._raise_beats():  # from now on nobody takes it over for a while, and so deleting it deletes ours
                lease = lease_at(self._at)
                with object_errors("delete", str(self._at)):
                    obstore.delete(lease.store, lease.key)
            # If that could not be done the file stays, its lock free: the next process here need not wait.
            _lock_path(self._owner).unlink(missing_ok=True)

    def _beat(self, stop: threading.Event, seconds: float) -> None:
        """Raise the number in the object until told to stop, or it is another's."""
        while not stop.wait(seconds):
            with suppress(MercoreError):  # no beat is what tells others of it
                if not self._raise_beats():
                    return

    def _raise_beats(self) -> bool:
        """Write the next beat; False if the object is no longer ours."""
        with self._changing:
            owner = replace(self._owner, beats=self._owner.beats + 1)
            tag = write(self._at, owner, self._tag)
            if tag is None:  # lost, or the answer was, and obstore tried again what had been done
                found = look(self._at)
                if found is None or not self._is_ours(found):
                    return False
                tag = found.tag
            self._owner, self._tag = owner, tag
            return True

    def _is_ours(self, found: Seen) -> bool:
        return found.owner is not None and found.owner.token == self._owner.token


@contextmanager
def s3_lease(at: S3Location, tell: Tell = lambda sentence: None, *, pace: Pace | None = None) -> Iterator[S3Lease]:
    """Have the lease of the store at a place, which need not be there yet, for the block.

    While another process has it, wait. One that was killed on this host is followed at once, one that shows no beat
    after ``pace.takeover`` seconds, counted here.

    Parameters
    ----------
    tell : called with a sentence when it begins to wait, and with one when it takes over

    Raises
    ------
    StorageError, NotFoundError
        If nothing can be written beside the store.
    """
    pace = pace or Pace()
    owner = this_process()
    with ExitStack() as stack:
        stack.enter_context(_alive(owner))
        held = S3Lease(at, _take(at, owner, tell, pace))
        stack.callback(held.release)
        stack.enter_context(held.beating(pace.heartbeat))
        yield held


def lease_at(at: S3Location) -> S3Location:
    """Return the object that is the lease of a place: beside it, for what is inside is the store's."""
    return S3Location(at.store, f"{at.url}.lease", f"{at.key}.lease")


def look(at: S3Location) -> Seen | None:
    """Return the version of a place's lease that is there, or None if there is none."""
    lease = lease_at(at)
    try:
        with object_errors("read", lease.url):
            found = obstore.get(lease.store, lease.key)
            return Seen(found.meta["e_tag"], parsed(bytes(found.bytes())))
    except NotFoundError:
        return None


def write(at: S3Location, owner: Owner, tag: str | None) -> str | None:
    """Write a lease over the version ``tag``, or where there is none; return its tag, or None if another is there."""
    lease = lease_at(at)
    with object_errors("write", lease.url):
        try:
            mode = "create" if tag is None else {"e_tag": tag}
            done = obstore.put(lease.store, lease.key, contents(owner), mode=mode, use_multipart=False)  # type: ignore[arg-type]
        except (AlreadyExistsError, PreconditionError):
            return None
    return done["e_tag"]


def _take(at: S3Location, owner: Owner, tell: Tell, pace: Pace) -> Seen:
    """Return the lease as soon as it is free, or its owner dead or silent."""
    since, told = time.monotonic(), False
    last: Seen | None = None
    while True:
        seen = look(at)
        if seen is None or seen.owner == owner:  # written, though the answer was lost
            tag = seen.tag if seen else write(at, owner, None)
            if tag is not None:
                return Seen(tag, owner)
            continue
        if seen != last:
            since, last = time.monotonic(), seen
        if how := _ended(seen, time.monotonic() - since, pace):
            tag = write(at, owner, seen.tag)
            if tag is not None:
                tell(f"taking {at} over from {seen.owner or 'another process'}, {how}")
                return Seen(tag, owner)
            continue
        if not told:
            tell(f"waiting for {at}: {seen.owner or 'another process'} is at work on it")
            told = True
        time.sleep(pace.look)


def _ended(seen: Seen, silence: float, pace: Pace) -> str | None:
    """Return how the owner is known to be no more, or None if it may be at work."""
    if seen.owner is not None and _is_dead(seen.owner):
        return "which ended without giving it back"
    return f"which showed no sign of life for {pace.takeover:g} s" if silence >= pace.takeover else None


@contextmanager
def _alive(owner: Owner) -> Iterator[None]:
    """Hold a lock that the system drops with this process, where processes of this host can look for it."""
    path = _lock_path(owner)
    with ExitStack() as stack:
        with suppress(OSError):  # without a lock it is the beats that tell
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _is_dead(owner: Owner) -> bool:
    """Return whether the owner's lock is there and free: then it was killed; of one without a lock nothing is known."""
    path = _lock_path(owner)
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(descriptor)
        return True
    return False


def _lock_path(owner: Owner) -> Path:
    """Return the file of an owner's lock, which only who can read the lease can name."""
    token = "".join(filter(str.isalnum, owner.token))
    return Path(tempfile.gettempdir()) / f"mercore-{token}.lock"

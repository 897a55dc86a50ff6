"""The file of a lease: who it names, whether that process is dead, and whose turn it is to replace it."""

import fcntl
import json
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mercore.stores.errors import FormatError
from mercore.stores.spec import canonical_json, from_json, to_json

LEASE_BYTES = 1024
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who has a lease, as its file says."""

    name: str = "mercore-lease"
    version: int = 1
    host: str
    pid: int
    boot: str
    since: str
    token: str
    beats: int = 0

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f"process {self.pid} on {self.host} since {self.since}"


@contextmanager
def opened(place: Path) -> Iterator[tuple[int, bool]]:
    """Yield the descriptor of the file at ``place``, and whether it is new.

    A new one is empty, this process's to replace, and removed at the end unless that was done.
    """
    how = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK  # what somebody else put there is not followed, nor waited for
    while True:
        try:
            descriptor, created = os.open(place, how | os.O_CREAT | os.O_EXCL, 0o600), True
        except FileExistsError:
            try:
                descriptor, created = os.open(place, how), False
            except FileNotFoundError:
                continue  # given back between the two
        break
    try:
        yield descriptor, created
    finally:
        with suppress(OSError):
            if created and lies_at(place, descriptor):
                place.unlink()
        os.close(descriptor)


@contextmanager
def turn(descriptor: int, *, wait: bool = False) -> Iterator[bool]:
    """Hold what only one process at a time can, and has to in order to replace or remove an open lease file.

    It is a lock on a byte, and so another than the ``flock``, which a stopped owner keeps.
    """
    lock, unlock = (struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 1, 0) for kind in (fcntl.F_WRLCK, fcntl.F_UNLCK))
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError):
        yield False
        return
    except OSError:  # a file system without locks: there nothing but time keeps two apart
        yield True
        return
    try:
        yield True
    finally:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, unlock)


def is_dead(owner: Owner, descriptor: int) -> bool:
    """Return whether the owner is known to have ended: its lock is free, and locks reach it.

    They do within a boot of a host; another host's process may be at work behind a lock that is free here.
    """
    here = this_process()
    if not here.boot or (owner.boot != here.boot and owner.host != here.host):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def computed(owner: Owner | None) -> list[str]:
    """Return the processor time of an owner on this machine, in ticks of user and system: it grows while it computes.

    One long call of a library may let no other thread run, and so no beat; a process that is stopped computes nothing.
    """
    here = this_process()
    if owner is None or not here.boot or (owner.boot, owner.host) != (here.boot, here.host):
        return []
    try:
        fields = Path(f"/proc/{owner.pid}/stat").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return fields.rpartition(")")[2].split()[11:13]


def lies_at(place: Path, descriptor: int) -> bool:
    """Return whether an open file is the one at ``place``; it is opened, for network file systems are then asked."""
    try:
        found = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return os.path.samestat(os.fstat(found), os.fstat(descriptor))
    finally:
        os.close(found)


def owner_at(place: Path) -> Owner | None:
    """Return whom the file at ``place`` names."""
    try:
        return parsed(place.read_bytes())
    except FileNotFoundError:
        return None


def this_process() -> Owner:
    """Return this process as an owner of something from now on."""
    try:
        boot = BOOT_ID.read_text().strip()
    except OSError:
        boot = ""
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Owner(host=socket.gethostname(), pid=os.getpid(), boot=boot, since=since, token=secrets.token_hex(16))


def read(descriptor: int) -> bytes:
    """Return the bytes of an open lease file."""
    return os.pread(descriptor, LEASE_BYTES, 0)


def contents(owner: Owner) -> bytes:
    """Return the bytes of a lease's file: always as many, so that a beat never changes its size."""
    return canonical_json(to_json(owner)).encode().ljust(LEASE_BYTES)


def parsed(data: bytes) -> Owner | None:
    """Return the owner that a file's bytes name; None if they are empty, damaged, or another version's."""
    try:
        return from_json(Owner, json.loads(data), "a lease")
    except (ValueError, FormatError):
        return None

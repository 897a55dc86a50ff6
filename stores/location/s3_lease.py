"""The lease of a store on an object store: an object beside it, changed on condition.

The server writes the object only for a process that names the version it saw last, so only one of
two that try succeeds. The owner writes a new version every few seconds. If an owner has not done so
for ``SILENT_SECONDS``, another process may take the lease.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeGuard

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from mercore.stores.errors import MercoreError, NotFoundError
from mercore.stores.location.lease import lost, owner_in, this_process
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.s3_errors import object_errors

RENEW_SECONDS, SILENT_SECONDS, POLL_SECONDS = 5.0, 30.0, 0.5


class Version(NamedTuple):
    """A version of the object: its tag, and its text, whose first line names the owner."""

    tag: str | None
    text: str


class S3Lease(LeaseHandle):
    """A lease that is an object: see ``LeaseHandle``."""

    def __init__(self, client: S3Store, key: str, url: str) -> None:
        self._client = client
        self._key = f"{key}.lease"
        self._url = url
        self._owner = this_process()
        self._token = secrets.token_hex(16)
        self._tag: str | None = None
        self._renewals = 0

    def take(self, print_fn: Callable[[str], None]) -> None:
        """Become the owner, once there is none or the owner is silent for too long."""
        seen, since, waiting = None, time.monotonic(), False
        while True:
            version = self._read()
            if version != seen:
                seen, since = version, time.monotonic()
            if version is None or time.monotonic() - since >= SILENT_SECONDS:
                if self._write(version and version.tag):
                    return
                continue
            if not waiting:
                waiting = True
                print_fn(
                    f"waiting for {self._url}: {owner_in(version.text)} is at work on it; "
                    f"if it was killed, this command goes on after {SILENT_SECONDS:g} s"
                )
            time.sleep(POLL_SECONDS)

    def check(self) -> None:
        """Raise ``LeaseError`` if another process is the owner now, or the object is gone."""
        version = self._read()
        if not self._is_ours(version):
            found = f"{owner_in(version.text)} has it" if version else f"{self._url}.lease is gone"
            raise lost(self._url, found, self._owner)

    def renew(self, stop: threading.Event) -> None:
        """Write a new version every few seconds, until ``stop`` is set or the lease is lost."""
        while not stop.wait(RENEW_SECONDS):
            with suppress(MercoreError):  # tried again at the next renewal
                if not self._write(self._tag):
                    return

    def release(self) -> None:
        """Delete the object, unless it is another process's by now."""
        with suppress(MercoreError):
            if self._write(self._tag):  # so that nobody takes it before it is deleted
                with object_errors("delete", self._url):
                    obstore.delete(self._client, self._key)

    def _read(self) -> Version | None:
        """Return the object's version, or None if there is no object."""
        try:
            with object_errors("read", f"{self._url}.lease"):
                answer = obstore.get(self._client, self._key)
                return Version(answer.meta["e_tag"], bytes(answer.bytes()).decode(errors="replace"))
        except NotFoundError:
            return None

    def _write(self, tag: str | None) -> bool:
        """Write a version over that of ``tag``, or the first; return whether it is ours."""
        with object_errors("write", f"{self._url}.lease"):
            self._renewals += 1  # another text, so another tag
            text = f"{self._owner}\n{self._token} {self._renewals}\n"
            mode = "create" if tag is None else {"e_tag": tag}
            try:
                content = text.encode()
                put: Any = obstore.put  # its own types name no mapping as a mode
                answer = put(self._client, self._key, content, mode=mode, use_multipart=False)
                self._tag = answer["e_tag"]
            except (AlreadyExistsError, PreconditionError):
                version = self._read()
                if not self._is_ours(version):
                    return False
                self._tag = version.tag  # written before, but the answer was lost on the way
        return True

    def _is_ours(self, version: Version | None) -> TypeGuard[Version]:
        return version is not None and self._token in version.text


@contextmanager
def s3_lease(
    client: S3Store, key: str, url: str, print_fn: Callable[[str], None] = lambda sentence: None
) -> Iterator[S3Lease]:
    """Hold the exclusive lease of the store at ``key``, which need not exist, for the block.

    Parameters
    ----------
    url : what messages call the store
    print_fn : prints a sentence that names the owner, if there is one to wait for

    Raises
    ------
    StorageError, NotFoundError
        If nothing can be written beside the store.
    """
    handle, stop = S3Lease(client, key, url), threading.Event()
    handle.take(print_fn)
    renewing = threading.Thread(
        target=handle.renew, args=(stop,), name="mercore-lease", daemon=True
    )
    try:
        renewing.start()
        yield handle
    finally:
        stop.set()
        renewing.join()
        handle.release()

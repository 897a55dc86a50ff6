"""Places on S3-compatible object stores: a store is one by its root's metadata, which is written last.

There a file appears whole or not at all, but nothing is renamed: what a store is made of lies under its own keys from
the start. A marker, written first and deleted last, says that it is being made, or was when its writer was killed;
only what lies beside a marker, under keys of a store's own layout, is ever deleted.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import obstore
from numpy.typing import NDArray
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from mercore.stores.errors import ExistsError, InputError, MercoreError, NotFoundError, StorageError
from mercore.stores.location.protocol import ROOT, Draft, Item, LeaseHandle, Result
from mercore.stores.location.s3_errors import check_endpoint, object_errors

MARKER = ".mercore-draft"
LAYOUT = re.compile(r"(model/)?(\w+/)?zarr\.json|(model/)?\w+/c/\d+(/0)?")
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
CONNECTIONS = 16
HELD_BYTES = 128 << 20
RETRY_SECONDS = 60
# A chunk may be hundreds of megabytes, and the line slow: obstore's own 30 s would be too little.
REQUEST_TIMEOUT = "300 seconds"


@dataclass(frozen=True)
class S3Location:
    """A key of a bucket, or all keys below it: see ``Location``."""

    store: S3Store
    url: str
    key: str

    def __str__(self) -> str:
        """Return the URL."""
        return self.url

    def __truediv__(self, key: str) -> "S3Location":
        """Return the place of a key below this one."""
        return S3Location(self.store, f"{self.url}/{key}", f"{self.key}/{key}")

    def exists(self) -> bool:
        """Return whether there is something here; what an interrupted creation left is nothing."""
        if self._is_object():
            return True
        if not any(self._below()):
            return False
        return (self / ROOT)._is_object() or not (self / MARKER)._is_object()

    def is_folder(self) -> bool:
        """Return whether something is below."""
        return any(self._below())

    def read(self) -> bytes:
        """Return the object's bytes, or raise ``NotFoundError``."""
        with object_errors("read", self.url):
            return bytes(obstore.get(self.store, self.key).bytes())

    def read_into(self, buffer: NDArray[np.uint8]) -> int:
        """Fill ``buffer`` with the object's bytes if it has as many, and return how many it has."""
        with object_errors("read", self.url):
            found = obstore.get(self.store, self.key)
            size = found.meta["size"]
            if size != len(buffer):
                return size
            done = 0
            for piece in found.stream():
                buffer[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
        return done

    def sizes(self) -> Callable[[str], int | None]:
        """Return what tells the bytes of the object of each key below, all listed now, a thousand a request."""
        return dict(self._below()).get

    def publish(self, data: bytes) -> None:
        """Write the object: in one request, for one of several may leave parts that nobody sees and somebody pays."""
        with object_errors("write", self.url):
            obstore.put(self.store, self.key, data, use_multipart=False)

    def each(self, function: Callable[[Item], Result], items: Iterable[Item], *, held: int = 0) -> Iterator[Result]:
        """Yield ``function`` of each item in order, as many at once as connections and memory allow."""
        with ThreadPoolExecutor(max(1, min(CONNECTIONS, HELD_BYTES // max(1, held)))) as pool:
            yield from pool.map(function, items)

    def check_new(self) -> None:
        """Refuse a prefix that holds anything but what an interrupted creation left: see ``Location``."""
        if self.exists():
            raise ExistsError(f"{self} exists: expected a new path. Fix: name another, or remove it.")
        self._left_over()

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """Yield a store that is written where it will lie, after what an interrupted creation left there is deleted."""
        self.check_new()
        (self / MARKER).publish(b"")
        self._delete(self._left_over())
        answers = True
        try:
            yield S3Draft(self)
        except StorageError:
            answers = False  # nothing can be deleted now: whoever makes a store here next does it
            raise
        finally:
            if answers:
                self._abandon()

    def sweep(self) -> None:
        """Delete the marker, if whoever made the store was killed right after."""
        self._delete([MARKER])

    def resolved(self) -> "S3Location":
        """Return this place: a URL is the same everywhere."""
        return self

    def lease(self, tell: Callable[[str], None]) -> AbstractContextManager[LeaseHandle]:
        """Have the lease, an object beside the prefix, for the block."""
        from mercore.stores.location.s3_lease import s3_lease

        return s3_lease(self, tell)

    def held_bytes(self) -> int:
        """Return the bytes of the objects below."""
        return sum(size for _, size in self._below())

    def free_bytes(self) -> None:
        """Return None: an object store does not say what it has room for."""

    def spill_folder(self) -> Path:
        """Return this machine's folder for temporary files."""
        return Path(tempfile.gettempdir())

    def _is_object(self) -> bool:
        """Return whether there is an object of this very key."""
        try:
            with object_errors("read", self.url):
                obstore.head(self.store, self.key)
        except NotFoundError:
            return False
        return True

    def _below(self) -> Iterator[tuple[str, int]]:
        """Yield the key below this place and the bytes of every object there."""
        with object_errors("list", self.url):
            for some in obstore.list(self.store, prefix=self.key):
                for found in some:
                    yield found["path"].removeprefix(f"{self.key}/"), found["size"]

    def _left_over(self) -> list[str]:
        """Return the keys that an interrupted creation left; a foreign one is refused."""
        keys = [key for key, _ in self._below() if key != MARKER]
        foreign = [key for key in keys if not LAYOUT.fullmatch(key)]
        if foreign:
            raise ExistsError(
                f"{self} holds {foreign[0]}, which is no part of a store: expected a new path. Fix: name another."
            )
        return keys

    def _abandon(self) -> None:
        """Delete what a draft wrote, unless it was finished, or somebody else's was."""
        with suppress(MercoreError):
            if not (self / ROOT)._is_object():
                self._delete(self._left_over())
                self._delete([MARKER])

    def _delete(self, keys: list[str]) -> None:
        """Delete objects below; one that is not there is no error."""
        if keys:
            with object_errors("delete", self.url), suppress(FileNotFoundError):
                obstore.delete(self.store, [f"{self.key}/{key}" for key in keys])


@dataclass(frozen=True)
class S3Draft:
    """A prefix that becomes a store: see ``Draft``."""

    place: S3Location

    def finish(self, root: bytes) -> None:
        """Create the metadata of the root, which makes it a store, unless somebody else has; then drop the marker."""
        at = self.place / ROOT
        with object_errors("write", at.url):
            try:
                obstore.put(at.store, at.key, root, mode="create", use_multipart=False)
            except AlreadyExistsError:
                # Our own, if the answer to the first try was lost and obstore tried again.
                if at.read() != root:
                    raise ExistsError(
                        f"{self.place} appeared a moment ago: expected a new path. Fix: name another."
                    ) from None
        self.place.sweep()


def s3_location(url: str) -> S3Location:
    """Return the place that ``s3://BUCKET/PREFIX`` names; who may go there is for the environment to say.

    Raises
    ------
    InputError
        If it is none, or the environment's endpoint is not to be used.
    """
    scheme, rest = url.split("://", 1)
    if "@" in rest.partition("/")[0]:
        raise InputError(
            "a URL with a name or a password in it would show in lists of processes and in stores: found one, expected "
            "s3://BUCKET/PREFIX. Fix: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and leave them out of the URL."
        )
    bucket, _, key = rest.partition("/")
    key = key.rstrip("/")
    segments = key.split("/")
    if not BUCKET.fullmatch(bucket) or not key.isprintable() or any(part in ("", ".", "..") for part in segments):
        raise InputError(f"{url} names no prefix of a bucket: expected s3://BUCKET/PREFIX. Fix: correct it.")
    check_endpoint()
    return S3Location(_open_bucket(bucket), f"{scheme.lower()}://{bucket}/{key}", key)


def _open_bucket(bucket: str) -> S3Store:
    """Return a client of a bucket, configured by the environment."""
    try:
        return S3Store(
            bucket,
            # Not as client options, for those would put aside what the environment says of the client.
            config={"timeout": os.environ.get("AWS_TIMEOUT", REQUEST_TIMEOUT)},  # type: ignore[arg-type]
            retry_config={"retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        )
    except (BaseError, ValueError) as error:
        raise InputError(
            f"the environment's AWS_ variables are not usable for s3://{bucket}: {type(error).__name__}. "
            "Fix: correct AWS_REGION, AWS_ENDPOINT_URL and the credentials."
        ) from None

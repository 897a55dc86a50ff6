"""Locations on S3-compatible object stores.

An object appears whole or not at all, but cannot be renamed: a draft is written under the keys of
the finished store. The metadata of its root, written last, makes it a store. A marker, written
first and deleted last, shows that a draft is unfinished. Only objects beside a marker, under keys
that a store uses, are ever deleted.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import numpy as np
import obstore
from numpy.typing import NDArray
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from mercore.stores.errors import ExistsError, InputError, MercoreError, NotFoundError, StorageError
from mercore.stores.location.protocol import ROOT, Draft, Item, LeaseHandle, Piece, Result
from mercore.stores.location.s3_errors import check_endpoint, object_errors
from mercore.stores.location.s3_file import S3File
from mercore.stores.location.s3_lease import s3_lease

MARKER = ".mercore-draft"
LAYOUT = re.compile(r"(model/)?(\w+/)?zarr\.json|(model/)?\w+/c/\d+(/0)?")
BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
CONNECTIONS = 16
BUFFER_BYTES = 128 << 20  # of all requests at once
RETRY_SECONDS = 60
# Enough for a chunk of hundreds of megabytes over a slow line; obstore's default is 30 s.
REQUEST_TIMEOUT = "300 seconds"


@dataclass(frozen=True)
class S3Location:
    """A key of a bucket, or all keys below it: see ``Location``."""

    store: S3Store
    url: str
    key: str
    request_bytes: ClassVar[int] = 1 << 18  # a few ms, 16 at a time, on a line of 1 Gbit/s
    requests: ClassVar[int] = CONNECTIONS

    def __str__(self) -> str:
        """Return the URL."""
        return self.url

    def __truediv__(self, key: str) -> "S3Location":
        """Return the location of a key below this one."""
        return S3Location(self.store, f"{self.url}/{key}", f"{self.key}/{key}")

    def exists(self) -> bool:
        """Return whether something is here; remains of an interrupted creation do not count."""
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
        """Fill ``buffer`` with the object's bytes if the sizes agree; return the object's size."""
        with object_errors("read", self.url):
            answer = obstore.get(self.store, self.key)
            size = answer.meta["size"]
            if size != len(buffer):
                return size
            done = 0
            for piece in answer.stream():
                buffer[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
        return done

    def read_ranges(
        self, ranges: Sequence[tuple[int, int]], buffer: NDArray[np.uint8], *, wait: bool = True
    ) -> int:
        """Fill ``buffer`` with ranges of the object's bytes, read side by side."""
        if not wait:  # this machine holds none of them
            return 0
        starts, ends = zip(*ranges, strict=True)
        with object_errors("read", self.url):
            pieces = obstore.get_ranges(self.store, self.key, starts=starts, ends=ends, coalesce=0)
        done = 0
        for piece in pieces:
            buffer[done : done + len(piece)] = np.frombuffer(memoryview(piece), np.uint8)
            done += len(piece)
        return done

    def open_file(self) -> S3File:
        """Open the object for reads at positions."""
        return S3File(self.store, self.key, self.url)

    def sizes(self) -> Callable[[str], int | None]:
        """List all objects below; return a function from a key to the object's size, or None."""
        return dict(self._below()).get

    def publish(self, *pieces: Piece) -> None:
        """Write the object in one request: parts of a broken upload are invisible and billed."""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        with object_errors("write", self.url):
            obstore.put(self.store, self.key, data, use_multipart=False)

    def remove(self) -> None:
        """Delete the object, if there is one."""
        with object_errors("delete", self.url), suppress(FileNotFoundError):
            obstore.delete(self.store, self.key)

    def each(
        self, function: Callable[[Item], Result], items: Iterable[Item], *, call_bytes: int = 0
    ) -> Iterator[Result]:
        """Yield ``function`` of each item in order, with as many calls at once as memory allows."""
        calls = max(1, min(CONNECTIONS, BUFFER_BYTES // max(1, call_bytes)))
        with ThreadPoolExecutor(calls) as pool:
            yield from pool.map(function, items)

    def check_new(self) -> None:
        """Refuse a prefix with more than remains of an interrupted creation: see ``Location``."""
        if self.exists():
            raise ExistsError(
                f"{self} exists: expected a new path. Fix: name another, or remove it."
            )
        self._left_over()

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """Delete remains of an interrupted creation; yield a store written under its final keys."""
        self.check_new()
        (self / MARKER).publish(b"")
        self._delete(self._left_over())
        reachable = True
        try:
            yield S3Draft(self)
        except StorageError:
            reachable = False  # nothing can be deleted now: the next creation here does it
            raise
        finally:
            if reachable:
                self._abandon()

    def sweep(self) -> None:
        """Delete the marker, if the process that made the store was killed right after."""
        self._delete([MARKER])

    def sync_folders(self) -> None:
        """Do nothing: an object has no folder."""

    def resolved(self) -> "S3Location":
        """Return this location: a URL is the same everywhere."""
        return self

    def lease(self, print_fn: Callable[[str], None]) -> AbstractContextManager[LeaseHandle]:
        """Hold the lease, an object beside the prefix, for the block."""
        return s3_lease(self.store, self.key, self.url, print_fn)

    def stored_bytes(self) -> int:
        """Return the bytes of the objects below."""
        return sum(size for _, size in self._below())

    def free_bytes(self) -> None:
        """Return None: an object store does not report its free space."""

    def spill_folder(self) -> Path:
        """Return this machine's folder for temporary files."""
        return Path(tempfile.gettempdir())

    def _is_object(self) -> bool:
        """Return whether there is an object of this key."""
        try:
            with object_errors("read", self.url):
                obstore.head(self.store, self.key)
        except NotFoundError:
            return False
        return True

    def _below(self) -> Iterator[tuple[str, int]]:
        """Yield the key below this location and the size of every object there."""
        with object_errors("list", self.url):
            for page in obstore.list(self.store, prefix=self.key):
                for meta in page:
                    yield meta["path"].removeprefix(f"{self.key}/"), meta["size"]

    def _left_over(self) -> list[str]:
        """Return the keys that an interrupted creation left; refuse a key that no store uses."""
        keys = [key for key, _ in self._below() if key != MARKER]
        foreign = [key for key in keys if not LAYOUT.fullmatch(key)]
        if foreign:
            raise ExistsError(
                f"{self} holds {foreign[0]}, which is no part of a store: expected a new path. "
                "Fix: name another."
            )
        return keys

    def _abandon(self) -> None:
        """Delete what a draft wrote, unless some process has finished a store here."""
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

    location: S3Location

    def finish(self, root: bytes) -> None:
        """Create the metadata of the root, unless another process has; delete the marker."""
        file = self.location / ROOT
        with object_errors("write", file.url):
            try:
                obstore.put(file.store, file.key, root, mode="create", use_multipart=False)
            except AlreadyExistsError:
                # It is ours if the answer to the first request was lost and obstore tried again.
                if file.read() != root:
                    raise ExistsError(
                        f"{self.location} appeared a moment ago: expected a new path. Fix: name "
                        "another."
                    ) from None
        self.location.sweep()


def s3_location(url: str) -> S3Location:
    """Return the location that ``s3://BUCKET/PREFIX`` names; credentials come from the environment.

    Raises
    ------
    InputError
        If the URL names no prefix, or the endpoint in the environment is refused.
    """
    scheme, rest = url.split("://", 1)
    if "@" in rest.partition("/")[0]:
        raise InputError(
            "a URL with a name or a password in it would show in lists of processes and in "
            "stores: found one, expected "
            "s3://BUCKET/PREFIX. Fix: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and "
            "leave them out of the URL."
        )
    bucket, _, key = rest.partition("/")
    key = key.rstrip("/")
    segments = key.split("/")
    if (
        not BUCKET.fullmatch(bucket)
        or not key.isprintable()
        or any(part in ("", ".", "..") for part in segments)
    ):
        raise InputError(
            f"{url} names no prefix of a bucket: expected s3://BUCKET/PREFIX. Fix: correct it."
        )
    check_endpoint()
    return S3Location(_open_bucket(bucket), f"{scheme.lower()}://{bucket}/{key}", key)


def _open_bucket(bucket: str) -> S3Store:
    """Return the client of a bucket, configured by the environment."""
    try:
        return S3Store(
            bucket,
            # Not as client options: those would override the environment.
            config={"timeout": os.environ.get("AWS_TIMEOUT", REQUEST_TIMEOUT)},  # type: ignore[arg-type]
            retry_config={"retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        )
    except (BaseError, ValueError) as error:
        raise InputError(
            f"the environment's AWS_ variables are not usable for s3://{bucket}: "
            f"{type(error).__name__}. "
            "Fix: correct AWS_REGION, AWS_ENDPOINT_URL and the credentials."
        ) from None

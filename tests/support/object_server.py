"""An S3 server of its own process, moto's, and what is in its buckets."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO
from urllib.request import Request, urlopen

import obstore
import pytest
from obstore.store import S3Store

from tests.support.running import without_relative_path

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATEST",
    "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
    "AWS_REGION": "us-east-1",
}
BUCKET = "bucket"


@dataclass(frozen=True)
class ObjectServer:
    """A running server, and the environment by which commands find it."""

    process: subprocess.Popen[bytes]
    endpoint: str
    said: IO[bytes]

    @property
    def environment(self) -> dict[str, str]:
        """What a command that uses the server needs."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true"}

    @property
    def bucket(self) -> S3Store:
        """A client that knows nothing of mercore's."""
        return S3Store(
            BUCKET,
            endpoint=self.endpoint,
            access_key_id="AKIATEST",
            secret_access_key="other",  # noqa: S106 - the server takes any
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def keys(self, prefix: str) -> list[str]:
        """Return the keys below a prefix, sorted."""
        pages = obstore.list(self.bucket, prefix=prefix)
        return sorted(found["path"].removeprefix(f"{prefix}/") for page in pages for found in page)

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Return every object below a prefix by its key there, as ``files_of`` returns files."""
        return {
            key: without_relative_path(self.get(f"{prefix}/{key}")) for key in self.keys(prefix)
        }

    def reads(self, key: str) -> int:
        """Return how often an object was asked for."""
        lines = os.pread(self.said.fileno(), 1 << 24, 0).decode(errors="replace").splitlines()
        return sum(f'"GET /{BUCKET}/{key} ' in line for line in lines)

    def get(self, key: str) -> bytes:
        """Return an object's bytes."""
        return bytes(obstore.get(self.bucket, key).bytes())

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        obstore.put(self.bucket, key, data)

    def delete(self, key: str) -> None:
        """Delete an object."""
        obstore.delete(self.bucket, key)

    def copy_to(self, prefix: str, folder: Path) -> Path:
        """Copy every object below a prefix to a folder."""
        for key in self.keys(prefix):
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            (folder / key).write_bytes(self.get(f"{prefix}/{key}"))
        return folder

    def copy_from(self, folder: Path, prefix: str) -> None:
        """Copy every file of a folder to objects below a prefix."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())


# Its command, but one request after another: else it may look at a condition while another request
# writes.
SERVE = """
import moto.server
serve = moto.server.run_simple
moto.server.run_simple = lambda *words, **options: serve(*words, **options | {"threaded": False})
moto.server.main()
"""


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Run a server on a free port of loopback, with one empty bucket; this process finds it by its
    environment."""
    words = [sys.executable, "-c", SERVE, "--host", "127.0.0.1", "--port", "0"]
    # Not a pipe: nobody would read what the server says of every request.
    with TemporaryFile() as said, subprocess.Popen(words, stdout=said, stderr=said) as process:
        try:
            server = ObjectServer(process, _endpoint(process, said), said)
            with urlopen(Request(f"{server.endpoint}/{BUCKET}", method="PUT")) as made:  # noqa: S310 - on loopback
                assert made.status == 200
            with pytest.MonkeyPatch.context() as patch:
                for name, value in server.environment.items():
                    patch.setenv(name, value)
                yield server
        finally:
            process.kill()


def _endpoint(process: subprocess.Popen[bytes], said: IO[bytes]) -> str:
    """Return the URL that a server says it listens at, once it does."""
    give_up = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < give_up:
        if found := re.search(
            rb"Running on (http://127\.0\.0\.1:\d+)", os.pread(said.fileno(), 1 << 16, 0)
        ):
            return found[1].decode()
        time.sleep(0.01)
    raise AssertionError(f"the server did not start: {os.pread(said.fileno(), 1 << 16, 0)!r}")

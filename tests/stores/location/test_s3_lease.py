"""One process at a time has the lease of a store on an object store: real processes, a real
server."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import obstore
import pytest

from mercore.stores.errors import LeaseError
from mercore.stores.location import s3_lease as module
from mercore.stores.location.s3 import s3_location
from mercore.stores.location.s3_lease import S3Lease
from tests.support.object_server import BUCKET, ObjectServer, object_server

SILENT_SECONDS = 4
QUICK = f"""
import sys, time
from mercore.stores.errors import LeaseError
from mercore.stores.location import s3_lease
from mercore.stores.location.s3 import s3_location
s3_lease.RENEW_SECONDS, s3_lease.SILENT_SECONDS, s3_lease.POLL_SECONDS = 0.3, {SILENT_SECONDS}, 0.01
location = s3_location(sys.argv[1])
"""
HOLD = (
    QUICK
    + """
with location.lease(lambda sentence: print(sentence, flush=True)) as handle:
    print("held", flush=True)
    for _ in sys.stdin:
        try:
            handle.check()
            print("ours", flush=True)
        except LeaseError as error:
            print(error, flush=True)
"""
)
RACE = (
    QUICK
    + """
s3_lease.SILENT_SECONDS = 20
for _ in range(int(sys.argv[2])):
    with location.lease(lambda sentence: None) as handle:
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        time.sleep(0.001)
        handle.check()
        print(start, time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
"""
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    """A server that this process and its children find by the environment."""
    with object_server() as running:
        yield running


class Holder:
    """A process that takes a lease, answers whether it still has it, and ends when told."""

    def __init__(self, url: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name = f"process {self.process.pid} on {socket.gethostname()} since "

    def says(self) -> str:
        """Wait for the next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def checks(self) -> str:
        """Let it check its lease; return what it prints then."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.says()

    def end(self) -> None:
        """Let it give the lease back and end; it must print nothing more."""
        out, _ = self.process.communicate(timeout=60)
        assert (self.process.returncode, out) == (0, "")

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store that nobody else leases."""
    return f"s3://{BUCKET}/{tmp_path.name}/store"


def key_of(url: str) -> str:
    return url.removeprefix(f"s3://{BUCKET}/") + ".lease"


def test_the_second_waits_until_the_first_gives_it_back(server: ObjectServer, url: str) -> None:
    first = Holder(url)
    assert first.says() == "held"
    assert server.get(key_of(url)).decode().startswith(first.name)
    second = Holder(url)
    waiting = second.says()
    assert waiting.startswith(f"waiting for {url}: {first.name}")
    assert waiting.endswith(
        f" is at work on it; if it was killed, this command goes on after {SILENT_SECONDS} s"
    )
    assert first.checks() == "ours"
    first.end()
    assert second.says() == "held"
    assert second.checks() == "ours"
    second.end()
    assert server.keys(url.removeprefix(f"s3://{BUCKET}/").rpartition("/")[0]) == []


@pytest.mark.promise(
    "A dead owner of a lease is followed after its time; one that comes back stops"
)
def test_an_owner_that_was_killed_is_followed_after_its_time(
    server: ObjectServer, url: str
) -> None:
    first = Holder(url)
    assert first.says() == "held"
    first.kill()
    began = time.monotonic()
    second = Holder(url)
    assert second.says().startswith(f"waiting for {url}: {first.name}")
    assert second.says() == "held"
    assert time.monotonic() - began >= SILENT_SECONDS
    assert second.checks() == "ours"
    second.end()


@pytest.mark.promise(
    "A dead owner of a lease is followed after its time; one that comes back stops"
)
def test_an_owner_that_was_stopped_loses_it_and_notices(server: ObjectServer, url: str) -> None:
    first = Holder(url)
    assert first.says() == "held"
    first.process.send_signal(signal.SIGSTOP)
    second = Holder(url)
    assert second.says().startswith("waiting for ")
    assert second.says() == "held"
    first.process.send_signal(signal.SIGCONT)
    lost = first.checks()
    assert lost.startswith(f"{url} is no longer this process's to write: found that {second.name}")
    assert lost.endswith(
        "Fix: run the same command again: it waits for its turn, and what is done stays done."
    )
    first.end()
    assert second.checks() == "ours"
    second.end()


def test_an_owner_that_renews_it_keeps_it(server: ObjectServer, url: str) -> None:
    first = Holder(url)
    assert first.says() == "held"
    second = Holder(url)
    assert second.says().startswith("waiting for ")
    watched = time.monotonic()
    while time.monotonic() < watched + 1.5 * SILENT_SECONDS:
        assert first.checks() == "ours"
    first.end()
    assert second.says() == "held"
    second.end()


def test_a_write_whose_answer_was_lost_counts(
    server: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = s3_location(url)
    really: Any = obstore.put
    handle = S3Lease(location.store, location.key, url)

    def put_twice(*arguments: object, **options: object) -> object:
        really(*arguments, **options)
        return really(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", put_twice)
        handle.take(pytest.fail)
        handle.check()
    other = S3Lease(location.store, location.key, url)
    monkeypatch.setattr(module, "SILENT_SECONDS", 0)
    other.take(pytest.fail)
    with pytest.raises(LeaseError):
        handle.check()
    handle.release()
    other.check()
    other.release()


@pytest.mark.parametrize("how", ["deleted", "another's", "damaged"])
def test_an_object_that_is_not_ours_is_a_lost_lease(
    how: str, server: ObjectServer, url: str
) -> None:
    left = {
        "deleted": None,
        "another's": b"process 7 on another host\n0123 1\n",
        "damaged": b"\xff",
    }[how]
    found = {"deleted": f"{url}.lease is gone", "another's": "process 7 on another host has it"}
    with s3_location(url).lease(pytest.fail) as handle:
        seen: list[int] = []
        advance = handle.checked(seen.append)
        advance(1)
        server.delete(key_of(url)) if left is None else server.put(key_of(url), left)
        message = f"is no longer this process's to write: found that {found.get(how, '')}"
        with pytest.raises(LeaseError, match=message):
            advance(2)
        assert seen == [1]
    if left is not None:
        assert server.get(key_of(url)) == left


def test_one_owner_at_a_time_in_sixty_turns_of_three_processes(
    server: ObjectServer, url: str
) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", RACE, url, "20"], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    turns = []
    for racer in racers:
        out, _ = racer.communicate(timeout=120)
        assert racer.returncode == 0
        turns += [tuple(map(int, line.split())) for line in out.splitlines()]
    turns.sort()
    assert len(turns) == 60
    assert all(end <= start for (_, end), (start, _) in pairwise(turns))

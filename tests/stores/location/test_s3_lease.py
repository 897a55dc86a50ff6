"""One process at a time has the lease of a store on an object store: real processes, a real server."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from mercore.stores.errors import LeaseError
from mercore.stores.location.lease import Pace
from mercore.stores.location.lease_file import contents, this_process
from mercore.stores.location.s3 import s3_location
from mercore.stores.location.s3_lease import Seen, _ended, s3_lease
from tests.support.object_server import BUCKET, ObjectServer, object_server

QUICK = Pace(heartbeat=0.3, takeover=4, look=0.02)

HOLD = """
import sys
from mercore.stores.errors import LeaseError
from mercore.stores.location.lease import Pace
from mercore.stores.location.s3_lease import object_lease
from mercore.stores.location.s3 import object_place
pace = Pace(**dict(zip(("heartbeat", "takeover", "look"), map(float, sys.argv[2:]))))
with object_lease(object_place(sys.argv[1]), lambda sentence: print(sentence, flush=True), pace=pace) as held:
    print("held", flush=True)
    for _ in sys.stdin:
        try:
            held.check()
            print("ours", flush=True)
        except LeaseError as error:
            print(error, flush=True)
"""
RACE = """
import sys, time
from mercore.stores.location.lease import Pace
from mercore.stores.location.s3_lease import object_lease
from mercore.stores.location.s3 import object_place
pace = Pace(heartbeat=0.3, takeover=20, look=0.005)
for _ in range(int(sys.argv[2])):
    with object_lease(object_place(sys.argv[1]), pace=pace) as held:
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        time.sleep(0.001)
        held.check()
        print(start, time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    """A server that this process and its children find by the environment."""
    with object_server() as running:
        yield running


class Holder:
    """A process that takes a lease, answers whether it still has it, and ends when told."""

    def __init__(self, url: str, environment: dict[str, str] | None = None) -> None:
        words = map(str, (QUICK.heartbeat, QUICK.takeover, QUICK.look))
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, url, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.name = f"process {self.process.pid} on {socket.gethostname()} since "

    def says(self) -> str:
        """Wait for the next thing that it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def checks(self) -> str:
        """Let it look whether the lease is still its own; return what it says then."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.says()

    def end(self) -> None:
        """Let it give the lease back and end; it must have nothing more to say."""
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
    assert json.loads(server.get(key_of(url)))["pid"] == first.process.pid
    second = Holder(url)
    assert second.says().startswith(f"waiting for {url}: {first.name}")
    assert first.checks() == "ours"
    first.end()
    assert second.says() == "held"
    assert second.checks() == "ours"
    second.end()
    assert server.keys(url.removeprefix(f"s3://{BUCKET}/").rpartition("/")[0]) == []


def test_one_that_was_killed_here_is_followed_at_once(server: ObjectServer, url: str) -> None:
    first = Holder(url)
    assert first.says() == "held"
    first.kill()
    told: list[str] = []
    began = time.monotonic()
    with s3_lease(s3_location(url), told.append, pace=Pace(takeover=600)) as held:
        held.check()
    assert time.monotonic() - began < 60
    (sentence,) = told
    assert sentence.startswith(f"taking {url} over from {first.name}")
    assert sentence.endswith("which ended without giving it back")


def test_one_whose_lock_is_elsewhere_is_followed_when_it_is_silent(
    server: ObjectServer, url: str, tmp_path: Path
) -> None:
    first = Holder(url, {"TMPDIR": str(tmp_path)})
    assert first.says() == "held"
    first.kill()
    second = Holder(url)
    assert second.says().startswith(f"waiting for {url}: {first.name}")
    taken = second.says()
    assert taken.startswith(f"taking {url} over from {first.name}")
    assert taken.endswith("which showed no sign of life for 4 s")
    assert second.says() == "held"
    second.end()


def test_a_silent_owner_is_given_all_of_its_time() -> None:
    seen = Seen("a version", this_process())  # of which there is no lock
    assert _ended(seen, 3.9, QUICK) is None
    assert _ended(seen, 4.0, QUICK) == "which showed no sign of life for 4 s"


def test_one_that_was_stopped_loses_it_and_notices(server: ObjectServer, url: str) -> None:
    first, second = Holder(url), None
    assert first.says() == "held"
    first.process.send_signal(signal.SIGSTOP)
    second = Holder(url)
    assert second.says().startswith("waiting for ")
    assert second.says().endswith("which showed no sign of life for 4 s")
    assert second.says() == "held"
    first.process.send_signal(signal.SIGCONT)
    lost = first.checks()
    assert lost.startswith(f"{url} is no longer this process's to write: found that {second.name}")
    assert lost.endswith("Fix: run the same command again: it waits for its turn, and what is done stays done.")
    first.end()
    assert second.checks() == "ours"
    second.end()


def test_a_beat_keeps_it(server: ObjectServer, url: str) -> None:
    first = Holder(url)
    assert first.says() == "held"
    second = Holder(url)
    assert second.says().startswith("waiting for ")
    watched = time.monotonic()
    while time.monotonic() < watched + 1.5 * QUICK.takeover:
        assert first.checks() == "ours"
    first.end()
    assert second.says() == "held"
    second.end()


@pytest.mark.parametrize("how", ["deleted", "another's", "damaged"])
def test_an_object_that_is_not_ours_is_a_lost_lease(how: str, server: ObjectServer, url: str) -> None:
    left = {"deleted": None, "another's": contents(this_process()), "damaged": b"{}"}[how]
    with s3_lease(s3_location(url), pace=Pace(heartbeat=600)) as held:
        seen: list[int] = []
        advance = held.checked(seen.append)
        advance(1)
        server.delete(key_of(url)) if left is None else server.put(key_of(url), left)
        with pytest.raises(LeaseError, match="is no longer this process's to write"):
            advance(2)
        assert seen == [1]
    if left is not None:
        assert server.get(key_of(url)) == left


def test_one_owner_at_a_time_in_sixty_turns_of_three_processes(server: ObjectServer, url: str) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", RACE, url, "20"], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    turns = []
    for racer in racers:
        out, _ = racer.communicate(timeout=120)
        assert racer.returncode == 0
        turns += [tuple(map(int, line.split())) for line in out.splitlines()]
    turns.sort()
    assert len(turns) == 60
    assert all(end <= start for (_, end), (start, _) in pairwise(turns))

"""One process at a time has a lease: real processes that wait, die, stop and come back."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mercore.stores.errors import LeaseError, NotFoundError, StorageError
from mercore.stores.location.lease import Pace, lease, lease_path
from mercore.stores.location.lease_file import LEASE_BYTES, Owner, contents, parsed, this_process, turn

QUICK = Pace(heartbeat=0.05, takeover=2, look=0.01)
HASTY = Pace(heartbeat=0.02, takeover=0.1, look=0.01)

HOLD = """
import sys, pathlib
from mercore.stores.errors import LeaseError
from mercore.stores.location.lease import Pace, lease
path, heartbeat, takeover, look = pathlib.Path(sys.argv[1]), *map(float, sys.argv[2:])
tell = lambda sentence: print(sentence, flush=True)
with lease(path, tell, pace=Pace(heartbeat=heartbeat, takeover=takeover, look=look)) as held:
    print("held", flush=True)
    for word in sys.stdin:
        if word == "compute\\n":
            print("computing", flush=True)
            sum(range(15 * 10**7))  # a second or more in which no other thread of it runs
        try:
            held.check()
            print("ours", flush=True)
        except LeaseError as error:
            print(error, flush=True)
"""
LOCKLESS = """
import fcntl
def refuse(*arguments):
    raise OSError(95, "Operation not supported")
fcntl.flock = fcntl.fcntl = refuse
"""


class Holder:
    """A process that takes the lease of a path, answers whether it still has it, and ends when told."""

    def __init__(self, path: Path, pace: Pace = QUICK, before: str = "") -> None:
        words = [str(path), *map(str, (pace.heartbeat, pace.takeover, pace.look))]
        self.process = subprocess.Popen(
            [sys.executable, "-c", before + HOLD, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.name = f"process {self.process.pid} on {socket.gethostname()} since "

    def says(self) -> str:
        """Wait for the next thing that it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def checks(self, word: str = "") -> str:
        """Let it look whether the lease is still its own; return what it says then."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.says()

    def end(self) -> None:
        """Let it give the lease back and end; it must have nothing more to say."""
        out, _ = self.process.communicate(timeout=60)
        assert (self.process.returncode, out) == (0, "")

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[Any]:
    """What makes processes that want the lease of ``store``; those that are left are killed."""
    made: list[Holder] = []

    def make(pace: Pace = QUICK, before: str = "") -> Holder:
        made.append(Holder(tmp_path / "store", pace, before))
        return made[-1]

    yield make
    for holder in made:
        holder.kill()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_says_who_has_it_and_goes_at_the_end(tmp_path: Path) -> None:
    with lease(tmp_path / "store") as held:
        held.check()
        (path,) = tmp_path.iterdir()
        assert path.name == ".store.lease"
        assert path.stat().st_mode & 0o777 == 0o600
        written = path.read_bytes()
        assert len(written) == LEASE_BYTES
        said = json.loads(written)
        assert (said["name"], said["version"], said["beats"]) == ("mercore-lease", 1, 0)
        assert (said["host"], said["pid"]) == (socket.gethostname(), os.getpid())
        assert said["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert names(tmp_path) == []


def test_two_names_of_one_store_have_one_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    places = [lease_path(Path(name)) for name in ("real", "link", "./link/../real", str(tmp_path / "real"))]
    assert places == [tmp_path / ".real.lease"] * 4


def test_an_error_in_the_block_gives_it_back(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), lease(tmp_path / "store"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_a_second_process_waits_until_the_first_gives_it_back(tmp_path: Path, holders: Any) -> None:
    first = holders()
    assert first.says() == "held"
    second = holders()
    assert second.says().startswith(f"waiting for {tmp_path / 'store'}: {first.name}")
    assert first.checks() == "ours"
    first.end()
    assert second.says() == "held"
    assert second.checks() == "ours"
    second.end()
    assert names(tmp_path) == []


def test_a_living_owner_is_not_taken_over_however_long_it_takes(tmp_path: Path, holders: Any) -> None:
    first = holders(Pace(heartbeat=0.01))
    assert first.says() == "held"
    second = holders(Pace(takeover=1, look=0.01))
    assert second.says().startswith("waiting for ")
    beats, give_up = 0, time.monotonic() + 60
    while beats < 200 and time.monotonic() < give_up:
        owner = parsed((tmp_path / ".store.lease").read_bytes())
        beats = owner.beats if owner else beats
    assert beats >= 200
    assert first.checks() == "ours"
    first.end()
    assert second.says() == "held", "it took over from the living"
    second.end()
    assert names(tmp_path) == []


def test_one_of_two_that_wait_follows_and_then_the_other(tmp_path: Path, holders: Any) -> None:
    first = holders()
    assert first.says() == "held"
    waiting = [holders() for _ in range(2)]
    for each in waiting:
        assert each.says().startswith("waiting for ")
    first.end()
    lease_of = threading.Event()
    order: list[Holder] = []

    def follow(each: Holder) -> None:
        assert each.says() == "held"
        order.append(each)
        lease_of.set()

    threads = [threading.Thread(target=follow, args=[each]) for each in waiting]
    for thread in threads:
        thread.start()
    assert lease_of.wait(60)
    assert order[0].checks() == "ours"
    assert len(order) == 1
    order[0].end()
    for thread in threads:
        thread.join(60)
    assert order[1].checks() == "ours"
    order[1].end()
    assert names(tmp_path) == []


def test_a_killed_owner_is_followed_at_once(tmp_path: Path, holders: Any) -> None:
    first = holders()
    assert first.says() == "held"
    waiter = holders(Pace(takeover=3600, look=0.01))
    assert waiter.says().startswith("waiting for ")
    first.kill()
    told = waiter.says()
    assert told.startswith(f"taking {tmp_path / 'store'} over from {first.name}")
    assert told.endswith(", which ended without giving it back")
    assert waiter.says() == "held"
    waiter.end()
    assert names(tmp_path) == []


def test_a_killed_waiter_does_not_matter(tmp_path: Path, holders: Any) -> None:
    first = holders()
    assert first.says() == "held"
    second = holders()
    assert second.says().startswith("waiting for ")
    second.kill()
    assert first.checks() == "ours"
    first.end()
    assert names(tmp_path) == []


def test_an_interrupted_waiter_leaves_what_it_waited_for(tmp_path: Path, holders: Any) -> None:
    first = holders()
    assert first.says() == "held"
    second = holders(before="import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n")
    assert second.says().startswith("waiting for ")
    assert names(tmp_path) == [".store.lease"]
    second.process.send_signal(signal.SIGINT)
    second.process.wait(60)
    assert second.process.returncode == -signal.SIGINT
    assert first.checks() == "ours"
    first.end()
    assert names(tmp_path) == []


def test_a_stopped_owner_is_followed_and_learns_of_it(tmp_path: Path, holders: Any) -> None:
    first = holders()
    assert first.says() == "held"
    first.process.send_signal(signal.SIGSTOP)
    second = holders(Pace(heartbeat=0.05, takeover=0.5, look=0.01))
    assert second.says().startswith("waiting for ")
    told = second.says()
    assert told.startswith(f"taking {tmp_path / 'store'} over from {first.name}")
    assert told.endswith(", which showed no sign of life for 0.5 s")
    assert second.says() == "held"
    first.process.send_signal(signal.SIGCONT)
    lost = first.checks()
    assert lost.startswith(f"{tmp_path / 'store'} is no longer this process's to write: found that {second.name}")
    assert f", expected {first.name}" in lost
    assert lost.endswith("Fix: run the same command again: it waits for its turn, and what is done stays done.")
    assert second.checks() == "ours"
    first.end()
    assert second.checks() == "ours"
    assert names(tmp_path) == [".store.lease"]
    second.end()
    assert names(tmp_path) == []


def test_an_owner_that_computes_lives_though_it_cannot_beat(tmp_path: Path, holders: Any) -> None:
    first = holders()
    assert first.says() == "held"
    second = holders(Pace(takeover=0.8, look=0.01))
    assert second.says().startswith("waiting for ")
    assert first.checks("compute") == "computing"
    assert first.says() == "ours"
    first.end()
    assert second.says() == "held", "it took over from the living"
    second.end()


def test_one_alone_of_many_follows_a_stopped_owner(tmp_path: Path, holders: Any) -> None:
    first = holders()
    assert first.says() == "held"
    first.process.send_signal(signal.SIGSTOP)
    several = [holders(Pace(heartbeat=0.05, takeover=0.5, look=0.01)) for _ in range(4)]
    for each in several:
        assert each.says().startswith("waiting for ")
    heard: list[tuple[Holder, str]] = []
    more = threading.Condition()

    def listen(each: Holder) -> None:
        while sentence := each.says():
            with more:
                heard.append((each, sentence))
                more.notify()

    threads = [threading.Thread(target=listen, args=[each]) for each in several]
    for thread in threads:
        thread.start()
    for count in range(1, 5):
        with more:
            assert more.wait_for(lambda count=count: len(owners(heard)) >= count, 60)  # type: ignore[misc]
        owner = owners(heard)[-1]
        assert owner.process.stdin is not None
        owner.process.stdin.write("\n")
        owner.process.stdin.close()  # once it has answered, it ends
        assert owner.process.wait(60) == 0
    for thread in threads:
        thread.join(60)
    assert sorted(said.split()[0] for _, said in heard) == ["held"] * 4 + ["ours"] * 4 + ["taking"]
    assert names(tmp_path) == []


def owners(heard: list[tuple[Holder, str]]) -> list[Holder]:
    """Return who said that it has the lease, in that order."""
    return [each for each, said in heard if said == "held"]


def test_a_file_that_is_removed_or_replaced_is_a_lost_lease(tmp_path: Path) -> None:
    place = tmp_path / ".store.lease"
    with lease(tmp_path / "store") as held:
        place.unlink()
        with pytest.raises(LeaseError, match=f"found that {place} is gone, expected process {os.getpid()} on "):
            held.check()
    with lease(tmp_path / "store") as held:
        place.rename(tmp_path / "other")
        place.write_bytes((tmp_path / "other").read_bytes())
        with pytest.raises(LeaseError, match=f"found that process {os.getpid()} on .* has it, expected process"):
            held.check()
        place.write_text("nonsense")
        with pytest.raises(LeaseError, match="found that another process has it"):
            held.check()
    assert place.read_text() == "nonsense", "it was not ours to remove"


@pytest.mark.parametrize("left", [b"", b"nonsense", b"[]", b'{"name":"mercore-lease","version":2}'])
def test_what_names_nobody_is_followed_once_it_is_silent(left: bytes, tmp_path: Path) -> None:
    (tmp_path / ".store.lease").write_bytes(left)
    told: list[str] = []
    with lease(tmp_path / "store", told.append, pace=HASTY) as held:
        held.check()
    path = tmp_path / "store"
    silent = f"taking {path} over from another process, which showed no sign of life for 0.1 s"
    assert told == [f"waiting for {path}: another process is at work on it", silent][not left :]
    assert names(tmp_path) == []


def test_a_silent_owner_is_given_all_of_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".store.lease").write_bytes(b"nobody")
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with lease(tmp_path / "store", pace=Pace(heartbeat=60, takeover=32, look=0.25)):
        pass
    assert slept == [0.25] * 128 + [60]  # the last so that others who follow are seen


def left_by(place: Path, **differs: object) -> None:
    """Write what a process left that is no more."""
    place.write_bytes(contents(replace(this_process(), pid=4242, **differs)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("differs", "told"),
    [
        ({}, ["ended without giving it back"]),
        ({"boot": "before"}, ["ended without giving it back"]),
        ({"host": "other"}, ["ended without giving it back"]),  # a container of this host
        ({"host": "other", "boot": "its"}, ["is at work on it", "showed no sign of life for 0.1 s"]),
    ],
)
def test_what_another_boot_or_host_left(differs: dict[str, str], told: list[str], tmp_path: Path) -> None:
    left_by(tmp_path / ".store.lease", **differs)
    heard: list[str] = []
    with lease(tmp_path / "store", heard.append, pace=HASTY):
        pass
    assert [sentence.endswith(end) for sentence, end in zip(heard, told, strict=True)] == [True] * len(told)
    assert names(tmp_path) == []


def test_another_host_that_beats_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / ".store.lease"
    left_by(place, host="other", boot="its")
    owner = parsed(place.read_bytes())
    assert owner is not None
    beats = iter(range(100))

    def beat(seconds: float) -> None:
        now = next(beats, None)
        if now is None:
            raise KeyboardInterrupt
        with place.open("r+b") as file:
            file.write(contents(replace(owner, beats=now)))

    monkeypatch.setattr(time, "sleep", beat)
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        stack.enter_context(lease(tmp_path / "store", pace=Pace(takeover=0.1, look=0.01)))
    assert names(tmp_path) == [".store.lease"]


def test_of_two_hosts_that_follow_a_silent_one_the_last_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / ".store.lease"
    left_by(place, host="other", boot="its")
    told: list[str] = []

    def replaced_too(seconds: float) -> None:
        monkeypatch.undo()
        scratch = tmp_path / "third"
        left_by(scratch, host="third", boot="its own")
        scratch.rename(place)

    def tell(sentence: str) -> None:
        told.append(sentence.split(maxsplit=1)[0])
        if told == ["waiting", "taking"]:
            monkeypatch.setattr(time, "sleep", replaced_too)

    with lease(tmp_path / "store", tell, pace=HASTY) as held:
        held.check()
    assert told == ["waiting", "taking", "taking"]


def test_without_locks_the_beats_alone_tell(tmp_path: Path, holders: Any) -> None:
    first = holders(before=LOCKLESS)
    assert first.says() == "held"
    second = holders(before=LOCKLESS)
    assert second.says().startswith("waiting for ")
    first.end()
    assert second.says() == "held"
    second.kill()
    third = holders(Pace(heartbeat=0.05, takeover=0.5, look=0.01), before=LOCKLESS)
    assert third.says().startswith("waiting for ")
    assert third.says().endswith("which showed no sign of life for 0.5 s")
    assert third.says() == "held"
    assert third.checks() == "ours"
    third.end()
    assert names(tmp_path) == []


def test_a_lease_given_back_between_a_look_and_a_lock_is_not_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ".store.lease"
    left_by(place)
    really, first = fcntl.flock, iter([True])

    def flock(descriptor: int, how: int) -> None:
        really(descriptor, how)
        if next(first, False):
            place.unlink()

    told: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        with lease(tmp_path / "store", told.append, pace=HASTY) as held:
            held.check()
    assert told == []
    assert names(tmp_path) == []


def test_while_one_replaces_the_file_no_other_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / ".store.lease"
    left_by(place)
    left, looks = place.read_bytes(), iter(range(5))
    with ExitStack() as other:
        descriptor = os.open(place, os.O_RDWR)
        assert other.enter_context(turn(descriptor))

        def look_again(seconds: float) -> None:
            assert place.read_bytes() == left
            if next(looks, None) is None:
                other.close()

        monkeypatch.setattr(time, "sleep", look_again)
        with lease(tmp_path / "store") as held:
            held.check()
    os.close(descriptor)
    assert next(looks, None) is None
    assert names(tmp_path) == []


def test_a_beat_at_the_last_moment_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, tries = tmp_path / ".store.lease", []
    left_by(place, host="other", boot="its")

    def beat_first() -> Owner:
        tries.append(place.read_bytes())
        if len(tries) == 1:
            left_by(place, host="other", boot="its", beats=1)
        return this_process()

    monkeypatch.setattr("mercore.stores.location.lease.this_process", beat_first)
    told: list[str] = []
    with lease(tmp_path / "store", told.append, pace=HASTY):
        assert [sentence.split(maxsplit=1)[0] for sentence in told] == ["waiting", "taking"]
        assert len(set(tries)) == len(tries) == 2


def test_a_full_disk_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", pwrite)
    message = f"cannot write {tmp_path / '.store.lease'}: No space left on device. "
    with pytest.raises(StorageError, match=message), lease(tmp_path / "store"):
        pass
    assert names(tmp_path) == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = tmp_path / "absent/store"
    with pytest.raises(NotFoundError) as refusal, lease(store):
        pass
    assert str(refusal.value) == f"cannot write {store}: there is no folder {store.parent}. Fix: create it."


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_file_is_refused_and_stays(kind: str, tmp_path: Path) -> None:
    place = tmp_path / ".store.lease"
    make: dict[str, Callable[[], None]] = {
        "link": lambda: place.symlink_to("victim"),
        "folder": place.mkdir,
        "pipe": lambda: os.mkfifo(place),
    }
    make[kind]()
    with pytest.raises(StorageError, match=f"cannot write {place}: "), lease(tmp_path / "store"):
        pass
    assert names(tmp_path) == [".store.lease"]


def test_what_killed_processes_left_of_taking_it_goes(tmp_path: Path) -> None:
    (tmp_path / "..store.lease.4242-01234567.tmp").touch()
    (tmp_path / ".store.4242-01234567.tmp").touch()
    with lease(tmp_path / "store"):
        pass
    assert names(tmp_path) == [".store.4242-01234567.tmp"]

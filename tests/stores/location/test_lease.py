"""One process at a time has a lease: real processes that wait, are killed, and stop."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from mercore.stores.errors import LeaseError, NotFoundError, StorageError
from mercore.stores.location.file_lock import take
from mercore.stores.location.lease import lease, lease_path

HOLD = """
import sys, pathlib
from mercore.stores.errors import LeaseError
from mercore.stores.location.lease import lease
with lease(pathlib.Path(sys.argv[1]), lambda sentence: print(sentence, flush=True)) as handle:
    print("held", flush=True)
    for _ in sys.stdin:
        handle.check()
        print("ours", flush=True)
"""
RACE = """
import sys, pathlib, time
from mercore.stores.location.lease import lease
for _ in range(int(sys.argv[2])):
    with lease(pathlib.Path(sys.argv[1])) as handle:
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        time.sleep(0.001)
        handle.check()
        print(start, time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
"""


class Holder:
    """A process that takes the lease of a path, answers whether it still has it, and ends when
    told."""

    def __init__(self, path: Path, before: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", before + HOLD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
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
        self.process.wait()


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[Callable[..., Holder]]:
    """Start processes that want the lease of ``store``; those that are left are killed."""
    made: list[Holder] = []

    def make(before: str = "") -> Holder:
        made.append(Holder(tmp_path / "store", before))
        return made[-1]

    yield make
    for holder in made:
        holder.kill()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.promise("Leases are readable by their owner alone")
def test_the_file_names_the_owner_and_goes_at_the_end(tmp_path: Path) -> None:
    with lease(tmp_path / "store") as handle:
        handle.check()
        (path,) = tmp_path.iterdir()
        assert path.name == ".store.lease"
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_text().startswith(
            f"process {os.getpid()} on {socket.gethostname()} since "
        )
    assert names(tmp_path) == []


def test_two_names_of_one_store_have_one_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    files = [
        lease_path(Path(name))
        for name in ("real", "link", "./link/../real", str(tmp_path / "real"))
    ]
    assert files == [tmp_path / ".real.lease"] * 4


def test_an_error_in_the_block_gives_it_back(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), lease(tmp_path / "store"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_a_second_process_waits_until_the_first_gives_it_back(
    tmp_path: Path, holders: Callable[..., Holder]
) -> None:
    first = holders()
    assert first.says() == "held"
    second = holders()
    waiting = second.says()
    assert waiting.startswith(f"waiting for {tmp_path / 'store'}: {first.name}")
    assert waiting.endswith(" UTC is at work on it")
    assert first.checks() == "ours"
    first.end()
    assert second.says() == "held"
    assert second.checks() == "ours"
    second.end()
    assert names(tmp_path) == []


def test_one_owner_at_a_time_in_sixty_turns_of_three_processes(tmp_path: Path) -> None:
    words = [sys.executable, "-c", RACE, str(tmp_path / "store"), "20"]
    racers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    turns = []
    for racer in racers:
        out, _ = racer.communicate(timeout=120)
        assert racer.returncode == 0
        turns += [tuple(map(int, line.split())) for line in out.splitlines()]
    turns.sort()
    assert len(turns) == 60
    assert all(end <= start for (_, end), (start, _) in pairwise(turns))
    assert names(tmp_path) == []


def test_a_killed_owner_is_followed_at_once(tmp_path: Path, holders: Callable[..., Holder]) -> None:
    first = holders()
    assert first.says() == "held"
    second, third = holders(), holders()
    for each in (second, third):
        assert each.says().startswith(f"waiting for {tmp_path / 'store'}: {first.name}")
    second.kill()
    first.kill()
    assert third.says() == "held"
    assert third.checks() == "ours"
    assert (tmp_path / ".store.lease").read_text().startswith(third.name)
    third.end()
    assert names(tmp_path) == []


@pytest.mark.promise("A killed owner is followed at once, a stopped one is waited for")
def test_a_stopped_owner_is_waited_for(tmp_path: Path, holders: Callable[..., Holder]) -> None:
    first = holders()
    assert first.says() == "held"
    first.process.send_signal(signal.SIGSTOP)
    second = holders()
    assert second.says().startswith(f"waiting for {tmp_path / 'store'}: {first.name}")
    first.process.send_signal(signal.SIGCONT)
    assert first.checks() == "ours"
    first.end()
    assert second.says() == "held"
    second.end()


def test_children_of_an_owner_do_not_hold_its_lease(
    tmp_path: Path, holders: Callable[..., Holder]
) -> None:
    child = "import subprocess; child = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
    first = holders(
        HOLD.replace(
            '    print("held"', f'    {child}    print(child.pid, flush=True)\n    print("held"'
        )
    )
    child_pid = int(first.says())
    try:
        assert first.says() == "held"
        first.kill()
        with lease(tmp_path / "store", pytest.fail) as handle:
            handle.check()
    finally:
        os.kill(child_pid, signal.SIGKILL)


def test_an_interrupted_waiter_leaves_what_it_waited_for(
    tmp_path: Path, holders: Callable[..., Holder]
) -> None:
    first = holders()
    assert first.says() == "held"
    second = holders("import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n")
    assert second.says().startswith("waiting for ")
    second.process.send_signal(signal.SIGINT)
    second.process.wait(60)
    assert second.process.returncode == -signal.SIGINT
    assert names(tmp_path) == [".store.lease"]
    assert first.checks() == "ours"
    first.end()
    assert names(tmp_path) == []


def test_a_lock_of_a_file_that_was_removed_meanwhile_is_not_had(tmp_path: Path) -> None:
    path, locks = tmp_path / "lock", []
    first = take(path)
    assert first is not None
    waiter = threading.Thread(target=lambda: locks.append(take(path, wait=True)))
    waiter.start()
    path.unlink()
    second = take(path)  # of the new file
    assert second is not None
    os.close(first)
    waiter.join(0.2)
    assert locks == []
    os.close(second)
    waiter.join(60)
    (third,) = locks
    assert third is not None
    assert os.path.samestat(os.fstat(third), path.stat())
    os.close(third)


def test_a_process_that_takes_its_own_lease_again_says_that_it_waits(tmp_path: Path) -> None:
    told: list[str] = []
    with lease(tmp_path / "store"):

        def again() -> None:
            with lease(tmp_path / "store", told.append):
                told.append("held")

        thread = threading.Thread(target=again)
        thread.start()
        give_up = time.monotonic() + 60
        while not told and time.monotonic() < give_up:
            time.sleep(0.01)
        assert [sentence.split(" on ")[0] for sentence in told] == [
            f"waiting for {tmp_path / 'store'}: process {os.getpid()}"
        ]
    thread.join(60)
    assert told[1:] == ["held"]


def test_a_file_that_is_removed_or_replaced_is_a_lost_lease(tmp_path: Path) -> None:
    file = tmp_path / ".store.lease"
    with lease(tmp_path / "store") as handle:
        seen: list[int] = []
        advance = handle.checked(seen.append)
        advance(1)
        file.unlink()
        with pytest.raises(LeaseError) as lost:
            advance(2)
        assert seen == [1]
    told = str(lost.value)
    assert told.startswith(
        f"{tmp_path / 'store'} is no longer this process's to write: found that {file} is gone, "
    )
    assert f"expected process {os.getpid()} on " in told
    assert told.endswith(
        "Fix: run the same command again: it waits for its turn, and what is done stays done."
    )
    with lease(tmp_path / "store") as handle:
        file.rename(tmp_path / "other")
        file.write_text("process 7 on another host\n")
        with pytest.raises(
            LeaseError, match="found that process 7 on another host has it, expected process"
        ):
            handle.check()
        file.write_text("\x1b[31m")
        with pytest.raises(LeaseError, match="found that another process has it"):
            handle.check()
    assert file.read_text() == "\x1b[31m", "it was not ours to remove"


@pytest.mark.parametrize(
    "left", [b"", b"nonsense", b"\xff", b"process 7 on a host that went down\n" * 100]
)
def test_a_file_that_nobody_locks_is_taken(left: bytes, tmp_path: Path) -> None:
    (tmp_path / ".store.lease").write_bytes(left)
    with lease(tmp_path / "store", pytest.fail):
        assert (tmp_path / ".store.lease").read_text().startswith(f"process {os.getpid()} on ")
    assert names(tmp_path) == []


def test_a_full_disk_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert (
        str(refusal.value)
        == f"cannot write {store}: there is no folder {store.parent}. Fix: create it."
    )


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_no_file_is_refused_and_stays(kind: str, tmp_path: Path) -> None:
    file = tmp_path / ".store.lease"
    file.symlink_to("victim") if kind == "link" else file.mkdir()
    with pytest.raises(StorageError, match=f"cannot write {file}: "), lease(tmp_path / "store"):
        pass
    assert names(tmp_path) == [".store.lease"]

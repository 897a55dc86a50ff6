"""The command line in a process of its own: its peak memory, and how long it took."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psutil

from tests.support.running import Outcome, finish, split_words, start, start_words

# The command in a process that writes its own peak down: a parent's peak would count for a forked
# child.
LAUNCH = """
import atexit, pathlib, sys
note = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: note.write_text(pathlib.Path("/proc/self/status").read_text()))
from mercore.jobs.cli import main
main()
"""


class Measured(NamedTuple):
    """What a command took: its peak resident memory in bytes, its wall time in seconds, and how it
    ended."""

    peak: int
    seconds: float
    outcome: Outcome


def measured(*words: object, seconds: float = 600) -> Measured:
    """Run the command line in a process of its own; it must succeed."""
    with TemporaryDirectory() as folder:
        note = Path(folder) / "status"
        began = time.perf_counter()
        outcome = finish(
            start_words([sys.executable, "-c", LAUNCH, str(note), *split_words(words)]), seconds
        )
        taken = time.perf_counter() - began
        assert outcome.code == 0, outcome.err
        (line,) = (line for line in note.read_text().splitlines() if line.startswith("VmHWM:"))
    return Measured(int(line.split()[1]) << 10, taken, outcome)


def peak(*words: object) -> int:
    """Run the command line in a process of its own, and return its peak resident memory in
    bytes."""
    return measured(*words).peak


def peak_with_children(*words: object) -> int:
    """Run the command line; return the greatest sum of the resident memory of all its processes."""
    process, most = start(*words), 0
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            command = psutil.Process(process.pid)
            every = [command, *command.children(recursive=True)]
            most = max(most, sum(each.memory_info().rss for each in every))
        time.sleep(0.01)
    outcome = finish(process)
    assert outcome.code == 0, outcome.err
    return most

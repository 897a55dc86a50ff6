"""Processes that race for stores, are killed and stopped on the way: one owner at a time, and the
undisturbed bytes."""

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.stores.location.racing import RACES, finish
from tests.support.running import files_of, names_in

RACERS, KILLS, STOPS = 4, 16, 8
ROOT = Path(__file__).parents[3]

Tenure = tuple[
    int, int, str
]  # of an owner: the first and the last moment at which it was sure, and who it is


class Racers:
    """Four processes that race, each with a log of its own; one that is killed has a successor."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder, self._logs = folder, logs
        self._started = 0
        self.living = [self._start() for _ in range(RACERS)]

    def kill(self, number: int) -> bool:
        """kill -9 one of them, unless it was done, and start its successor."""
        self.living[number].kill()
        hit = self.living[number].wait() == -signal.SIGKILL
        self.living[number] = self._start()
        return hit

    def stop(self, number: int) -> None:
        """Stop one of them for a while."""
        os.kill(self.living[number].pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(self.living[number].pid, signal.SIGCONT)

    def end(self) -> list[int]:
        """Wait for all of them; return how they ended."""
        return [process.wait(120) for process in self.living]

    def _start(self) -> "subprocess.Popen[bytes]":
        self._started += 1
        words = [
            "-m",
            "tests.stores.location.racing",
            str(self._folder),
            str(self._logs / f"{self._started}.log"),
        ]
        return subprocess.Popen([sys.executable, *words], cwd=ROOT)


def tenures(logs: Path) -> dict[int, list[Tenure]]:
    """Return who owned each store from when to when, in the order of time."""
    moments: dict[tuple[int, str], list[int]] = defaultdict(list)
    for path in logs.iterdir():
        for line in path.read_text().splitlines():
            number, turn, moment = line.split()
            moments[int(number), f"{path.stem} {turn}"].append(int(moment))
    found: dict[int, list[Tenure]] = defaultdict(list)
    for (store, who), known in moments.items():
        found[store].append((min(known), max(known), who))
    return {store: sorted(owners) for store, owners in found.items()}


@pytest.mark.slow
@pytest.mark.promise(
    "One command at a time writes to a location; the second waits and then finds all done"
)
def test_races_have_one_owner_at_a_time_and_leave_the_undisturbed_stores(
    tmp_path: Path,
) -> None:
    folder, logs = tmp_path / "stores", tmp_path / "logs"
    for made in (
        folder,
        logs,
        tmp_path / "alone",
        *(folder / str(number) for number in range(RACES)),
    ):
        made.mkdir()
    finish(tmp_path / "alone/codes", lambda: None)

    racers = Racers(folder, logs)
    rng = np.random.default_rng(7)
    hits = 0
    for disturbance in rng.permutation(KILLS + STOPS):
        time.sleep(rng.uniform(0, 0.2))
        number = int(rng.integers(RACERS))
        if disturbance < KILLS:
            hits += racers.kill(number)
        elif racers.living[number].poll() is None:
            racers.stop(number)
    assert racers.end() == [0] * RACERS

    owners = tenures(logs)
    assert sorted(owners) == list(range(RACES))
    for number, known in owners.items():
        for (_, last, before), (first, _, after) in pairwise(known):
            assert last < first, f"store {number} had two owners at once: {before} and {after}"
        assert names_in(folder / str(number)) == ["codes"]
        assert files_of(folder / str(number) / "codes") == files_of(tmp_path / "alone/codes")
    assert hits >= KILLS // 2, "most kills came too late to show anything"
    assert sum(map(len, owners.values())) >= 4 * RACES

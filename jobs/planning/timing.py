"""The time of work, extrapolated from one sample of it and from fewer cores.

Other processes may be busy. So a sample's time is counted without the time that its threads waited
for a core.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[int], object]
LOADING = 1.0  # the most seconds for loading jitted functions; compiling them takes longer
THREADS, STATISTICS = Path("/proc/self/task"), Path("/proc/stat")


@dataclass(kw_only=True)
class Spent:
    """The seconds of some work: passed, of the processor, and waited for cores of other processes.

    Seconds of the processor and of waiting are added up over the threads.
    """

    passed: float = 0.0
    processor: float = 0.0
    waited: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds that the work would have taken with a core for each of its threads."""
        if not self.waited:
            return self.passed
        threads = (self.processor + self.waited) / self.passed  # at work or waiting, on average
        return self.passed - self.waited / max(1.0, threads)

    @property
    def slowdown(self) -> float:
        """The factor by which waiting for a core made the work longer."""
        return self.passed / self.seconds


@contextmanager
def timed() -> Iterator[Spent]:
    """Yield what is spent on the work in the ``with`` block; it is known at the end of the block.

    Its threads must not end within the block.
    """
    spent = Spent()
    waited, busy = _waited(), _busy()
    processor, began = time.process_time(), time.perf_counter()
    yield spent
    spent.passed = time.perf_counter() - began
    spent.processor = time.process_time() - processor
    others = _busy() - busy - spent.processor  # threads also wait for each other
    spent.waited = max(0.0, min(_waited() - waited, others))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The time of a sample of ``units`` units of work, and of ``one`` unit.

    ``first`` is the extra time of the very first unit, such as loading. ``slowdown`` is the factor
    by which other processes made the sample longer.
    """

    units: int
    seconds: float
    one: float
    first: float = 0.0
    slowdown: float = 1.0

    def of(self, units: int, cores: float = 1) -> float:
        """Return the seconds of a number of units, without the extra time of the first.

        What does not grow with the units is not divided by ``cores``: one core works, the others
        wait.
        """
        each = self.seconds / self.units
        if self.units > 1:
            each = min(each, max(0.05 * each, (self.seconds - self.one) / (self.units - 1)))
        return self.seconds - self.units * each + units * each / cores


def measure(run: Run, units: int, seconds: float) -> Timing:
    """Return the timing of a run, from one unit, and from a sample that takes ``seconds`` more.

    The sample has two units at least, if there are two, and at most ``units``.
    """
    first, one = _timed(run, 1), _timed(run, 1)
    size, sample = 1, one
    while size < units and sample.seconds - one.seconds < seconds:
        size = min(units, 4 * size - 2)  # 2, 6, 22, …
        sample = _timed(run, size)
    return Timing(
        units=size,
        seconds=sample.seconds,
        one=one.seconds,
        first=min(LOADING, max(0.0, first.seconds - one.seconds)),
        slowdown=sample.slowdown,
    )


def _timed(run: Run, units: int) -> Spent:
    with timed() as spent:
        run(units)
    return spent


def _busy() -> float:
    """Return the seconds that the cores of this process have worked, for any process."""
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    lines = [line.split() for line in STATISTICS.read_text().splitlines()]
    ticks = [sum(map(int, line[1:4] + line[6:9])) for line in lines if line[0] in cores]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _waited() -> float:
    """Return the seconds that the threads of this process have waited for a core; 0 if unknown."""
    waited = 0
    for thread in THREADS.glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # the thread ended, or Linux does not say
            waited += int(thread.read_text().split()[1])
    return waited / 1e9

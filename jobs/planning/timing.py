"""The time of work, extrapolated from interleaved samples of two sizes and fewer cores.

Other processes may be busy. So a sample's time is counted without the time that its threads waited
for a core, and the least of several counts.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

Run = Callable[[int], object]
REPEATS = 3
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
    """The least time of two amounts of work: ``units``, and ``fewer`` of them.

    Seconds of the processor are those of the same two. ``first`` is the extra time of the very
    first unit, such as loading. ``slowdown`` is the factor by which other processes made the work
    longer.
    """

    units: int
    seconds: float
    processor: float
    fewer: int
    fewer_seconds: float
    fewer_processor: float
    first: float = 0.0
    slowdown: float = 1.0

    def of(self, units: int) -> float:
        """Return the seconds of a number of units, without the extra time of the first."""
        return self._of(units, self.seconds, self.fewer_seconds)

    def processor_of(self, units: int) -> float:
        """Return the seconds of the processor for a number of units, added up over the threads."""
        return self._of(units, self.processor, self.fewer_processor)

    def _of(self, units: int, seconds: float, fewer_seconds: float) -> float:
        if units == self.units:
            return seconds
        each = seconds / self.units
        if self.fewer < self.units:  # a fixed cost is in both runs, so the difference is without it
            each = min(
                each, max(0.05 * each, (seconds - fewer_seconds) / (self.units - self.fewer))
            )
        return max(0.0, seconds + (units - self.units) * each)


def measure(
    runs: Mapping[str, Run],
    units: int,
    seconds: float,
    *,
    before: Mapping[str, Run] = MappingProxyType({}),
) -> dict[str, Timing]:
    """Return the timing of each kind of run, from samples of about ``seconds`` each.

    A sample has at most ``units`` units. The kinds take turns, so that other work of the machine
    slows all of them alike. The functions in ``before`` are called before a run and are not timed.
    """
    firsts = {name: _timed(run, 1) for name, run in runs.items()}
    most = _size(next(iter(runs.values())), units, seconds)
    fewer = max(1, most // 4)
    samples: dict[tuple[str, int], list[Spent]] = {}
    for _ in range(REPEATS):
        for name, run in runs.items():
            for size in sorted({1, fewer, most} if most < units else {1, most}):
                if name in before:
                    before[name](size)
                samples.setdefault((name, size), []).append(_timed(run, size))
    return {name: _timing(name, samples, firsts[name], (fewer, most)) for name in runs}


def _timing(
    name: str, samples: Mapping[tuple[str, int], list[Spent]], first: Spent, sizes: tuple[int, int]
) -> Timing:
    """Return the timing of a kind of run from samples of one unit, of fewer units and of most."""
    fewer, most = sizes
    (few, many), one = (samples.get((name, size), [Spent()]) for size in sizes), samples[name, 1]
    return Timing(
        units=most,
        seconds=min(sample.seconds for sample in many),
        processor=min(sample.processor for sample in many),
        fewer=fewer,
        fewer_seconds=min(sample.seconds for sample in few),
        fewer_processor=min(sample.processor for sample in few),
        first=min(LOADING, max(0.0, first.seconds - min(sample.seconds for sample in one))),
        slowdown=sum(sample.passed for sample in many) / sum(sample.seconds for sample in many),
    )


def repeated(run: Callable[[], object]) -> float:
    """Return the seconds of a run: the least of some repeats, after one that is not counted."""
    run()
    return min(_timed(lambda _: run(), 1).seconds for _ in range(REPEATS))


def on_cores(cores: float, one: float, here: tuple[int, float, float]) -> float:
    """Return the seconds of work on ``cores`` cores by Amdahl's law.

    The serial share is measured: while one thread does serial work, the others idle.

    Parameters
    ----------
    one : seconds on one core
    here : the cores of this machine, the seconds on them, and the seconds of the processor
    """
    count, seconds, processor = here
    if cores == 1 or count == 1:
        return one / cores
    if cores == count:
        return seconds
    idle = count * seconds - processor
    serial = min(seconds, max(0.0, idle / (count - 1)))
    return serial + (count * (seconds - serial)) / cores


def _size(run: Run, units: int, seconds: float) -> int:
    """Return the number of units, up to ``units``, that take about ``seconds`` more than one."""
    one, size = _timed(run, 1).seconds, 1
    while size < units:
        size = min(units, 4 * size)
        if _timed(run, size).seconds - one >= seconds / 2:
            break
    return size


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

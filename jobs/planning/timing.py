"""The time of work, extrapolated from samples: medians of interleaved runs of two sizes."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

Run = Callable[[int], object]
REPEATS = 3
LOADING = 1.0  # the most seconds for loading jitted functions; compiling them takes longer


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Two measured times, in seconds: of ``units`` of work, and of ``fewer`` units.

    ``first`` is the extra time of the very first unit, such as loading.
    """

    units: int
    seconds: float
    fewer: int
    fewer_seconds: float
    first: float

    def of(self, units: int) -> float:
        """Return the seconds of a number of units, without the extra time of the first."""
        if units == self.units:
            return self.seconds
        each = self.seconds / self.units
        if self.fewer < self.units:  # a fixed cost is in both runs, so the difference is without it
            each = min(
                each,
                max(0.05 * each, (self.seconds - self.fewer_seconds) / (self.units - self.fewer)),
            )
        return max(0.0, self.seconds + (units - self.units) * each)


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
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(REPEATS):
        for name, run in runs.items():
            for size in sorted({1, fewer, most} if most < units else {1, most}):
                if name in before:
                    before[name](size)
                times.setdefault((name, size), []).append(_timed(run, size))
    medians = {key: median(values) for key, values in times.items()}
    return {
        name: Timing(
            units=most,
            seconds=medians[name, most],
            fewer=fewer,
            fewer_seconds=medians.get((name, fewer), 0.0),
            first=min(LOADING, max(0.0, firsts[name] - medians[name, 1])),
        )
        for name in runs
    }


def repeated(run: Callable[[], object]) -> float:
    """Return the seconds of a run: the median of some repeats, after one that is not counted."""
    run()
    return median(_timed(lambda _: run(), 1) for _ in range(REPEATS))


def on_cores(cores: float, one: float, here: tuple[int, float]) -> float:
    """Return the seconds of work on ``cores`` cores by Amdahl's law.

    ``one`` is the seconds on one core; ``here`` is the number of cores of this machine and the
    seconds on them.
    """
    count, seconds = here
    if cores == count:
        return seconds
    serial = (
        0.0 if count == 1 else min(1.0, max(0.0, (seconds / one - 1 / count) / (1 - 1 / count)))
    )
    return one * (serial + (1 - serial) / cores)


def _size(run: Run, units: int, seconds: float) -> int:
    """Return the number of units, up to ``units``, that take about ``seconds`` more than one."""
    one, size = _timed(run, 1), 1
    while size < units:
        size = min(units, 4 * size)
        if _timed(run, size) - one >= seconds / 2:
            break
    return size


def _timed(run: Run, units: int) -> float:
    began = time.perf_counter()
    run(units)
    return time.perf_counter() - began

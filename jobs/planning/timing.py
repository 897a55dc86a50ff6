"""How long work takes, from samples of it: medians of interleaved runs in two sizes, and what they say of others."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType

Run = Callable[[int], object]
REPEATS = 3
LOADING = 1.0  # seconds that loading loops may take: where the first run took longer, it also compiled them


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What ``units`` of work took, and what fewer took; ``first`` is what the first unit took beyond the others."""

    units: int
    seconds: float
    fewer: int
    fewer_seconds: float
    first: float

    def of(self, units: int) -> float:
        """Return the seconds that so many units take, but for the first run's loading."""
        if units == self.units:
            return self.seconds
        each = self.seconds / self.units
        if self.fewer < self.units:  # what does not grow with the work, or grows slower, is in the smaller run too
            each = min(each, max(0.05 * each, (self.seconds - self.fewer_seconds) / (self.units - self.fewer)))
        return max(0.0, self.seconds + (units - self.units) * each)


def measure(
    runs: Mapping[str, Run], units: int, seconds: float, *, before: Mapping[str, Run] = MappingProxyType({})
) -> dict[str, Timing]:
    """Return the pace of each kind of run of up to ``units`` units of work; each is given about ``seconds`` a repeat.

    Kinds take turns, so that whatever else the machine does meets all of them alike. What is to be done ``before`` a
    run is not timed.
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
    found = {key: median(values) for key, values in times.items()}
    return {
        name: Timing(
            units=most,
            seconds=found[name, most],
            fewer=fewer,
            fewer_seconds=found.get((name, fewer), 0.0),
            first=min(LOADING, max(0.0, firsts[name] - found[name, 1])),
        )
        for name in runs
    }


def repeated(run: Callable[[], object]) -> float:
    """Return the seconds that a run takes, the median of some after one that is not counted."""
    run()
    return median(_timed(lambda _: run(), 1) for _ in range(REPEATS))


def on_cores(cores: float, one: float, here: tuple[int, float]) -> float:
    """Return the seconds of work on so many cores, from those on one, and on as many as are here (Amdahl's law)."""
    count, seconds = here
    if cores == count:
        return seconds
    serial = 0.0 if count == 1 else min(1.0, max(0.0, (seconds / one - 1 / count) / (1 - 1 / count)))
    return one * (serial + (1 - serial) / cores)


def _size(run: Run, units: int, seconds: float) -> int:
    """Return how many units take about so many seconds more than one does, or all if those take less."""
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

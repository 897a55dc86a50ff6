"""The clock of all benchmarks: tasks are timed in turn, so that a slow minute meets all of them."""

import statistics
import time
from collections.abc import Callable, Mapping

REPEATS = 5


def interleaved(
    tasks: Mapping[str, Callable[[], object]],
    repeats: int = REPEATS,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each task over ``repeats`` rounds, after one untimed round."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats + 1):
        for name, task in tasks.items():
            began = clock()
            task()
            times[name].append(clock() - began)
    return {name: statistics.median(values[1:]) for name, values in times.items()}

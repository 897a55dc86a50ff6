"""Connect to workers: threads of this process, other processes, or a cluster."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from dask.threaded import get
from threadpoolctl import threadpool_limits

from mercore.jobs.cluster.workers import Work, Workers
from mercore.jobs.resources.execution import Execution

GRAPH_TASKS = 1024  # a graph of Dask takes 2 kB per task: memory must not grow with the parts


@dataclass(frozen=True)
class ThreadsHere:
    """Threads of this process, which Dask's threaded scheduler keeps at work."""

    threads: int

    def run(
        self,
        work: Work,
        task: Callable[[Any, Any], int],
        items: Sequence[Any],
        advance: Callable[[int], None],
    ) -> None:
        """Call ``task(opened, item)`` for each item: see ``Workers``."""

        def finished(_key: object, result: int, *_rest: object) -> None:
            advance(result)

        with (
            threadpool_limits(1),
            ThreadPoolExecutor(self.threads) as pool,  # its end waits for tasks that have begun
        ):
            call = partial(task, work.open())
            for first in range(0, len(items), GRAPH_TASKS):
                some = items[first : first + GRAPH_TASKS]
                graph = {number: (partial(call, item),) for number, item in enumerate(some)}
                callbacks = [(None, None, None, finished, None)]  # the fourth follows a task
                get(graph, list(graph), pool=pool, callbacks=callbacks)


@contextmanager
def connect(execution: Execution) -> Iterator[Workers]:
    """Yield the workers that ``execution`` names.

    Raises
    ------
    ClusterError
        If a cluster cannot be reached, or has no worker.
    """
    if not execution.remote:
        yield ThreadsHere(execution.thread_count)
        return
    from mercore.jobs.cluster import client  # Dask's cluster takes a quarter of a second to load

    with client.connect(execution) as workers:
        yield workers

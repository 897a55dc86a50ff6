"""The contract of workers, and threads of this process as workers.

A worker opens an object once, and runs functions that take it. The object is an encoder of parts, a
builder of sorted orders, or a searcher; encoding, indexing and searching differ in these alone. The
engine of the workers finds them, checks their versions, and replaces lost ones.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from dask.threaded import get
from threadpoolctl import threadpool_limits

from mercore.jobs.resources.execution import Execution

GRAPH_TASKS = 1024  # a graph of Dask takes 2 kB per task: memory must not grow with the parts


@dataclass(frozen=True)
class Work:
    """Work on a store: ``store`` names it in messages, and ``open`` makes the object of a worker.

    ``open`` is sent to workers of other processes, so it holds paths and numbers alone.
    """

    store: str
    open: Callable[[], Any]


class Workers(Protocol):
    """Workers that are connected."""

    @property
    def threads(self) -> int:
        """Number of threads of all workers."""
        ...

    def run(
        self,
        work: Work,
        task: Callable[[Any, Any], int],
        items: Sequence[Any],
        advance: Callable[[int], None],
    ) -> None:
        """Call ``task(opened, item)`` for each item, and ``advance`` with each result.

        If a task fails, no other begins, and its error is raised. What tasks have written is kept.

        Raises
        ------
        ClusterError
            If the workers go away, or keep dying of one task.
        """
        ...


class Tasks(Protocol):
    """Workers in other processes that have opened their object; futures are the engine's own."""

    @property
    def slots(self) -> list[str]:
        """The address of a worker for each of its threads."""
        ...

    def submit(
        self, task: Callable[..., Any], *arguments: object, worker: str | None = None
    ) -> Any:  # noqa: ANN401
        """Return the future of ``task(opened, *arguments)``, if possible on the given worker.

        Arguments may be futures, or lists of them. If a worker dies, its tasks run on another.
        """
        ...

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Return the results of futures, or raise the error of one of them."""
        ...


class RemoteWorkers(Workers, Protocol):
    """Workers in other processes."""

    def opened(self, work: Work) -> AbstractContextManager[Tasks]:
        """Yield the workers with their object open, also on workers that join later."""
        ...


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

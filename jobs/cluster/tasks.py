"""Tasks on the workers of a Dask cluster: see ``Workers``."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast
from uuid import uuid4

from distributed import Client, Future, KilledWorker, Worker, WorkerPlugin, get_worker, wait
from threadpoolctl import threadpool_limits

from mercore.jobs.cluster.versions import check_installed, installed
from mercore.jobs.cluster.workers import Work
from mercore.stores.errors import ClusterError, MercoreError, NotFoundError

FORGET_SECONDS = 5
NO_WORKER_SECONDS = 60  # a cluster without any worker for longer is lost
POLL_SECONDS = 5
TASKS_PER_THREAD = 2  # at once: one runs while the next is sent
Value = TypeVar("Value")


class OpenedPlugin(WorkerPlugin):
    """The object of a worker: opened when the worker gets this plugin, or joins the cluster."""

    failed: MercoreError | None = None  # the error of opening, which the tasks raise

    def __init__(self, name: str, work: Work) -> None:
        self.name, self.work = name, work

    def setup(self, worker: Worker) -> None:
        """Open the object; limit BLAS to one thread, as the worker's own threads use all cores."""
        self.limits = threadpool_limits(1)
        try:
            self.opened = self.work.open()
        except MercoreError as error:
            self.failed = error

    def teardown(self, worker: Worker) -> None:
        """Restore the threads of BLAS."""
        self.limits.restore_original_limits()


def _call(
    plugin_name: str, expected: str | None, task: Callable[..., Any], *arguments: object
) -> Any:  # noqa: ANN401
    """Run a task on a worker; if the command expects a version, an error names the worker."""
    plugin = cast("OpenedPlugin", get_worker().plugins[plugin_name])
    try:
        if expected is not None:
            check_installed(expected)
        if plugin.failed is not None:
            raise plugin.failed
        return task(plugin.opened, *arguments)
    except MercoreError as error:
        if expected is None:
            raise
        lost = isinstance(error, NotFoundError)
        seen = ", which must find files at the paths that this machine has" if lost else ""
        raise type(error)(f"worker {get_worker().address}{seen}: {error.message}") from error


class DaskWorkers:
    """The workers of a Dask cluster: see ``RemoteWorkers``."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def threads(self) -> int:
        """Number of threads of all workers."""
        return sum(self.client.nthreads().values())

    @contextmanager
    def opened(self, work: Work) -> Iterator["DaskTasks"]:
        """Yield the workers with their object open; they forget it whatever happens.

        Raises
        ------
        ClusterError
            If the cluster goes away, or workers keep dying of one task.
        """
        name = f"mercore {uuid4().hex}"
        try:
            self.client.register_plugin(OpenedPlugin(name, work))
            yield DaskTasks(self.client, name)
        except (KilledWorker, CancelledError, OSError) as error:  # OSError: a closed connection
            raise ClusterError(
                f"the cluster lost a part of {work.store}: {type(error).__name__}, expected its "
                "workers to stay. Fix: repair the cluster, then run the same command again: "
                "finished parts are kept."
            ) from error
        finally:
            self._forget(name)

    def run(
        self,
        work: Work,
        task: Callable[[Any, Any], int],
        items: Sequence[Any],
        advance: Callable[[int], None],
    ) -> None:
        """Call ``task(opened, item)`` for each item, in a sliding window: see ``Workers``."""
        done, running, rest = SimpleQueue["Future[int]"](), set["Future[int]"](), iter(items)

        def submit_some(count: int) -> None:
            for item in islice(rest, count):
                future = tasks.submit(task, item)
                future.add_done_callback(done.put)
                running.add(future)

        with self.opened(work) as tasks:
            submit_some(max(1, self.threads) * TASKS_PER_THREAD)
            while running:
                finished = _watched(self.client, lambda: [done.get(timeout=POLL_SECONDS)])
                with suppress(Empty):
                    while True:  # all that are there: no other future is looked at
                        finished.append(done.get_nowait())
                running.difference_update(finished)
                submit_some(len(finished))
                advance(sum(tasks.results(finished)))

    def _forget(self, plugin_name: str) -> None:
        """Remove a plugin from the workers; give up if one does not answer soon."""
        if self.client.status == "running":
            assert self.client.scheduler is not None
            with suppress(TimeoutError, OSError, ValueError):  # ValueError: it was never there
                self.client.sync(
                    self.client.scheduler.unregister_worker_plugin,
                    name=plugin_name,
                    callback_timeout=FORGET_SECONDS,
                )


class DaskTasks:
    """Tasks on workers that have a plugin: see ``Tasks``."""

    def __init__(self, client: Client, plugin_name: str) -> None:
        self.client, self.plugin_name = client, plugin_name
        # workers of another cluster than this command's are checked, and named in errors
        self.expected = installed() if client.cluster is None else None

    @property
    def slots(self) -> list[str]:
        """The address of a worker for each of its threads; a first worker is waited for."""

        def found() -> list[str]:
            self.client.wait_for_workers(1, timeout=POLL_SECONDS)
            workers = sorted(self.client.nthreads().items())
            return [address for address, threads in workers for _ in range(threads)]

        return _watched(self.client, found)

    def submit(
        self, task: Callable[..., Any], *arguments: object, worker: str | None = None
    ) -> "Future[Any]":
        """Return the future of ``task(opened, *arguments)``, if possible on the given worker."""
        where: dict[str, Any] = (
            {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        )
        key = f"{task.__name__}-{uuid4().hex}"
        call = _call, self.plugin_name, self.expected, task
        return self.client.submit(*call, *arguments, key=key, **where)

    def results(self, futures: Sequence["Future[Any]"]) -> list[Any]:
        """Return the results of tasks, or raise the error of one of them.

        Raises
        ------
        ClusterError
            If the cluster has no worker for a minute.
        """

        def gathered() -> list[Any]:
            wait(futures, timeout=POLL_SECONDS)
            # a result is lost with its worker, until its task has run again
            values: list[Any] = self.client.sync(
                lambda: self.client.gather(list(futures), asynchronous=True),
                callback_timeout=NO_WORKER_SECONDS,
            )
            return values

        return _watched(self.client, gathered)


def _watched(client: Client, wait_once: Callable[[], Value]) -> Value:
    """Return the value of a wait, which is repeated after each timeout while workers are there.

    Raises
    ------
    ClusterError
        If the cluster has no worker for a minute.
    """
    lost_at: float | None = None
    while True:
        with suppress(TimeoutError, Empty):
            return wait_once()
        now = time.monotonic()
        lost_at = None if client.nthreads() else lost_at or now
        if lost_at is not None and now - lost_at >= NO_WORKER_SECONDS:
            raise ClusterError(
                f"the cluster has lost its workers: found none for {NO_WORKER_SECONDS} s, "
                "expected at least one. "
                "Fix: start workers, then run the same command again: finished parts are kept."
            )

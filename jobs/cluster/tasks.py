"""Tasks on Dask workers: one future per task, in a sliding window."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from uuid import uuid4

from distributed import Client, Future, Worker, WorkerPlugin, get_worker

from mercore.jobs.cluster.client import (
    POLL_SECONDS,
    WorkerWatch,
    forget_plugin,
    losing,
    results,
    slots,
)
from mercore.jobs.cluster.versions import check_installed, installed
from mercore.stores.errors import MercoreError, NotFoundError

FUTURES_PER_THREAD = 2


class NamedPlugin(WorkerPlugin):
    """A plugin that is removed by its name; its tasks raise the error of ``open``, if any."""

    name: str
    failed: MercoreError | None = None

    def setup(self, worker: Worker) -> None:
        """Open what the tasks need."""
        try:
            self.open()
        except MercoreError as error:
            self.failed = error

    def open(self) -> None:
        """Open what the tasks need."""
        raise NotImplementedError


Plugin = TypeVar("Plugin", bound=NamedPlugin)


def plugin_here(kind: type[Plugin], name: str) -> Plugin:
    """Return a plugin of the worker that runs this task."""
    plugin = get_worker().plugins[name]
    assert isinstance(plugin, kind)
    if plugin.failed is not None:
        raise plugin.failed
    return plugin


def submit(
    client: Client, function: Callable[..., Any], *arguments: object, **where: object
) -> "Future[Any]":
    """Submit a call; workers of another cluster than this command's are checked, and named."""
    expected = installed() if client.cluster is None else None
    key = f"{function.__name__}-{uuid4().hex}"
    return client.submit(_call, expected, function, *arguments, key=key, **where)


def _call(expected: str | None, function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
    """Call a function on a worker; if the command expects a version, an error names the worker."""
    if expected is None:
        return function(*arguments)
    try:
        check_installed(expected)
        return function(*arguments)
    except MercoreError as error:
        lost = isinstance(error, NotFoundError)
        seen = ", which must find files at the paths that this machine has" if lost else ""
        raise type(error)(f"worker {get_worker().address}{seen}: {error}") from error


@contextmanager
def registered(client: Client, plugin: NamedPlugin) -> Iterator[None]:
    """Give all workers a plugin for the ``with`` block; it is removed whatever happens there."""
    try:
        client.register_plugin(plugin)
        yield
    finally:
        forget_plugin(client, plugin.name)


def run_tasks(
    client: Client,
    store: str,
    plugin: NamedPlugin,
    tasks: tuple[Callable[..., int], Iterator[tuple[Any, ...]]],
    advance: Callable[[int], None],
) -> None:
    """Run a function with each of some arguments on the workers, which all have the plugin.

    If a worker dies, its task runs on another. If a task fails, its error is raised, and what other
    tasks have written is kept.

    Parameters
    ----------
    store : what the tasks write, for messages
    tasks : the function, and the arguments of its calls
    advance : is called with the result of each task

    Raises
    ------
    ClusterError
        If the cluster goes away, has no worker for a minute, or workers keep dying of one task.
    """
    function, arguments = tasks
    done, flow = SimpleQueue["Future[int]"](), set["Future[int]"]()

    def submit_some(count: int) -> None:
        for each in islice(arguments, count):
            future = submit(client, function, *each)
            future.add_done_callback(done.put)
            flow.add(future)

    with losing(store), registered(client, plugin):
        submit_some(max(1, len(slots(client))) * FUTURES_PER_THREAD)
        while flow:
            finished = _finished(done, client)
            flow.difference_update(finished)
            submit_some(len(finished))
            advance(sum(results(finished, client)))


def _finished(done: SimpleQueue["Future[int]"], client: Client) -> list["Future[int]"]:
    """Wait for futures in a queue; return all that are there: no other future is looked at."""
    watch = WorkerWatch(client)
    while True:
        try:
            finished = [done.get(timeout=POLL_SECONDS)]
        except Empty:
            watch.check()
        else:
            with suppress(Empty):
                while True:
                    finished.append(done.get_nowait())
            return finished

"""Tasks on Dask workers: one future per task, in a sliding window."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future, WorkerPlugin

from mercore.jobs.cluster.client import (
    POLL_SECONDS,
    WorkerWatch,
    forget_plugin,
    losing,
    results,
    slots,
)

FUTURES_PER_THREAD = 2


class NamedPlugin(WorkerPlugin):
    """A plugin with a name, by which it is removed again."""

    name: str


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

    def submit(count: int) -> None:
        for each in islice(arguments, count):
            future = client.submit(function, *each, pure=False)
            future.add_done_callback(done.put)
            flow.add(future)

    with losing(store):
        client.register_plugin(plugin)
        submit(max(1, len(slots(client))) * FUTURES_PER_THREAD)
        while flow:
            finished = _finished(done, client)
            flow.difference_update(finished)
            submit(len(finished))
            advance(sum(results(finished, client)))
    forget_plugin(client, plugin.name)


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

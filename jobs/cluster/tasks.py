"""Tasks on Dask workers: one future per task, in a sliding window."""

from collections.abc import Callable, Iterable
from typing import Any

from distributed import Client, Future, WorkerPlugin

from mercore.jobs.cluster.client import forget_plugin, losing, results, slots, wait_for

FUTURES_PER_THREAD = 2


class NamedPlugin(WorkerPlugin):
    """A plugin with a name, by which it is removed again."""

    name: str


def run_tasks(
    client: Client,
    store: str,
    plugin: NamedPlugin,
    tasks: tuple[Callable[..., int], Iterable[tuple[Any, ...]]],
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
    waiting = iter(arguments)

    def submit(count: int) -> set["Future[int]"]:
        window = [each for _, each in zip(range(count), waiting, strict=False)]
        return {client.submit(function, *each, pure=False) for each in window}

    with losing(store):
        client.register_plugin(plugin)
        flow = submit(max(1, len(slots(client))) * FUTURES_PER_THREAD)
        while flow:
            wait_for(list(flow), client, first=True)
            done = {future for future in flow if future.done()}
            flow = (flow - done) | submit(len(done))
            advance(sum(results(list(done), client)))
    forget_plugin(client, plugin.name)

"""The contract of workers.

A worker opens an object once, and runs functions that take it. The object is an encoder of parts, a
builder of sorted orders, or a searcher; encoding, indexing and searching differ in these alone. The
engine of the workers finds them, checks their versions, and replaces lost ones.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


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

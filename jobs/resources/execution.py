"""Execution of work: on threads of this process, on processes, or on an existing Dask cluster."""

import os
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from mercore.jobs.options import check_whole, refuse_unused
from mercore.pipeline.encoders.encoder import check_range
from mercore.stores.location.resolve import location_of
from mercore.stores.selection import Selection
from mercore.stores.wording import option

MOST_WORKERS = 4096  # threads or processes


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, kw_only=True)
class Execution:
    """The place where work runs, and the limit of its ``memory`` in bytes.

    ``threads`` None means one per core. Processes and workers of a cluster have one thread each.
    ``threads_option`` is the name of the option for the number of threads.
    """

    threads: int | None = None
    processes: int | None = None
    scheduler: str | None = None
    memory: int | None = None
    threads_option: str = "threads"

    def check(self) -> None:
        """Refuse options that contradict each other or are out of range.

        Raises
        ------
        InputError
            If there are such options.
        """
        threads = self.threads_option
        given: dict[str, Any] = {threads: self.threads, "processes": self.processes}
        check_whole(**given, memory=self.memory)
        if self.scheduler is not None:
            refuse_unused("an existing cluster has its own workers", **given)
        elif self.processes is not None:
            refuse_unused(
                f"{option('processes')} is the number of workers, and each has one thread",
                **{threads: self.threads},
            )
            check_range(
                "processes", self.processes, (1, MOST_WORKERS), f"leave {option('processes')} out."
            )
        elif self.threads is not None:
            check_range(threads, self.threads, (1, MOST_WORKERS), f"leave {option(threads)} out.")

    @property
    def remote(self) -> bool:
        """Whether the work runs outside this process."""
        return self.processes is not None or self.scheduler is not None

    @property
    def thread_count(self) -> int:
        """Number of threads per process."""
        if self.remote:
            return 1
        return available_cores() if self.threads is None else int(self.threads)

    @property
    def or_fewer(self) -> str:
        """The end of a ``Fix:`` for work that takes too much memory."""
        if self.scheduler is not None:
            return ""
        fewer = "processes" if self.processes is not None else self.threads_option
        return f", or fewer {option(fewer)}"


@dataclass(frozen=True, kw_only=True)
class WorkerPaths:
    """The stores that each worker opens by path, and the kernel by its spec and custom file.

    ``linear_map`` is the file of the linear map of vectors; codes and indexes hold their own.
    ``selection`` says which of their rows take part, None for all.
    """

    kernel: dict[str, Any]
    codes: str | None = None
    index: str | None = None
    vectors: str | None = None
    custom: str | None = None
    linear_map: str | None = None
    selection: Selection | None = None

    def resolved(self) -> "WorkerPaths":
        """Return the stores with paths that are valid in any folder."""
        paths = ("codes", "index", "vectors", "custom", "linear_map")
        given: dict[str, str | None] = {name: getattr(self, name) for name in paths}
        whole: dict[str, Any] = {name: path and resolved(path) for name, path in given.items()}
        return replace(self, **whole)


class SearchSize(NamedTuple):
    """The size of a search: queries, queries per batch, bytes of cached codes, parts per window."""

    queries: int
    batch: int
    cache_bytes: int = 0
    window: int | None = None


def resolved(path: str) -> str:
    """Return a path that is valid in any folder."""
    return str(location_of(path).resolved())

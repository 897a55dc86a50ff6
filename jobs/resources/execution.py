"""Where work is done: on threads of this process, on processes of this machine, or on a cluster that exists."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from mercore.jobs.custom_kernel import names_file
from mercore.jobs.options import available_cores
from mercore.jobs.verbs.inputs import refuse
from mercore.pipeline.encoders.encoder import check_range
from mercore.pipeline.search.executor import Executor
from mercore.stores.location.resolve import location_of

MOST_AT_WORK = 4096  # threads or processes


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where work is done, and in how much ``memory``; a worker elsewhere counts as one of one thread."""

    threads: int = 1
    processes: int | None = None
    scheduler: str | None = None
    memory: int | None = None
    counted: str = "threads"  # the option that says how many work

    @property
    def remote(self) -> bool:
        """Whether it is not done on threads of this process."""
        return self.processes is not None or self.scheduler is not None

    @property
    def or_fewer(self) -> str:
        """What else would take less memory than it is told, as a mend says it."""
        return "" if self.scheduler is not None else f", or fewer --{self.counted}"


@dataclass(frozen=True, kw_only=True)
class Stores:
    """What each worker opens itself: codes and vectors by their paths, a kernel by its spec and the user's file."""

    kernel: dict[str, Any]
    codes: str | None = None
    vectors: str | None = None
    custom: str | None = None

    def resolved(self) -> "Stores":
        """Return the paths as workers in other folders find them."""
        codes, vectors, custom = (resolved(path) if path else None for path in (self.codes, self.vectors, self.custom))
        return Stores(kernel=self.kernel, codes=codes, vectors=vectors, custom=custom)


def execution_of(options: Mapping[str, Any], threads: str = "threads") -> Execution:
    """Return where the options say that work is done; ``threads`` is the option that counts them, None for the cores.

    Raises
    ------
    InputError
        If they say two things.
    """
    scheduler, processes, memory = (options.get(name) for name in ("scheduler", "processes", "memory"))
    if scheduler is not None:
        refuse(options, (threads, "processes"), "a cluster that exists has its own workers")
        return Execution(scheduler=scheduler, memory=memory)
    if processes is not None:
        refuse(options, (threads,), "--processes says how many work, each on one thread")
        check_range("processes", processes, (1, MOST_AT_WORK), "leave --processes out.")
        return Execution(processes=processes, memory=memory, counted="processes")
    given = options.get(threads, 1)
    if given is not None:
        check_range(threads, given, (1, MOST_AT_WORK), f"leave --{threads} out.")
    return Execution(threads=available_cores() if given is None else given, memory=memory, counted=threads)


def custom_kernel_file(options: Mapping[str, Any]) -> str | None:
    """Return the file of a user's own kernel, if the options name one."""
    name = options.get("kernel")
    return name if name and names_file(name) else None


def resolved(path: str) -> str:
    """Return a path as a process in another folder finds it."""
    return str(location_of(path).resolved())


class Load(NamedTuple):
    """What is to be searched for: queries in all, and a batch; bytes of codes to hold from batch to batch; a window."""

    queries: int
    batch: int
    room: int = 0
    window: int | None = None  # parts whose bounds are compared at once, where memory is short


@contextmanager
def executor_for(execution: Execution, stores: Stores, load: Load) -> Iterator[Executor | None]:
    """Yield who works on the parts of stores, or None where that is threads of this process.

    Processes share the room of the load; each worker elsewhere has it.
    """
    if not execution.remote:
        yield None
        return
    from mercore.jobs.cluster.client import connect
    from mercore.jobs.cluster.search_parts import searching

    load = load._replace(room=load.room // (execution.processes or 1))
    with connect(execution) as client, searching(client, stores, load) as executor:
        yield executor

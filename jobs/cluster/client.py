"""Dask clusters: threads of this process, processes of this machine, or one that exists; and what it is to lose one."""

import gc
import logging
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click
import dask
from distributed import Client, Future, KilledWorker, Nanny, Scheduler, Security, SpecCluster, Worker, wait
from distributed.gc import disable_gc_diagnosis

from mercore.jobs.resources.execution import Execution
from mercore.jobs.resources.malloc import KEPT
from mercore.stores.errors import ClusterError

CONNECT_SECONDS = 10
FORGET_SECONDS = 5
ALONE_SECONDS, LOOK_SECONDS = 60, 5  # a cluster may be without any worker so long, and is looked at so often
LOOPBACK = "127.0.0.1"
Value = TypeVar("Value")
SLOW_DISK = "Creating scratch directories is taking"  # a second, on a busy machine: nothing that a user could mend
LOGGERS = (  # those that Dask sets the levels of, one by one, and asyncio's, which speaks of what Dask left behind
    *("distributed", "distributed.client", "distributed.gc", "distributed.scheduler", "distributed.worker"),
    *("tornado.application", "asyncio"),
)
SETTINGS = {
    "distributed.admin.large-graph-warning-threshold": "64GiB",  # a task is told a batch of queries: no reason to warn
    # Dask's own has a process give every block that it frees back to the system, and fault it in again for the next.
    "distributed.nanny.pre-spawn-environ": {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 1),
        **{name: size for name, (_, size) in KEPT.items()},
        "PYTHONWARNINGS": ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), f"ignore:{SLOW_DISK}"))),
    },
    "distributed.worker.profile.enabled": False,
}


@contextmanager
def connect(execution: Execution) -> Iterator[Client]:
    """Yield a Dask client of the workers at a workplace.

    Raises
    ------
    ClusterError
        If the cluster cannot be reached, or has no worker.
    """
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # a part's error is raised and told once, here
    warnings.filterwarnings("ignore", SLOW_DISK)
    with dask.config.set(SETTINGS), ExitStack() as stack:
        with _no_collection():
            client = stack.enter_context(_client(execution))
            disable_gc_diagnosis(force=True)
        yield client


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage: Dask's servers report that from within, where Python drops what a Ctrl-C raises."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def slots(client: Client) -> list[str]:
    """Return the address of each worker's each thread."""
    return [address for address, threads in sorted(client.nthreads().items()) for _ in range(threads)]


def wait_for(futures: Sequence["Future[Any]"], client: Client, *, first: bool = False) -> None:
    """Wait until all futures, or the first of them, are done.

    Raises
    ------
    ClusterError
        If the cluster is without any worker for a minute.
    """
    alone: float | None = None
    while True:
        try:
            wait(futures, timeout=LOOK_SECONDS, return_when="FIRST_COMPLETED" if first else "ALL_COMPLETED")
        except TimeoutError:
            now = time.monotonic()
            alone = None if client.nthreads() else alone or now
            if alone is not None and now - alone >= ALONE_SECONDS:
                raise ClusterError(
                    f"the cluster has lost its workers: found none for {ALONE_SECONDS} s, expected at least one. "
                    "Fix: start workers, then run the same command again: what is done stays done."
                ) from None
        else:
            return


def results(futures: Sequence["Future[Value]"], client: Client) -> list[Value]:
    """Return what tasks give, or raise what one of them raised.

    Raises
    ------
    ClusterError
        If the cluster is without any worker for a minute.
    """
    while True:
        wait_for(futures, client)
        with suppress(TimeoutError):  # what was done is lost with its worker, until it is done again
            found: list[Value] = client.sync(
                lambda: client.gather(list(futures), asynchronous=True), callback_timeout=ALONE_SECONDS
            )
            return found


def forget_plugin(client: Client, name: str) -> None:
    """Have the workers forget a plugin, unless one does not answer soon: no other job uses that name."""
    if client.status == "running":
        assert client.scheduler is not None
        with suppress(TimeoutError, OSError):
            client.sync(client.scheduler.unregister_worker_plugin, name=name, callback_timeout=FORGET_SECONDS)


@contextmanager
def losing(what: str) -> Iterator[None]:
    """Say in one paragraph that the cluster is lost, whatever Dask raises then.

    Raises
    ------
    ClusterError
        If the cluster goes away, or workers keep dying of one part.
    """
    try:
        yield
    except (KilledWorker, CancelledError, OSError) as error:  # OSError: the scheduler closed the connection
        raise ClusterError(
            f"the cluster lost a part of {what}: {type(error).__name__}, expected its workers to stay. "
            "Fix: see to the cluster, then run the same command again: what is done stays done."
        ) from error


class SilentScheduler(Scheduler):
    """A scheduler that serves no pages: Dask's own listens on every interface, even where no dashboard is wanted."""

    def start_http_server(self, *args: object, **options: object) -> None:
        """Open no port."""


class SilentWorker(Worker):
    """A worker that serves no pages."""

    def start_http_server(self, *args: object, **options: object) -> None:
        """Open no port."""


@contextmanager
def _client(execution: Execution) -> Iterator[Client]:
    """Yield a client of the workers at a workplace."""
    if execution.scheduler is not None:
        with _cluster_at(execution.scheduler) as client:
            yield client
        return
    cluster = (
        _threads_here(execution.thread_count) if execution.processes is None else _processes_here(execution.processes)
    )
    with cluster, Client(cluster, direct_to_workers=True) as client:
        yield client


def _threads_here(threads: int) -> SpecCluster:
    """Return a cluster of threads, which talks within the process and opens no port."""
    worker = {"nthreads": threads, "memory_limit": 0}  # the plan bounds the memory; pausing half-way would only stall
    return SpecCluster(
        scheduler={"cls": SilentScheduler, "options": {"protocol": "inproc://", "port": 0}},
        workers={0: {"cls": SilentWorker, "options": {"protocol": "inproc://", **worker}}},
        silence_logs=logging.CRITICAL,
    )


def _processes_here(count: int) -> SpecCluster:
    """Return a cluster of processes of one thread, which talk over loopback.

    Whoever can talk to a Dask worker can run anything as its user: so they talk to nobody but each other, by TLS with
    a key that lies in their memory alone.
    """
    security = Security.temporary()
    talk = {"protocol": "tls://", "host": LOOPBACK, "security": security}
    worker = {"worker_class": SilentWorker, "nthreads": 1, "memory_limit": 0, "silence_logs": logging.CRITICAL}
    return SpecCluster(
        scheduler={"cls": SilentScheduler, "options": {"port": 0, **talk}},
        workers={number: {"cls": Nanny, "options": {**worker, **talk}} for number in range(count)},
        security=security,
        silence_logs=logging.CRITICAL,
    )


@contextmanager
def _cluster_at(address: str) -> Iterator[Client]:
    """Yield a client of a cluster that runs already; Dask's own configuration says by which certificates."""
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without certificates
        raise ClusterError(
            f"no Dask scheduler answers at {address}: {_first_line(error)}. Fix: dask scheduler --host 127.0.0.1"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            raise ClusterError(
                f"the cluster at {address} has no worker: expected at least one. Fix: dask worker {address}"
            ) from error
        _tell_dashboard(client)
        yield client


def _tell_dashboard(client: Client) -> None:
    """Say where the dashboard is, if there is one: a scheduler without serves other pages at the port that it names."""
    info = client.scheduler_info()
    port, host = info["services"].get("dashboard"), urlsplit(str(info["address"])).hostname
    if port is None or host is None:
        return
    with suppress(OSError, HTTPException):  # what cannot be looked at from here is of no use
        pages = HTTPConnection(host, port, timeout=LOOK_SECONDS)
        pages.request("HEAD", "/status")
        if pages.getresponse().status != HTTPStatus.NOT_FOUND:
            click.echo(f"dashboard: {client.dashboard_link}", err=True)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without its full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")

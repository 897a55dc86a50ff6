"""Connect to Dask: threads of this process, processes of this machine, or a running cluster."""

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
from distributed import (
    Client,
    Future,
    KilledWorker,
    Nanny,
    Scheduler,
    Security,
    SpecCluster,
    Worker,
    wait,
)
from distributed.gc import disable_gc_diagnosis

from mercore.jobs.cluster.versions import check_workers
from mercore.jobs.resources.execution import Execution
from mercore.jobs.resources.malloc import KEPT
from mercore.stores.errors import ClusterError

CONNECT_SECONDS = 10
FORGET_SECONDS = 5
NO_WORKER_SECONDS = 60  # a cluster without any worker for longer is lost
POLL_SECONDS = 5
LOOPBACK = "127.0.0.1"
Value = TypeVar("Value")
# a warning of Dask on a busy machine: a user cannot act on it
SLOW_DISK = "Creating scratch directories is taking"
# the loggers whose levels Dask sets one by one, and that of asyncio for what Dask leaves behind
LOGGERS = (
    *(
        "distributed",
        "distributed.client",
        "distributed.gc",
        "distributed.scheduler",
        "distributed.worker",
    ),
    *("tornado.application", "asyncio"),
)
SETTINGS = {
    # no warning: a task may carry a batch of queries
    "distributed.admin.large-graph-warning-threshold": "64GiB",
    # Dask's default returns every freed block to the system, which is slow.
    "distributed.nanny.pre-spawn-environ": {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 1),
        **{name: size for name, (_, size) in KEPT.items()},
        "PYTHONWARNINGS": ",".join(
            filter(None, (os.environ.get("PYTHONWARNINGS"), f"ignore:{SLOW_DISK}"))
        ),
    },
    "distributed.worker.profile.enabled": False,
}


@contextmanager
def connect(execution: Execution) -> Iterator[Client]:
    """Yield a Dask client of the workers that ``execution`` names.

    Raises
    ------
    ClusterError
        If the cluster cannot be reached, or has no worker.
    """
    for name in LOGGERS:
        # the error of a part is raised, and printed once by this process
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", SLOW_DISK)
    with dask.config.set(SETTINGS), ExitStack() as stack:
        with _no_collection():
            client = stack.enter_context(_client(execution))
            disable_gc_diagnosis(force=True)
        yield client


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage: Dask's callback for collections would swallow a KeyboardInterrupt."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def slots(client: Client) -> list[str]:
    """Return the address of a worker for each of its threads."""
    return [
        address for address, threads in sorted(client.nthreads().items()) for _ in range(threads)
    ]


def wait_for(futures: Sequence["Future[Any]"], client: Client) -> None:
    """Wait until all futures are done.

    Raises
    ------
    ClusterError
        If the cluster has no worker for a minute.
    """
    watch = WorkerWatch(client)
    while True:
        try:
            wait(futures, timeout=POLL_SECONDS)
        except TimeoutError:
            watch.check()
        else:
            return


class WorkerWatch:
    """A watch over the workers of a cluster, while their results are waited for."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._lost_at: float | None = None

    def check(self) -> None:
        """Raise ``ClusterError`` if all checks of the last minute found no worker."""
        now = time.monotonic()
        self._lost_at = None if self.client.nthreads() else self._lost_at or now
        if self._lost_at is not None and now - self._lost_at >= NO_WORKER_SECONDS:
            raise ClusterError(
                f"the cluster has lost its workers: found none for {NO_WORKER_SECONDS} s, "
                "expected at least one. "
                "Fix: start workers, then run the same command again: finished parts are kept."
            )


def results(futures: Sequence["Future[Value]"], client: Client) -> list[Value]:
    """Return the results of tasks, or raise the error of one of them.

    Raises
    ------
    ClusterError
        If the cluster has no worker for a minute.
    """
    while True:
        wait_for(futures, client)
        # a result is lost with its worker, until its task has run again
        with suppress(TimeoutError):
            values: list[Value] = client.sync(
                lambda: client.gather(list(futures), asynchronous=True),
                callback_timeout=NO_WORKER_SECONDS,
            )
            return values


def forget_plugin(client: Client, name: str) -> None:
    """Remove a plugin from the workers; give up if one does not answer soon."""
    if client.status == "running":
        assert client.scheduler is not None
        with suppress(TimeoutError, OSError, ValueError):  # ValueError: it was never there
            client.sync(
                client.scheduler.unregister_worker_plugin,
                name=name,
                callback_timeout=FORGET_SECONDS,
            )


@contextmanager
def losing(store: str) -> Iterator[None]:
    """Turn the errors that Dask raises when a cluster is lost into one ``ClusterError``.

    Raises
    ------
    ClusterError
        If the cluster goes away, or workers keep dying of one part.
    """
    try:
        yield
    except (KilledWorker, CancelledError, OSError) as error:  # OSError: a closed connection
        raise ClusterError(
            f"the cluster lost a part of {store}: {type(error).__name__}, expected its workers "
            "to stay. "
            "Fix: repair the cluster, then run the same command again: finished parts are kept."
        ) from error


class SilentScheduler(Scheduler):
    """A scheduler that serves no pages; Dask's own listens on every interface."""

    def start_http_server(self, *args: object, **keywords: object) -> None:
        """Open no port."""


class SilentWorker(Worker):
    """A worker that serves no pages."""

    def start_http_server(self, *args: object, **keywords: object) -> None:
        """Open no port."""


@contextmanager
def _client(execution: Execution) -> Iterator[Client]:
    """Yield a client of the workers that ``execution`` names."""
    if execution.scheduler is not None:
        with _cluster_at(execution.scheduler) as client:
            yield client
        return
    cluster = (
        _threads_here(execution.thread_count)
        if execution.processes is None
        else _processes_here(execution.processes)
    )
    with cluster, Client(cluster, direct_to_workers=True) as client:
        yield client


def _threads_here(threads: int) -> SpecCluster:
    """Return a cluster of threads of this process, which opens no port."""
    # memory is limited before the start; a paused worker would stall
    worker = {"nthreads": threads, "memory_limit": 0}
    return SpecCluster(
        scheduler={"cls": SilentScheduler, "options": {"protocol": "inproc://", "port": 0}},
        workers={0: {"cls": SilentWorker, "options": {"protocol": "inproc://", **worker}}},
        silence_logs=logging.CRITICAL,
    )


def _processes_here(count: int) -> SpecCluster:
    """Return a cluster of processes of one thread each, which talk over loopback.

    Anyone who can connect to a Dask worker can run code as its user. So the processes accept only
    each other: by TLS, with a key that is in their memory alone.
    """
    security = Security.temporary()
    comm = {"protocol": "tls://", "host": LOOPBACK, "security": security}
    worker = {
        "worker_class": SilentWorker,
        "nthreads": 1,
        "memory_limit": 0,
        "silence_logs": logging.CRITICAL,
    }
    return SpecCluster(
        scheduler={"cls": SilentScheduler, "options": {"port": 0, **comm}},
        workers={number: {"cls": Nanny, "options": {**worker, **comm}} for number in range(count)},
        security=security,
        silence_logs=logging.CRITICAL,
    )


@contextmanager
def _cluster_at(address: str) -> Iterator[Client]:
    """Yield a client of a running cluster; Dask's configuration names the certificates, if any."""
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without certificates
        raise ClusterError(
            f"no Dask scheduler answers at {address}: {_first_line(error)}. Fix: dask scheduler "
            "--host 127.0.0.1"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            raise ClusterError(
                f"the cluster at {address} has no worker: expected at least one. Fix: dask "
                f"worker {address} --no-nanny"
            ) from error
        check_workers(client)
        _print_dashboard(client)
        yield client


def _print_dashboard(client: Client) -> None:
    """Print the link of the dashboard, if the scheduler has one."""
    info = client.scheduler_info()
    port, host = info["services"].get("dashboard"), urlsplit(str(info["address"])).hostname
    if port is None or host is None:
        return
    # a dashboard that this machine cannot reach is not printed
    with suppress(OSError, HTTPException):
        pages = HTTPConnection(host, port, timeout=POLL_SECONDS)
        pages.request("HEAD", "/status")
        if pages.getresponse().status != HTTPStatus.NOT_FOUND:
            click.echo(f"dashboard: {client.dashboard_link}", err=True)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without its full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")

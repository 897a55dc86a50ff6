"""Connect to Dask: to processes of this machine, or to a running cluster."""

import gc
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import click
import dask
from distributed import Client, LocalCluster, Security
from distributed.gc import disable_gc_diagnosis

from mercore.jobs.cluster.tasks import DaskWorkers
from mercore.jobs.cluster.versions import check_workers
from mercore.jobs.resources.execution import Execution
from mercore.jobs.resources.malloc import KEPT
from mercore.stores.errors import ClusterError

CONNECT_SECONDS = 10
PAGE_SECONDS = 5  # for a dashboard
LOOPBACK = "127.0.0.1"
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
    # the HTTP servers of processes here have no pages
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


@contextmanager
def connect(execution: Execution) -> Iterator[DaskWorkers]:
    """Yield the processes or the workers of a cluster that ``execution`` names.

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
        yield DaskWorkers(client)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage: Dask's callback for collections would swallow a KeyboardInterrupt."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _client(execution: Execution) -> Iterator[Client]:
    """Yield a client of the workers that ``execution`` names."""
    if execution.scheduler is not None:
        with _cluster_at(execution.scheduler) as client:
            yield client
        return
    assert execution.processes is not None
    with (
        _processes_here(execution.processes) as cluster,
        Client(cluster, direct_to_workers=True) as client,
    ):
        yield client


def _processes_here(count: int) -> LocalCluster:
    """Return a cluster of processes of one thread each, which talk over loopback.

    Anyone who can connect to a Dask worker can run code as its user. So the processes accept only
    each other: by TLS, with a key that is in their memory alone.
    """
    return LocalCluster(
        n_workers=count,
        threads_per_worker=1,
        memory_limit=0,  # memory is limited before the start; a paused worker would stall
        protocol="tls://",
        host=LOOPBACK,
        security=Security.temporary(),
        dashboard_address=f"{LOOPBACK}:0",
        scheduler_kwargs={"dashboard": False},
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
        pages = HTTPConnection(host, port, timeout=PAGE_SECONDS)
        pages.request("HEAD", "/status")
        if pages.getresponse().status != HTTPStatus.NOT_FOUND:
            click.echo(f"dashboard: {client.dashboard_link}", err=True)


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without its full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")

"""Encode a store with Dask: one future a part, in a sliding window, on a model that every worker loads once."""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import (
    Client,
    Future,
    KilledWorker,
    Scheduler,
    SpecCluster,
    Worker,
    WorkerPlugin,
    as_completed,
    get_worker,
)
from threadpoolctl import threadpool_limits

from jobs.own_kernel import load_own
from pipeline.encode import encode_part, encoder_of
from stores.codes import open_code_store
from stores.errors import ClusterError
from stores.foreign import open_vectors

FUTURES_A_THREAD = 2
CONNECT_SECONDS = 10
LOGGERS = ("distributed", "distributed.client", "distributed.scheduler", "distributed.worker")


@dataclass(frozen=True)
class Sources:
    """Where the rows lie, and the file of the kernel if it is a user's own."""

    vectors: str
    kernel: str | None = None

    def resolved(self) -> "Sources":
        """Return the paths as workers in other folders find them."""
        return Sources(str(Path(self.vectors).resolve()), self.kernel and str(Path(self.kernel).resolve()))


class EncoderPlugin(WorkerPlugin):
    """What a worker needs to encode parts: both stores open, and the encoder with its Gram matrix, for all threads."""

    def __init__(self, codes: str, sources: Sources) -> None:
        self.name = plugin_name(codes)
        self.codes = codes
        self.sources = sources

    def setup(self, worker: Worker) -> None:
        """Open the stores and prepare the encoder; BLAS keeps to one thread, for the worker's own fill the cores."""
        self.limits = threadpool_limits(1)
        self.code_store = open_code_store(Path(self.codes))
        self.vector_store = open_vectors(self.sources.vectors)
        self.encoder = encoder_of(self.code_store, load_own(self.sources.kernel) if self.sources.kernel else None)
        self.encoder.prepare_encoding()

    def teardown(self, worker: Worker) -> None:
        """Give BLAS its threads back."""
        self.limits.restore_original_limits()

    def __getstate__(self) -> dict[str, Any]:
        """Travel as the paths alone."""
        return {"name": self.name, "codes": self.codes, "sources": self.sources}


def plugin_name(codes: str) -> str:
    """Return the name of a store's plugin: two jobs on one cluster keep out of each other's way."""
    return f"mercore-encoder {codes}"


def encode_one(codes: str, part: int) -> int:
    """Encode and publish one part on this worker; return its rows."""
    plugin = get_worker().plugins[plugin_name(codes)]
    assert isinstance(plugin, EncoderPlugin)
    store = plugin.code_store.store
    start, stop = store.bounds(part)
    store.write_part(part, encode_part(plugin.encoder, plugin.vector_store, start, stop))
    return stop - start


def encode_parts(
    client: Client,
    codes: Path,
    sources: Sources,
    parts: Sequence[int],
    advance: Callable[[int], None] = lambda rows: None,
) -> None:
    """Encode the named parts, a window of futures at a time, so that neither n nor the parts' number costs memory.

    A part whose worker dies is done again elsewhere; an error in a part is raised here, and what is done stays done.

    Raises
    ------
    ClusterError
        If the cluster goes away, or workers keep dying of one part.
    """
    where = str(codes.resolve())
    plugin = EncoderPlugin(where, sources.resolved())
    client.register_plugin(plugin)
    waiting = iter(parts)

    def submit(count: int) -> list["Future[int]"]:
        chosen = [part for _, part in zip(range(count), waiting, strict=False)]
        return [client.submit(encode_one, where, part, pure=False) for part in chosen]

    try:
        flow = as_completed(submit(max(1, sum(client.nthreads().values())) * FUTURES_A_THREAD))
        for future in flow:
            advance(future.result())
            flow.update(submit(1))
    except (KilledWorker, CancelledError, OSError) as error:  # OSError: the scheduler closed the connection
        raise ClusterError(
            f"the cluster lost a part of {codes}: {type(error).__name__}, expected its workers to stay. "
            "Mend: see to the cluster, then run the same command again: what is done stays done."
        ) from error
    client.unregister_worker_plugin(plugin.name)


@contextmanager
def connect(workers: int, scheduler: str | None) -> Iterator[Client]:
    """Yield a Dask client: threads of this process, or the cluster at ``scheduler``.

    Raises
    ------
    ClusterError
        If the cluster cannot be reached, or has no worker.
    """
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # a part's error is raised and told once, here
    with _threads_here(workers) if scheduler is None else _cluster_at(scheduler) as client:
        yield client


class SilentScheduler(Scheduler):
    """A scheduler that serves no pages: Dask's own listens on every interface, even where no dashboard is wanted."""

    def start_http_server(self, *args: object, **options: object) -> None:
        """Open no port."""


class SilentWorker(Worker):
    """A worker that serves no pages."""

    def start_http_server(self, *args: object, **options: object) -> None:
        """Open no port."""


@contextmanager
def _threads_here(workers: int) -> Iterator[Client]:
    """Yield a client of a cluster of threads, which talks within the process and opens no port."""
    worker = {"nthreads": workers, "memory_limit": 0}  # the plan bounds the memory; pausing half-way would only stall
    with (
        SpecCluster(
            scheduler={"cls": SilentScheduler, "options": {"protocol": "inproc://", "port": 0}},
            workers={0: {"cls": SilentWorker, "options": {"protocol": "inproc://", **worker}}},
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def _cluster_at(address: str) -> Iterator[Client]:
    """Yield a client of a cluster that runs already."""
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: {_first_line(error)}. Mend: dask scheduler --host 127.0.0.1"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            raise ClusterError(
                f"the cluster at {address} has no worker: expected at least one. Mend: dask worker {address}"
            ) from error
        yield client


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without its full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")

"""Encode a store with Dask: one future a part, in a sliding window, on a model that every worker loads once."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client, Future, LocalCluster, Worker, WorkerPlugin, as_completed, get_worker
from threadpoolctl import threadpool_limits

from pipeline.encode import encode_part, encoder_of
from stores.codes import open_code_store
from stores.foreign import open_vectors

PLUGIN = "mercore-encoder"
FUTURES_A_THREAD = 2


class EncoderPlugin(WorkerPlugin):
    """What a worker needs to encode parts: both stores open, and the encoder with its Gram matrix, shared by threads."""

    name = PLUGIN

    def __init__(self, codes: str, vectors: str) -> None:
        self.codes = codes
        self.vectors = vectors

    def setup(self, worker: Worker) -> None:
        """Open the stores and prepare the encoder; BLAS keeps to one thread, for the worker's own threads fill the cores."""
        self.limits = threadpool_limits(1)
        self.code_store = open_code_store(Path(self.codes))
        self.vector_store = open_vectors(self.vectors)
        self.encoder = encoder_of(self.code_store)
        self.encoder.prepare_encoding()

    def teardown(self, worker: Worker) -> None:
        """Give BLAS its threads back."""
        self.limits.restore_original_limits()

    def __getstate__(self) -> dict[str, Any]:
        """Travel as the two paths alone."""
        return {"codes": self.codes, "vectors": self.vectors}


def encode_one(part: int) -> int:
    """Encode and publish one part on this worker; return its rows."""
    plugin: EncoderPlugin = get_worker().plugins[PLUGIN]
    store = plugin.code_store.store
    start, stop = store.bounds(part)
    store.write_part(part, encode_part(plugin.encoder, plugin.vector_store, start, stop))
    return stop - start


def encode_parts(
    client: Client, codes: Path, vectors: str, parts: Sequence[int], advance: Callable[[int], None] = lambda rows: None
) -> None:
    """Encode the named parts, a window of futures at a time, so that neither n nor the parts' number costs memory.

    A part whose worker dies is done again elsewhere; an error in a part is raised here, and what is done stays done.
    """
    client.register_plugin(EncoderPlugin(str(codes.resolve()), str(Path(vectors).resolve())))
    threads = sum(client.nthreads().values())
    waiting = iter(parts)
    flow = as_completed(_submit(client, waiting, max(1, threads) * FUTURES_A_THREAD))
    for future in flow:
        advance(future.result())
        flow.update(_submit(client, waiting, 1))


def _submit(client: Client, waiting: Iterator[int], count: int) -> list[Future]:
    """Submit the next few parts."""
    parts = [part for _, part in zip(range(count), waiting, strict=False)]
    return [client.submit(encode_one, part, pure=False) for part in parts]


@contextmanager
def connect(workers: int, scheduler: str | None) -> Iterator[Client]:
    """Yield a Dask client: threads of this process, or the cluster at ``scheduler``.

    The threads' cluster talks within the process: it opens no port and no dashboard.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a part's error is raised and told once, here
    if scheduler is not None:
        with Client(scheduler, timeout=30) as client:
            yield client
        return
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=workers,
            processes=False,
            dashboard_address=None,
            memory_limit=0,  # the plan bounds the memory; pausing half-way would only stall
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client

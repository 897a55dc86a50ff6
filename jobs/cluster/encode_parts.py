"""Encoding with Dask: one future per part; a worker loads the model once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distributed import Client, Worker
from threadpoolctl import threadpool_limits

from mercore.jobs.cluster.tasks import NamedPlugin, plugin_here, run_tasks
from mercore.jobs.custom_kernel import load_custom
from mercore.jobs.resources.execution import resolved
from mercore.pipeline.encode import encode_part, encoder_of
from mercore.pipeline.linear_map import map_of, mapped_vectors
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.part_store.header import Header
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.rows import open_vectors


@dataclass(frozen=True)
class Sources:
    """The paths of the vectors, and of the file of a custom kernel.

    ``header`` is that of the state to which codes grow, which is not published yet. ``checksums``
    are those of the parts of a foreign array, as they were when its rows were checked.
    """

    vectors: str
    kernel: str | None = None
    header: Header | None = None
    checksums: dict[int, int] | None = None

    def resolved(self) -> "Sources":
        """Return the paths as workers in other folders find them."""
        kernel = self.kernel and resolved(self.kernel)
        return replace(self, vectors=resolved(self.vectors), kernel=kernel)


class EncoderPlugin(NamedPlugin):
    """The state of an encoding on a worker: both stores open, and the encoder prepared."""

    def __init__(self, codes: str, sources: Sources) -> None:
        self.name, self.codes, self.sources = plugin_name(codes), codes, sources

    def open(self) -> None:
        """Open the stores and prepare the encoder; limit BLAS to one thread per task."""
        self.limits = threadpool_limits(1)
        header = self.sources.header
        self.code_store = (
            CodeStore(PartStore(self.codes, header)) if header else open_code_store(self.codes)
        )
        vectors = open_vectors(self.sources.vectors, self.sources.checksums)
        self.vector_store = mapped_vectors(vectors, map_of(self.code_store))
        self.encoder = encoder_of(
            self.code_store, load_custom(self.sources.kernel) if self.sources.kernel else None
        )
        self.encoder.prepare_encoding()

    def teardown(self, worker: Worker) -> None:
        """Restore the threads of BLAS."""
        self.limits.restore_original_limits()

    def __getstate__(self) -> dict[str, Any]:
        """Return the sources alone: the workers open the stores."""
        return {"name": self.name, "codes": self.codes, "sources": self.sources}


def plugin_name(codes: str) -> str:
    """Return the name of the plugin of a store: unique among the jobs of a cluster."""
    return f"mercore-encoder {codes}"


def encode_one(codes: str, part: int) -> int:
    """Encode and publish one part on this worker; return its rows."""
    plugin = plugin_here(EncoderPlugin, plugin_name(codes))
    store = plugin.code_store.store
    start, stop = store.bounds(part)
    store.write_part(part, encode_part(plugin.encoder, plugin.vector_store, start, stop))
    return stop - start


def encode_parts(
    client: Client,
    codes: str,
    sources: Sources,
    parts: Sequence[int],
    advance: Callable[[int], None] = lambda rows: None,
) -> None:
    """Encode the given parts, a window of futures at a time, in memory that does not grow with n.

    If a worker dies, its part is encoded on another. If a part fails, its error is raised and
    finished parts are kept.

    Raises
    ------
    ClusterError
        If the cluster goes away, has no worker for a minute, or workers keep dying of one part.
    """
    where = resolved(codes)
    plugin = EncoderPlugin(where, sources.resolved())
    run_tasks(client, codes, plugin, (encode_one, ((where, part) for part in parts)), advance)

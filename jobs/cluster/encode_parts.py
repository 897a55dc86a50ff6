"""Encoding on workers, a part at a time; a worker loads the model once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mercore.jobs.cluster.workers import Work, Workers
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

    ``header`` is that of the state to which codes grow, which is not published yet. ``digests``
    are those of the parts of a foreign array, as they were when its rows were checked.
    """

    vectors: str
    kernel: str | None = None
    header: Header | None = None
    digests: dict[int, str] | None = None

    def resolved(self) -> "Sources":
        """Return the paths as workers in other folders find them."""
        kernel = self.kernel and resolved(self.kernel)
        return replace(self, vectors=resolved(self.vectors), kernel=kernel)


class PartEncoder:
    """The encoder of parts of a worker: both stores open, and the encoder prepared."""

    def __init__(self, codes: str, sources: Sources) -> None:
        header, custom = sources.header, sources.kernel and load_custom(sources.kernel)
        self.codes = CodeStore(PartStore(codes, header)) if header else open_code_store(codes)
        vectors = open_vectors(sources.vectors, sources.digests)
        self.vectors = mapped_vectors(vectors, map_of(self.codes))
        self.encoder = encoder_of(self.codes, custom or None)
        self.encoder.prepare_encoding()

    def encode(self, part: int) -> int:
        """Encode and publish a part; return its rows."""
        start, stop = self.codes.store.bounds(part)
        columns = encode_part(self.encoder, self.vectors, start, stop)
        self.codes.store.write_part(part, columns)
        return stop - start


def encode_parts(
    workers: Workers,
    codes: str,
    sources: Sources,
    parts: Sequence[int],
    advance: Callable[[int], None] = lambda rows: None,
) -> None:
    """Encode the given parts, a few at a time, in memory that does not grow with n.

    If a worker dies, its part is encoded on another. If a part fails, its error is raised and
    finished parts are kept.

    Raises
    ------
    ClusterError
        If the workers go away, or keep dying of one part.
    """
    work = Work(codes, partial(PartEncoder, resolved(codes), sources.resolved()))
    workers.run(work, PartEncoder.encode, parts, advance)

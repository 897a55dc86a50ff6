"""Choose s of the transform exp(s (κ − 1)) by the recall of an encoder's codes of a sample.

The transform keeps the order of true neighbours, but changes the feature space that codes
approximate (Jiang, Que & Kulis 2014, §4.2 and Eq. 6). The best s depends on kernel and data.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.pipeline.compiling.first_use import before_scanning
from mercore.pipeline.encoders import Encoder, EncoderSpec
from mercore.pipeline.encoders.encoder import Model, draw_rows
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.transform import Transformed
from mercore.pipeline.measures.recall import texmex_recall
from mercore.pipeline.parallel import over_parts
from mercore.pipeline.search.exhaustive import block_rows, search_vectors
from mercore.pipeline.topk import TopK
from mercore.stores.errors import InputError
from mercore.stores.formats.array import ArraySource
from mercore.stores.part_store.header import row_bytes
from mercore.stores.rows import SourceVectors
from mercore.stores.vectors import Vectors, gather

SCALES = (1.0, 3.0, 5.0, 7.0, 9.0)
SAMPLE, QUERIES = 20_000, 1000  # rows of the database, and other rows that are searched for
RANK = 100  # R of recall R@R


@dataclass(frozen=True, kw_only=True)
class TransformChoice:
    """The recall of codes by the s of their transform, on a sample of ``rows`` and ``queries``.

    The recall is R@``rank``: the share of queries whose true nearest row is among the first
    ``rank`` found.
    """

    recalls: dict[float, float]
    rows: int
    queries: int
    rank: int

    @property
    def scale(self) -> float:
        """The s of the greatest recall; of equal ones the smallest."""
        return max(self.recalls, key=lambda scale: (self.recalls[scale], -scale))


@dataclass(frozen=True, kw_only=True)
class TransformSample:
    """Rows to encode and other rows to search for, with their true nearest rows int64[nq, 1]."""

    rows: SourceVectors
    queries: NDArray[Any]
    nearest: NDArray[np.int64]
    threads: int

    @property
    def rank(self) -> int:
        """The rank at which recall is measured."""
        return min(RANK, self.rows.rows)

    def recall(self, encoder: Encoder) -> float:
        """Return the recall of the codes of the rows, 0 without queries."""
        if not len(self.queries):
            return 0.0
        found = TopK(len(self.queries), self.rank, np.float32)
        scanner = encoder.scanner(self.queries)
        scanner.scan(self._encoded(encoder), 0, found)
        order = np.lexsort((found.ids, -found.scores), axis=1)
        ids = np.take_along_axis(found.ids, order, axis=1)
        return texmex_recall(ids, self.nearest, self.rank)

    def _encoded(self, encoder: Encoder) -> Mapping[str, NDArray[Any]]:
        """Return the codes of the rows: blocks are shared by the threads."""
        encoder.prepare_encoding()
        rows, size = self.rows.source.read(0, self.rows.rows), encoder.block_rows
        blocks: dict[int, dict[str, NDArray[Any]]] = {}

        def work(starts: Iterator[int]) -> None:
            for start in starts:
                blocks[start] = encoder.encode(rows[start : start + size], first=start)

        starts = list(range(0, len(rows), size))
        over_parts(starts, self.threads, work)
        return encoder.unpacked(
            {name: np.concatenate([blocks[start][name] for start in starts]) for name in blocks[0]}
        )


def choose_transform(
    vectors: Vectors, kernel: Kernel, spec: EncoderSpec, *, threads: int
) -> TransformChoice:
    """Return the recall of an encoder's codes under each transform of a kernel.

    Rows are drawn with the seed of the encoder. The encoder is fitted on the sample; if its model
    needs more rows, it is fitted on all vectors. The choice depends on rows, kernel and spec alone.
    """
    sample = draw_sample(vectors, kernel, spec.random_state, threads=threads)
    before_scanning(spec, max(1, len(sample.queries)))
    recalls = {}
    with threadpool_limits(1):  # so that sums come in one order
        for scale in SCALES:
            transformed = Transformed(kernel, scale)
            model = _fitted(spec, transformed, sample.rows, vectors)
            recalls[scale] = sample.recall(spec.encoder(transformed, model))
    return TransformChoice(
        recalls=recalls, rows=sample.rows.rows, queries=len(sample.queries), rank=sample.rank
    )


def draw_sample(
    vectors: Vectors, kernel: Kernel, random_state: int, *, threads: int
) -> TransformSample:
    """Draw rows and queries; a small store gives at most half of its rows as queries."""
    nq = min(QUERIES, vectors.rows // 2)
    count = min(SAMPLE + nq, vectors.rows)
    rng = np.random.default_rng(random_state)
    drawn = draw_rows(rng, vectors.rows, count)
    searched = np.zeros(count, np.bool_)
    searched[rng.choice(count, nq, replace=False)] = True
    values = gather(vectors, drawn)
    rows, queries = SourceVectors(ArraySource(values[~searched])), values[searched]
    nearest = np.empty((0, 1), np.int64)
    if nq:
        nearest = search_vectors(rows, kernel, queries, 1, threads=threads).ids
    return TransformSample(rows=rows, queries=queries, nearest=nearest, threads=threads)


def choose_transform_bytes(vectors: Vectors, spec: EncoderSpec, threads: int) -> int:
    """Return the bytes that choosing takes: the sample, its codes, a model, and blocks."""
    dims, queries = vectors.dims, min(QUERIES, vectors.rows)
    rows = min(SAMPLE, vectors.rows)
    chunk = vectors.part_rows * dims * vectors.dtype.itemsize
    sample = 2 * (rows + queries) * dims * vectors.dtype.itemsize
    truth = queries * dims * 20 + threads * block_rows(dims) * (dims * 24 + queries * 8)
    memory = spec.memory(dims, vectors.rows)
    codes = 2 * rows * row_bytes(spec.columns("none")) + queries * (memory.query + 16 * RANK)
    encoding = memory.shared + threads * spec.block_rows * memory.row
    read = vectors.open_bytes + vectors.read_bytes + 2 * chunk
    return int(read + sample + max(truth, memory.fit, encoding + codes))


def _fitted(spec: EncoderSpec, kernel: Kernel, sample: Vectors, vectors: Vectors) -> Model:
    """Return the model of the sample, or of all vectors if the spec takes more rows."""
    try:
        spec.check(sample, kernel)
    except InputError:
        return spec.fit(vectors, kernel)
    return spec.fit(sample, kernel)

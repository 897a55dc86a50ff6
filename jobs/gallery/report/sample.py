"""The bounded sample that a report measures: runs of rows of the vectors, and their codes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import draw_rows
from mercore.stores.codes import CodeStore
from mercore.stores.formats.source import Source
from mercore.stores.rows import SourceVectors
from mercore.stores.vector_views import WrappedVectors
from mercore.stores.vectors import Vectors, blocks, gather

MAX_ROWS = 1 << 17  # rows that are searched
MIN_RUNS = 16  # of more rows than these
MAX_QUERIES = 1000
# Seeds of two numbers: an encoder has one, and would have drawn the same rows to learn from.
QUERY_SEED, ROW_SEED, MAP_SEED = (0, 1), (0, 2), (0, 3)
Ids = NDArray[np.int64]


class SampledVectors(WrappedVectors):
    """Runs of ``size`` rows that follow one another; a part is a run, and the last may be shorter.

    ``runs`` are the first rows of the runs in the store.
    """

    def __init__(self, vectors: Vectors, runs: Ids, size: int) -> None:
        super().__init__(vectors)
        self.runs, self.part_rows = runs, size
        self.rows = size * (len(runs) - 1) + min(size, vectors.rows - int(runs[-1]))
        self.dropped, self.history = np.empty(0, np.int64), ()

    @cached_property
    def starts(self) -> Ids:
        """The first row of each run in the sample, and the number of rows."""
        return np.append(np.arange(0, self.rows, self.part_rows), self.rows)

    def read_part(self, part: int) -> NDArray[Any]:
        """Return the rows of a run, dtype[rows of the run, d]."""
        first, last = self.bounds(part)
        start = int(self.runs[part])
        stop = start + last - first
        return np.concatenate([rows for _, rows in blocks(self.vectors, start, stop, last - first)])

    def stored(self, rows: Ids) -> Ids:
        """Map row numbers of the sample to row numbers of the store; −1 stays −1."""
        return np.where(rows < 0, -1, self.runs[rows // self.part_rows] + rows % self.part_rows)


class CodeSample(NamedTuple):
    """The parts of codes that are searched, and the number of rows at the start of each."""

    parts: list[int]
    size: int

    def vectors(self, codes: CodeStore, vectors: Vectors) -> SampledVectors:
        """Return the vectors of the sampled codes."""
        runs = np.array([codes.bounds(part)[0] for part in self.parts], np.int64)
        return SampledVectors(vectors, runs, self.size)

    def rows(self, codes: CodeStore) -> int:
        """Return the number of rows."""
        bounds = map(codes.bounds, self.parts)
        return sum(min(self.size, last - first) for first, last in bounds)


def all_codes(codes: CodeStore) -> CodeSample:
    """Return every code of a store."""
    return CodeSample(list(range(codes.parts)), codes.store.layout.part_rows)


def spread_codes(codes: CodeStore) -> CodeSample:
    """Return every code, or at most ``MAX_ROWS`` in evenly spread parts."""
    if codes.rows <= MAX_ROWS:
        return all_codes(codes)
    size = min(codes.store.layout.part_rows, MAX_ROWS // MIN_RUNS)
    count = min(codes.parts, MAX_ROWS // size)
    parts = np.unique(np.linspace(0, codes.parts - 1, count).astype(np.int64))
    return CodeSample(parts.tolist(), size)


@dataclass(frozen=True, kw_only=True)
class QuerySample:
    """Queries, dtype[nq, d], and their numbers in their file, or in the vectors they are rows of.

    They were drawn from ``total`` ones. ``own`` are the rows of the store that are the queries
    themselves, or None.
    """

    values: NDArray[Any]
    numbers: Ids
    total: int
    own: Ids | None = None


def draw_queries(queries: Source | None, vectors: SampledVectors | None) -> QuerySample:
    """Draw queries by a fixed seed: from a file, or without one from the rows of the sample."""
    rng, own = np.random.default_rng(QUERY_SEED), None
    rows = vectors if queries is None else SourceVectors(queries)
    assert rows is not None
    drawn = draw_rows(rng, rows.rows, min(MAX_QUERIES, rows.rows))
    if isinstance(rows, SampledVectors):
        own = rows.stored(drawn)
    numbers = drawn if own is None else own
    return QuerySample(values=gather(rows, drawn), numbers=numbers, total=rows.rows, own=own)

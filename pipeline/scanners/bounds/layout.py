"""Layout of queries, rows and results in the scan of bounds."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32

WORD, PANEL, LANES = 4, 32, 16  # bytes per word; queries per wide panel, per narrow one
MAX_ROW_BYTES = (2**31 - 1) // (2 * 255 * 128)  # per row: an int32 holds its products and start
CHUNK_ROWS = 256  # rows scored against every panel while they are in cache
SAMPLE_ROWS = 16  # rows per chunk whose non-zero words are counted
FEW_ROWS = 64  # rows that fill lists, and that a query may always keep
CACHED_SUMS = 4096  # sums of some rows and a panel: they fit L1 beside their inputs


class Form(NamedTuple):
    """The form of a batch: queries, words per query, factors; sums are of minima or of products.

    ``factors`` is the tuple 0, 1, …: a function is compiled for each length.
    """

    nq: int
    depth: int
    factors: tuple[int, ...]
    minimum: bool


class PackedQueries(NamedTuple):
    """A batch of queries in panels of 32 lanes, with one of 16 at the end if that holds the rest.

    ``words`` int32[lanes · depth], per panel [depth, width]; ``start`` int32[lanes]; ``terms``
    float32, per panel [2 + factors (+ 1), width]: step, const, factors and, in the minimum form,
    over. ``wide`` is the first lane of the narrow panel. Lanes without a query hold zeros.
    """

    words: NDArray[np.int32]
    start: NDArray[np.int32]
    terms: Float32
    wide: int
    form: Form


class PairBuffer(NamedTuple):
    """Buffers of pairs: ``rows`` int64[m], ``queries`` int64[m], ``bounds`` float32[m]."""

    rows: NDArray[np.int64]
    queries: NDArray[np.int64]
    bounds: Float32


class Sink(NamedTuple):
    """The outputs: all bounds in ``out`` float32, flat; or ``hits``, those ≥ ``least``.

    ``least`` float32[lanes]; ``sums`` int32[4096] and ``marks`` uint16[256] are scratch space.
    """

    out: Float32
    least: Float32
    sums: NDArray[np.int32]
    marks: NDArray[np.uint16]
    hits: PairBuffer


class SparseWords(NamedTuple):
    """The non-zero words of rows, row i's from ``i · stride`` on, then three zeros and spare words.

    ``words`` int32[n · stride], their ``places`` uint32[n · stride], and ``counts`` uint64[n].
    """

    words: NDArray[np.int32]
    places: NDArray[np.uint32]
    counts: NDArray[np.uint64]
    stride: int

"""How the scan of bounds lays out queries, rows and results: shared by its jitted functions and their wrapper."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32

WORD, PANEL, LANES = 4, 32, 16  # bytes of a word; queries of a wide panel, and of a narrow one


MOST_BYTES = (2**31 - 1) // (2 * 255 * 128)  # of a row, whose products and start an int32 holds


CHUNK_ROWS = 256  # scored against every panel while they are in cache


SAMPLE_ROWS = 16  # of a chunk, whose words that are not zero are counted


ROOM = 4096  # sums of some rows and a panel, in L1 beside what they are made of


class Form(NamedTuple):
    """How many queries and words a query there are, which factors, and whether sums are of minima, not of products.

    ``factors`` is 0, 1, … : a loop is compiled for their number.
    """

    nq: int
    depth: int
    factors: tuple[int, ...]
    minimum: bool


class PackedQueries(NamedTuple):
    """A batch of queries in panels of 32 lanes, one of 16 behind if that holds the rest, as the loops read them.

    ``words`` int32[lanes · depth], flat: of each panel [depth, width]; ``start`` int32[lanes]; ``terms`` float32, flat:
    of each panel [2 + factors (+ 1), width] step, const, the factors, and over in the minimum form. ``wide`` is the
    first lane of the narrow panel. Lanes of no query hold zeros.
    """

    words: NDArray[np.int32]
    start: NDArray[np.int32]
    terms: Float32
    wide: int
    form: Form


class PairBuffer(NamedTuple):
    """Room for pairs: ``rows`` int64[m], ``queries`` int64[m], ``bounds`` float32[m]."""

    rows: NDArray[np.int64]
    queries: NDArray[np.int64]
    bounds: Float32


class Sink(NamedTuple):
    """Where bounds go: to ``out`` float32, flat, if it has room; else the pairs that reach ``least``, to ``hits``.

    ``least`` float32[lanes]; ``sums`` int32[4096] and ``marks`` uint16[256] are room for some rows and a panel.
    """

    out: Float32
    least: Float32
    sums: NDArray[np.int32]
    marks: NDArray[np.uint16]
    hits: PairBuffer


class SparseWords(NamedTuple):
    """The words of rows that are not zero, each row's from ``i · stride`` on, three zeros behind, and room for sixteen.

    ``words`` int32[n · stride]; ``places`` uint32[n · stride], where they stood; ``counts`` uint64[n].
    """

    words: NDArray[np.int32]
    places: NDArray[np.uint32]
    counts: NDArray[np.uint64]
    stride: int

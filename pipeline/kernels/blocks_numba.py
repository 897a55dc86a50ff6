"""Float32 scores of a block: packed columns, sums in vector registers, ascending dimensions.

A pair's sum depends on its row and its column alone, to the bit: not on their positions in the
block, nor on their neighbours.
"""

# mypy: disable-error-code="call-arg, no-untyped-call, var-annotated"

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.kernels.elementary_numba import exponential, log2_vector
from mercore.pipeline.kernels.panels import Panels
from mercore.pipeline.kernels.terms_numba import (
    CHI2,
    INTERSECTION,
    JENSEN_SHANNON,
    TINY32,
    add_divergences,
    add_lesser,
    two_shares,
    with_four_terms,
)
from mercore.pipeline.simd.vectors import (
    FLOAT32,
    add,
    greater,
    lesser,
    load_float32,
    multiply,
    multiply_add,
    splat_float32,
    store,
    subtract,
    zero_float32,
)

VECTOR = FLOAT32.count
PANEL = 4 * VECTOR  # columns whose sums of four rows fill half of the registers
TILE_ROWS = 3
GROUP = 8 * PANEL  # columns packed at a time: long enough for fast reads
CHUNK_ROWS = 256  # rows scored against a group while it is in the cache
WIDE = np.uint64(PANEL)
SPARSE = (CHI2, INTERSECTION, JENSEN_SHANNON)  # terms with a panel that skips a row's zeros
DENSE_COST = 0.7  # of a dense dimension, relative to a non-zero one in ``intersection_panel``

Single = NDArray[np.float32]


class SparseRows(NamedTuple):
    """The non-zero values of rows; row i begins at ``i · stride``, zeros follow.

    Stride is a multiple of 16.

    ``values`` float32[n · stride]; ``others``, x² for chi2 and −x log2 x for Jensen–Shannon;
    ``dims`` uint32[n · stride], the dimensions of the values; ``counts`` uint64[n]; ``totals``
    float32[n], the sums.
    """

    values: Single
    others: Single
    dims: NDArray[np.uint32]
    counts: NDArray[np.uint64]
    totals: Single
    stride: int


class Finish(NamedTuple):
    """The steps from a sum to a score: K = factor · sum + share · total, or its exponential.

    ``total`` is the sum of the row. A K below ``least``, through rounding, is raised to it. Where
    ``scale`` is not 0, the score is exp(scale (K − 1)).
    """

    factor: float
    share: float
    exponential: bool
    scale: float
    least: float


class PanelStart(NamedTuple):
    """Offset and first column of a panel, columns of a row of scores, and of the panel."""

    panel: int
    first: int
    m: int
    width: int


@jit(constants=("terms",))
def gather_rows(terms: int, X: Single, rows: SparseRows) -> None:
    """Set ``rows`` to the non-zero values of ``X`` [n, d]."""
    values, others, dims, counts, totals, stride = rows
    for i in range(X.shape[0]):
        begin, count, total = i * stride, 0, 0.0
        for k in range(X.shape[1]):
            values[begin + count], dims[begin + count] = X[i, k], k
            total += X[i, k]
            count += X[i, k] != 0
        counts[i], totals[i] = count, total
        values[begin + count : begin + stride] = 0
        dims[begin + count : begin + stride] = 0
        for c in range(np.uint64(begin), np.uint64(begin + stride), np.uint64(VECTOR)):
            x = load_float32(values, c)
            if terms == JENSEN_SHANNON:
                store(others, c, subtract(zero_float32(), multiply(x, log2_vector(x))))
            else:
                store(others, c, multiply(x, x))


@jit(constants=("terms",))
def pack_group(terms: int, YT: Single, first: int, panels: Single, gains: Single) -> None:
    """Copy GROUP columns or less of ``YT`` [d, m], from ``first`` on, to panels [·, d, 64].

    Columns behind the last are zero. ``gains``, of the same shape, becomes −y log2 y for
    Jensen–Shannon.
    """
    d, m = YT.shape
    last = min(m, first + GROUP)
    added = np.float32(TINY32 if terms == CHI2 else 0)
    whole = (last - first) // PANEL * PANEL
    flat = YT.reshape(-1)
    for k in range(np.uint64(d)):
        at = k * np.uint64(m) + np.uint64(first)
        for j in range(np.uint64(0), np.uint64(whole), WIDE):
            to = j * np.uint64(d) + k * WIDE
            for v in range(np.uint64(0), WIDE, np.uint64(VECTOR)):
                store(panels, to + v, add(load_float32(flat, at + j + v), splat_float32(added)))
        if first + whole < last:
            to = np.uint64(whole) * np.uint64(d) + k * WIDE
            for j in range(WIDE):
                column = np.int64(first) + np.int64(whole) + np.int64(j)
                panels[to + j] = (YT[k, column] if column < last else np.float32(0)) + added
    if terms == JENSEN_SHANNON:
        used = (last - first + PANEL - 1) // PANEL * PANEL * d
        for c in range(np.uint64(0), np.uint64(used), np.uint64(VECTOR)):
            y = load_float32(panels, c)
            store(gains, c, subtract(zero_float32(), multiply(y, log2_vector(y))))


@jit(inline="always")
def finish_scores(
    sums: Single,
    begin: np.uint64,
    total: np.float32,
    finish: Finish,
    out: Single,
    place: PanelStart,
    row: int,
) -> None:
    """Set the scores of a row and a panel from the sums that start at ``begin``."""
    at, width = np.uint64(place.first + row * place.m), np.uint64(place.width)
    offset = splat_float32(np.float32(finish.share) * total)
    factor, one = splat_float32(np.float32(finish.factor)), splat_float32(np.float32(1))
    least = splat_float32(np.float32(finish.least))
    for v in range(np.uint64(0), width, np.uint64(VECTOR)):
        score = multiply_add(load_float32(sums, begin + v), factor, offset)
        score = exponential(score) if finish.exponential else greater(score, least)
        if finish.scale > 0:
            below = subtract(lesser(score, one), one)
            score = exponential(multiply(splat_float32(np.float32(finish.scale)), below))
        if v + np.uint64(VECTOR) <= width:
            store(out, at + v, score)
        else:
            store(sums, begin + v, score)
            for j in range(v, width):
                out[at + j] = sums[begin + j]


@jit(error_model="numpy")
def chi2_panel(
    rows: SparseRows, panels: Single, place: PanelStart, sums: Single, finish: Finish, out: Single
) -> None:
    """Score rows against a panel by Σ 2xy / (x + y) = 2 Σ x − 2 Σ x² / (x + y)."""
    values, squares, dims, counts, totals, _ = rows
    base, v = np.uint64(place.panel), np.uint64(VECTOR)
    for i in range(counts.size):
        begin = np.uint64(i * rows.stride)
        a, b, c, e = zero_float32(), zero_float32(), zero_float32(), zero_float32()
        for k in range(begin, begin + counts[i], np.uint64(2)):
            x, p = splat_float32(values[k]), splat_float32(squares[k])
            y, q = splat_float32(values[k + np.uint64(1)]), splat_float32(squares[k + np.uint64(1)])
            f = base + np.uint64(dims[k]) * WIDE
            g = base + np.uint64(dims[k + np.uint64(1)]) * WIDE
            a = add(a, two_shares(x, load_float32(panels, f), y, load_float32(panels, g), p, q))
            b = add(
                b, two_shares(x, load_float32(panels, f + v), y, load_float32(panels, g + v), p, q)
            )
            f, g = f + v + v, g + v + v
            c = add(c, two_shares(x, load_float32(panels, f), y, load_float32(panels, g), p, q))
            e = add(
                e, two_shares(x, load_float32(panels, f + v), y, load_float32(panels, g + v), p, q)
            )
        store_four(sums, np.uint64(0), (a, b, c, e))
        finish_scores(sums, np.uint64(0), totals[i], finish, out, place, i)


@jit
def jensen_shannon_panel(
    rows: SparseRows,
    panels: Single,
    gains: Single,
    place: PanelStart,
    sums: Single,
    finish: Finish,
    out: Single,
) -> None:
    """Score rows against a panel by Σ ½ [(x + y) log2(x + y) − x log2 x − y log2 y]."""
    values, others, dims, counts, totals, _ = rows
    base = np.uint64(place.panel)
    for i in range(counts.size):
        begin = np.uint64(i * rows.stride)
        a, b, c, e = zero_float32(), zero_float32(), zero_float32(), zero_float32()
        for k in range(begin, begin + counts[i]):
            x, gain = splat_float32(values[k]), splat_float32(others[k])
            f = base + np.uint64(dims[k]) * WIDE
            y, z = load_four(panels, f), load_four(gains, f)
            a, b = add_divergences(a, x, gain, y[0], z[0]), add_divergences(b, x, gain, y[1], z[1])
            c, e = add_divergences(c, x, gain, y[2], z[2]), add_divergences(e, x, gain, y[3], z[3])
        store_four(sums, np.uint64(0), (a, b, c, e))
        finish_scores(sums, np.uint64(0), totals[i], finish, out, place, i)


@jit
def intersection_panel(
    rows: SparseRows,
    panels: Single,
    place: PanelStart,
    one: np.float32,
    sums: Single,
    finish: Finish,
    out: Single,
) -> None:
    """Score rows against a panel by Σ min(x, y) over the non-zero values of a row."""
    values, _, dims, counts, totals, _ = rows
    base, unit = np.uint64(place.panel), splat_float32(one)
    for i in range(counts.size):
        begin = np.uint64(i * rows.stride)
        zero = zero_float32()
        total = zero, zero, zero, zero
        for k in range(begin, begin + counts[i]):
            y = load_four(panels, base + np.uint64(dims[k]) * WIDE)
            total = add_lesser(total, splat_float32(values[k]), y, unit)
        store_four(sums, np.uint64(0), total)
        finish_scores(sums, np.uint64(0), totals[i], finish, out, place, i)


@jit(inline="always")
def load_four(values: Single, at: np.uint64) -> Any:
    """Return 64 floats as four vectors."""
    v = np.uint64(VECTOR)
    return (
        load_float32(values, at),
        load_float32(values, at + v),
        load_float32(values, at + v + v),
        load_float32(values, at + v + v + v),
    )


@jit(inline="always")
def store_four(values: Single, at: np.uint64, sums: Any) -> None:
    """Set 64 floats to four vectors."""
    v = np.uint64(VECTOR)
    store(values, at, sums[0])
    store(values, at + v, sums[1])
    store(values, at + v + v, sums[2])
    store(values, at + v + v + v, sums[3])


@jit(constants=("terms",))
def dense_panel(
    terms: int,
    X: Single,
    panels: Single,
    place: PanelStart,
    one: np.float32,
    sums: Single,
    finish: Finish,
    out: Single,
) -> None:
    """Score rows X [n, d] against a panel by all terms, zero or not, three rows at a time.

    LLVM keeps three rows and four vectors in 32 registers. If fewer rows are left, the last one is
    repeated.
    """
    n, deep, base, unit = (
        X.shape[0],
        np.uint64(X.shape[1]),
        np.uint64(place.panel),
        splat_float32(one),
    )
    x, zero = X.reshape(-1), zero_float32()
    for i in range(0, n, TILE_ROWS):
        p, q, r = (
            np.uint64(i) * deep,
            np.uint64(min(i + 1, n - 1)) * deep,
            np.uint64(min(i + 2, n - 1)) * deep,
        )
        a, b, c = (zero, zero, zero, zero), (zero, zero, zero, zero), (zero, zero, zero, zero)
        for k in range(deep):
            y = load_four(panels, base + k * WIDE)
            a = with_four_terms(terms, a, splat_float32(x[p + k]), y, unit)
            b = with_four_terms(terms, b, splat_float32(x[q + k]), y, unit)
            c = with_four_terms(terms, c, splat_float32(x[r + k]), y, unit)
        store_four(sums, np.uint64(0), a)
        store_four(sums, WIDE, b)
        store_four(sums, WIDE + WIDE, c)
        for j in range(min(TILE_ROWS, n - i)):
            finish_scores(sums, np.uint64(j) * WIDE, np.float32(0), finish, out, place, i + j)


@jit(constants=("terms",))
def score_rows(
    terms: int,
    X: Single,
    columns: Panels,
    rows: SparseRows,
    sums: Single,
    one: np.float32,
    finish: Finish,
    out: Single,
) -> None:
    """Set ``out`` [n, m] to the scores of rows X [n, d] and columns.

    ``one`` is 1, ``sums`` a buffer of 3 · 64 floats. ``rows`` are the sparse rows of X; only terms
    in ``SPARSE`` use them.
    """
    panels, gains, d, m, _ = columns
    flat = out.reshape(-1)
    dense = False
    if terms == INTERSECTION:
        dense = bool(DENSE_COST * X.size < total_count(rows.counts))
    for first in range(0, m, PANEL):
        place = PanelStart(first * d, first, m, min(PANEL, m - first))
        if terms == CHI2:
            chi2_panel(rows, panels, place, sums, finish, flat)
        elif terms == JENSEN_SHANNON:
            jensen_shannon_panel(rows, panels, gains, place, sums, finish, flat)
        elif terms == INTERSECTION and not dense:
            intersection_panel(rows, panels, place, one, sums, finish, flat)
        else:
            dense_panel(terms, X, panels, place, one, sums, finish, flat)


@jit(inline="always")
def total_count(counts: NDArray[np.uint64]) -> np.uint64:
    """Return the sum of some counts."""
    total = np.uint64(0)
    for count in counts:
        total += count
    return total


@jit
def transform(scores: Single, scale: float) -> None:
    """Set flat scores, a multiple of 16, to exp(scale (K − 1)); scores above 1 count as 1."""
    factor, one = splat_float32(np.float32(scale)), splat_float32(np.float32(1))
    for j in range(np.uint64(0), np.uint64(scores.size), np.uint64(VECTOR)):
        below = subtract(lesser(load_float32(scores, j), one), one)
        store(scores, j, exponential(multiply(factor, below)))

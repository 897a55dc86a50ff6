"""Jitted functions that list pairs by the distance of points on a grid of whole numbers.

A row's code is decoded to the bytes of its point v, once for all queries; a query is a point u of
the same grid. So ‖u − v‖² = ‖u‖² + ‖v‖² − 2 ⟨u, v⟩ is a whole number, and exact. Pairs within the
limit of the row's cell are then tested by the row's own numbers.
"""

# mypy: disable-error-code="call-arg"

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.scanners.bounds.byte_sums_numba import V, narrow_sums, wide_sums
from mercore.pipeline.scanners.bounds.layout import CACHED_SUMS, CHUNK_ROWS, LANES, PANEL
from mercore.pipeline.simd.dots import at_least, load_dots, splat_word
from mercore.pipeline.simd.vectors import add, lowest_bit, subtract
from mercore.pipeline.topk_numba import ZERO

NONE, RESIDUAL, NORM, RATIO = range(4)  # what the second number of a row is
BIAS = 128  # added to the bytes of a row, which are unsigned
FINE = 254  # parts of a step
ROUNDING = 1e-6  # more than float64 can round in a squared distance on the grid
SHRINK = 1 - 1e-12  # more than float64 can round in one test

Bytes = NDArray[np.uint8]
Whole = NDArray[np.int32]
Double = NDArray[np.float64]


class QueryPoints(NamedTuple):
    """A batch of queries on the grid, by lanes: see ``PackedQueries``.

    ``words`` and ``start`` are those of u. ``wide`` is the first lane of the narrow panel,
    ``depth`` the number of words, ``step`` that of the grid. A query itself lies near u + w / 254:
    ``fine`` int8[nq, E] is w, and ``squares`` float64[nq] ‖u + w / 254‖².
    """

    words: Whole
    start: Whole
    fine: NDArray[np.int8]
    squares: Double
    wide: int
    depth: int
    step: float


class Tests(NamedTuple):
    """What the tests of pairs know of the queries, float64[nq], and of all rows.

    ``reach``: the greatest squared distance of a hit; ``margin``: the distance of the query from
    u + w / 254; ``apart``: R(x); ``spread``: the error of R(x) − R(y) beside the rounding
    of R(y), which is ``rounding`` of it; ``crossed``: 2 (1 − β) R(x), or p for R(x).
    """

    reach: Double
    margin: Double
    apart: Double
    spread: Double
    crossed: Double
    rounding: float


class Near(NamedTuple):
    """A list of pairs: row, query, and the least squared distance that is possible."""

    rows: NDArray[np.int64]
    queries: NDArray[np.int64]
    squared: Double


@jit
def decode(codes: Bytes, first: int, last: int, books: Any, out: Any) -> None:
    """Set ``out`` [rows, M · u] to the points of codes [n, M]; ``books`` [M, 256, u]."""
    count, units = books.shape[0], books.shape[2]
    for i in range(first, last):
        row, at = codes[i], out[i - first]
        if units == 1:
            for j in range(count):
                at[j] = books[j, row[j], 0]
        else:
            for j in range(count):
                book = books[j, row[j]]
                for s in range(units):
                    at[j * units + s] = book[s]


@jit
def squared_norms(points: Bytes, rows: int, width: int, out: Whole) -> None:
    """Set ``out`` to the squared norms of points, each byte less the bias."""
    for i in range(rows):
        line, total = points[i], np.int32(0)
        for s in range(width):
            value = np.int32(line[s]) - np.int32(BIAS)
            total += value * value
        out[i] = total


@jit(constants=("form",), error_model="numpy")
def possible(
    form: int, squared: float, query: int, tests: Tests, error: float, own: float
) -> float:
    """Return the least squared distance of a pair, given that of u + w / 254 and v.

    A row whose e is ∞ may be anywhere. With RATIO, points a / ‖a‖ and b / ‖b‖ stand for two unit
    vectors, and their numbers are p = R / ‖a‖ and q = R / ‖b‖. With n = 1 / (‖a‖ ‖b‖), the vectors'
    squared distance is at least 2 − 2 (⟨a, b⟩ + R R) = (‖a / ‖a‖ − b / ‖b‖‖² + 2 (n − 1 − pq)) / n.
    As n² = (1 + p²)(1 + q²), n − 1 − pq = (p − q)² / (n + 1 + pq). Relaxed bounds add 2 (1 − β) pq.
    """
    left = max(0.0, np.sqrt(squared) - error - tests.margin[query])
    least = left * left * SHRINK
    if form in (RESIDUAL, RATIO) and error < np.inf:
        widening = tests.spread[query] + own * tests.rounding
        gap = max(0.0, abs(tests.apart[query] - own) - widening)
        crossed = tests.crossed[query] * own * (1 - tests.rounding)
        if form == RESIDUAL:
            least += (gap * gap + crossed) * SHRINK
        else:
            mine, other = tests.apart[query] + tests.spread[query], own + widening
            norms = np.sqrt((1 + mine * mine) * (1 + other * other))
            least += 2 * gap * gap / (norms + mine * other + 1) + crossed
            least = least / norms * SHRINK
    elif form == NORM:
        least -= own * own
    return float(least)


@jit
def fine_product(fine: NDArray[np.int8], point: Bytes) -> int:
    """Return ⟨w, v⟩."""
    total = np.int32(0)
    for s in range(np.uint64(fine.size)):
        total += np.int32(fine[s]) * (np.int32(point[s]) - np.int32(BIAS))
    return int(total)


@jit(constants=("form",))
def keep_near(
    form: int,
    row: int,
    query: int,
    product: int,
    fine: int,
    norm: int,
    points: QueryPoints,
    numbers: NDArray[np.float32],
    tests: Tests,
    near: Near,
    count: int,
) -> int:
    """List a pair, given ⟨u, v⟩, ⟨w, v⟩ and ‖v‖², if it is within reach; return the new count."""
    whole = points.squares[query] + norm - 2 * (product + fine / FINE) - ROUNDING
    squared = max(0.0, whole) * (points.step * points.step)
    error, own = np.float64(numbers[row, 0]), np.float64(numbers[row, numbers.shape[1] - 1])
    least = possible(form, squared, query, tests, error, own)
    if least <= tests.reach[query]:
        if count < len(near.rows):
            near.rows[count], near.queries[count] = row, query
            near.squared[count] = least
        count += 1
    return count


@jit(constants=("form",))
def list_within(
    form: int,
    sums: Whole,
    first: int,
    rows: int,
    lane: int,
    width: int,
    points: QueryPoints,
    grid: Bytes,
    norms: Whole,
    limits: Whole,
    cells: Bytes,
    numbers: NDArray[np.float32],
    tests: Tests,
    near: Near,
    count: int,
    offset: int,
) -> int:
    """List the pairs of some rows and a panel that are within reach; return the new count.

    ``limits`` [256 · lanes], flat: the least 2 ⟨u, v⟩ − ‖v‖² of a cell and a lane.
    """
    lanes = np.uint64(points.start.size)
    for i in range(rows):
        row = first + i
        limit = np.uint64(cells[row]) * lanes + np.uint64(lane)
        norm = splat_word(norms[offset + i])
        for v in range(np.uint64(0), np.uint64(width), V):
            at = np.uint64(i * width) + v
            total = load_dots(sums, at)
            hits = np.uint64(
                at_least(subtract(add(total, total), norm), load_dots(limits, limit + v))
            )
            while hits:
                place = lowest_bit(hits)
                hits &= hits - np.uint64(1)
                query = np.int64(v + place) + lane
                fine = fine_product(points.fine[query], grid[offset + i])
                count = keep_near(
                    form,
                    row,
                    query,
                    np.int64(sums[at + place]),
                    fine,
                    np.int64(norms[offset + i]),
                    points,
                    numbers,
                    tests,
                    near,
                    count,
                )
    return count


@jit(constants=("form",))
def list_near(
    form: int,
    codes: Bytes,
    books: Any,
    cells: Bytes,
    numbers: NDArray[np.float32],
    points: QueryPoints,
    limits: Whole,
    tests: Tests,
    near: Near,
) -> int:
    """List the pairs within reach as far as they fit; return their number.

    Parameters
    ----------
    codes : uint8[n, M]
    books : uint8, uint16, uint32 or uint64 [M, 256, u], the bytes of v + 128 of each centroid
    cells, numbers : uint8[n]; float32[n, 1 or 2], e and, unless ``form`` is NONE, R or the norm
    """
    n, deep = len(codes), points.depth
    words = np.zeros((CHUNK_ROWS, deep), np.int32)
    grid, norms = words.view(np.uint8), np.empty(CHUNK_ROWS, np.int32)
    out, x = words.view(books.dtype), words.reshape(-1)
    width_of_row = books.shape[0] * books.shape[2] * books.itemsize
    sums, count = np.empty(CACHED_SUMS, np.int32), ZERO
    for first in range(0, n, CHUNK_ROWS):
        last = min(n, first + CHUNK_ROWS)
        decode(codes, first, last, books, out)
        squared_norms(grid, last - first, width_of_row, norms)
        lane = ZERO
        while lane < points.start.size:
            width = PANEL if lane < points.wide else LANES
            for i in range(0, last - first, CACHED_SUMS // width):
                rows = min(last - first - i, CACHED_SUMS // width)
                if lane < points.wide:
                    wide_sums(x, i, i + rows, deep, False, points.words, points.start, lane, sums)
                else:
                    narrow_sums(x, i, i + rows, deep, False, points.words, points.start, lane, sums)
                count = list_within(
                    form,
                    sums,
                    first + i,
                    rows,
                    lane,
                    width,
                    points,
                    grid,
                    norms,
                    limits,
                    cells,
                    numbers,
                    tests,
                    near,
                    count,
                    i,
                )
            lane += width
    return count

"""Jitted functions of rows of bytes: exact products with queries, and the pairs that reach a limit.

All sums are int32; ``byte_rows`` sees to it that none overflows.
"""

# mypy: disable-error-code="call-arg, no-untyped-call"

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.scanners.bounds.byte_sums_numba import WIDE, V, Words, wide_sums
from mercore.pipeline.scanners.bounds.layout import CACHED_SUMS, CHUNK_ROWS, PANEL
from mercore.pipeline.simd.dots import (
    at_least,
    dot_halves,
    load_dots,
    load_halves,
    splat_word,
    to_float32,
    zero_dots,
)
from mercore.pipeline.simd.selection import attains
from mercore.pipeline.simd.vectors import (
    add,
    load_float32,
    load_int16,
    multiply,
    splat_float32,
    splat_int16,
    sum_of,
)
from mercore.pipeline.topk_numba import ZERO

HALVES = np.uint64(32)  # int16 per vector
CACHED_ROWS = CACHED_SUMS // PANEL

Bytes = NDArray[np.uint8 | np.int8]
Ids = NDArray[np.int64]


@jit
def sum_rows(X: Bytes, sums: Words, squares: Words) -> None:
    """Set ``sums[i]`` to Σ x and ``squares[i]`` to Σ x² of row ``X[i]``, C-contiguous."""
    flat, d, one = X.reshape(-1), np.uint64(X.shape[1]), splat_int16(np.int16(1))
    whole = d - d % HALVES
    for i in range(np.uint64(X.shape[0])):
        at, total, square = i * d, zero_dots(), zero_dots()
        for k in range(np.uint64(0), whole, HALVES):
            x = load_halves(flat, at + k)
            total, square = dot_halves(total, x, one), dot_halves(square, x, x)
        t, s = np.int64(sum_of(total)), np.int64(sum_of(square))
        for k in range(whole, d):
            value = np.int64(flat[at + k])
            t, s = t + value, s + value * value
        sums[i], squares[i] = t, s


@jit(inline="always")
def product_and_square(x: Bytes, at: Any, y: NDArray[np.int16], to: Any, d: Any) -> Any:
    """Return ⟨x, y⟩ and ‖x‖² of d elements of x from ``at`` on and of y from ``to`` on."""
    whole = d - d % HALVES
    product, square = zero_dots(), zero_dots()
    for k in range(np.uint64(0), whole, HALVES):
        values = load_halves(x, at + k)
        product = dot_halves(product, values, load_int16(y, to + k))
        square = dot_halves(square, values, values)
    p, s = np.int64(sum_of(product)), np.int64(sum_of(square))
    for k in range(whole, d):
        value = np.int64(x[at + k])
        p, s = p + value * np.int64(y[to + k]), s + value * value
    return p, s


@jit
def multiply_pairs(
    X: Bytes, rows: Ids, Y: NDArray[np.int16], queries: Ids, products: Ids, squares: Ids
) -> None:
    """Set ``products[p]`` to ⟨x, y⟩, ``squares[p]`` to ‖x‖², x = X[rows[p]], y = Y[queries[p]].

    X [n, d] and Y [nq, d] are C-contiguous.
    """
    x, y, d = X.reshape(-1), Y.reshape(-1), np.uint64(X.shape[1])
    for p in range(rows.size):
        products[p], squares[p] = product_and_square(
            x, np.uint64(rows[p]) * d, y, np.uint64(queries[p]) * d, d
        )


@jit(constants=("distance", "scaled"))
def list_one(
    distance: bool,
    scaled: bool,
    X: Bytes,
    y: NDArray[np.int16],
    limit: float,
    found: tuple[Ids, Ids, Ids],
) -> int:
    """List the rows whose value reaches the limit, as far as they fit; return their number.

    The value of row x is p = ⟨x, y⟩; if ``distance``, p − ⌊‖x‖² / 2⌋; if ``scaled``, p / ‖x‖, and a
    row of zeros is listed.

    Parameters
    ----------
    found : numbers of rows, their p, and their ‖x‖²
    """
    rows, products, squares = found
    flat, d, count = X.reshape(-1), np.uint64(X.shape[1]), ZERO
    for i in range(np.uint64(X.shape[0])):
        p, s = product_and_square(flat, i * d, y, np.uint64(0), d)
        value = p - (s >> 1) if distance else p
        if (scaled and s == 0) or value >= (limit * np.sqrt(np.float64(s)) if scaled else limit):
            if count < rows.size:
                rows[count], products[count], squares[count] = i, p, s
            count += 1
    return count


@jit(inline="always")
def any_reaches(scaled: bool, values: Any, limits: Any, at: Any, scale: np.float32) -> Any:
    """Return whether one of sixteen values, times ``scale`` if ``scaled``, reaches its limit."""
    if scaled:
        return attains(multiply(to_float32(values), splat_float32(scale)), load_float32(limits, at))
    return at_least(values, load_dots(limits, at))


@jit(constants=("scaled",))
def list_reaching(
    scaled: bool,
    X: Words,
    offsets: Words,
    scales: Float32,
    words: Words,
    start: Words,
    limits: NDArray[np.int32 | np.float32],
    sums: Words,
    found: tuple[Ids, Ids, Words],
) -> int:
    """List the pairs whose value reaches the query's limit, as far as they fit; return the count.

    The value of row i and query q is start[q] + Σ x y + offsets[i]. If ``scaled``, the float32
    value · scales[i] is compared with the limit.

    Parameters
    ----------
    X : int32[n, depth], words of four bytes, taken as unsigned
    words : int32[lanes · depth], per panel [depth, 32] words of the queries' signed bytes
    start, limits : [lanes], a multiple of 32; a lane without a query has a limit out of reach
    sums : int32[4096], scratch space
    found : rows, queries and values of the pairs
    """
    rows, queries, values = found
    n, depth = X.shape
    x, count = X.reshape(-1), ZERO
    for chunk in range(0, n, CHUNK_ROWS):
        for lane in range(0, start.size, PANEL):
            for first in range(chunk, min(n, chunk + CHUNK_ROWS), CACHED_ROWS):
                last = min(n, first + CACHED_ROWS)
                wide_sums(x, first, last, depth, False, words, start, lane, sums)
                at, to = np.uint64(0), np.uint64(lane)
                for i in range(first, last):
                    offset = splat_word(offsets[i])
                    low, high = load_dots(sums, at), load_dots(sums, at + V)
                    if any_reaches(scaled, add(low, offset), limits, to, scales[i]) | any_reaches(
                        scaled, add(high, offset), limits, to + V, scales[i]
                    ):
                        for j in range(WIDE):
                            value = np.int32(sums[at + j] + offsets[i])
                            reached = np.float32(value) * scales[i] if scaled else value
                            if reached >= limits[to + j]:
                                if count < rows.size:
                                    rows[count], queries[count], values[count] = i, to + j, value
                                count += 1
                    at += WIDE
    return count

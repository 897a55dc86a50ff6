"""Jitted functions of the bounds: a float32 bound per exact sum of bytes, and the list of hits."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.scanners.bounds.byte_sums_numba import (
    ONE,
    V,
    Words,
    gather,
    narrow_sums,
    sparse_narrow,
    sparse_wide,
    wide_sums,
    words_not_zero,
)
from mercore.pipeline.scanners.bounds.layout import (
    CACHED_SUMS,
    CHUNK_ROWS,
    LANES,
    PANEL,
    SAMPLE_ROWS,
    Form,
    PackedQueries,
    Sink,
    SparseWords,
)
from mercore.pipeline.simd.dots import add_line_products, load_dots, load_lines, to_float32
from mercore.pipeline.simd.selection import attains
from mercore.pipeline.simd.vectors import (
    add,
    lesser,
    load_float32,
    lowest_bit,
    multiply,
    multiply_add,
    splat_float32,
    store,
)
from mercore.pipeline.topk_numba import ZERO

# Costs per non-zero word and per gathered word; a word of a dense row and 32 lanes costs 1.
SPARSE_COST, GATHER_COST = 2.2, 0.75
MARKS = 64  # marks that are read together

Single = NDArray[np.float32]


@jit
def finish(
    sums: Words,
    bounds: Single,
    first: int,
    n: int,
    numbers: Single,
    form: Form,
    terms: Single,
    lane: int,
    width: int,
    least: Single,
    marks: NDArray[np.uint16],
) -> None:
    """Replace the sums of n rows from ``first`` on and a panel by their bounds.

    Bit j of a mark, ``marks`` uint16[n · width / 16]: lane j's bound reaches ``least``.
    """
    wide, step = np.uint64(width), np.uint64(1 + len(form.factors) + form.minimum)
    begin = np.uint64(lane) * (step + ONE)
    for v in range(np.uint64(0), wide, V):
        number, at = np.uint64(first) * step, v
        factor, const = load_float32(terms, begin + v), load_float32(terms, begin + v + wide)
        lines = load_lines(terms, begin + v + wide + wide, wide, form.factors)
        limit, last = (
            load_float32(least, np.uint64(lane) + v),
            load_float32(terms, begin + v + step * wide),
        )
        for _ in range(n):
            scaled = multiply(to_float32(load_dots(sums, at)), splat_float32(numbers[number]))
            bound = add_line_products(
                multiply_add(scaled, factor, const), numbers, number + ONE, lines
            )
            if form.minimum:
                bound = add(bound, lesser(splat_float32(numbers[number + step - ONE]), last))
            store(bounds, at, bound)
            marks[at // V] = attains(bound, limit)
            number += step
            at += wide


@jit
def list_marked(
    bounds: Single,
    marks: NDArray[np.uint64],
    first: int,
    n: int,
    lane: int,
    width: int,
    rows: NDArray[np.int64],
    queries: NDArray[np.int64],
    values: Single,
    count: int,
) -> int:
    """List the marked pairs of n rows from ``first`` on and a panel; return the new count."""
    for m in range(-(-n * width // MARKS)):
        mask = marks[m]
        while mask:
            j = m * MARKS + np.int64(lowest_bit(mask))
            if j >= n * width:  # marks of an earlier call
                break
            if count < rows.size:
                rows[count], queries[count], values[count] = (
                    first + j // width,
                    lane + j % width,
                    bounds[j],
                )
            mask &= mask - ONE
            count += 1
    return count


@jit
def copy_bounds(
    bounds: Single, first: int, n: int, nq: int, lane: int, width: int, out: Single
) -> None:
    """Copy the bounds of n rows from ``first`` on and a panel to ``out`` [n · nq], flat."""
    used = np.uint64(min(width, nq - lane))
    for i in range(n):
        at, to = np.uint64(i * width), np.uint64((first + i) * nq + lane)
        for j in range(used):
            out[to + j] = bounds[at + j]


@jit
def is_sparse(x: Words, begin: int, end: int, lanes: int) -> bool:
    """Return whether rows like ``x[begin:end]`` are faster by their non-zero words."""
    panels, size = lanes / PANEL, end - begin
    return GATHER_COST * size + SPARSE_COST * panels * words_not_zero(x, begin, end) < panels * size


@jit(constants=("minimum",))
def bound_rows(
    minimum: bool, X: Words, numbers: Single, queries: PackedQueries, room: SparseWords, sink: Sink
) -> int:
    """Write the bounds of X [n, depth] and a batch of queries; return the number of pairs listed.

    ``numbers`` are those of ``bound_block``; ``room`` holds 256 rows, or n if that is less.
    """
    words, start, terms, wide, form = queries
    out, least, sums, marks, hits = sink
    hit_rows, hit_queries, hit_bounds = hits
    n, depth = X.shape
    four = marks.view(np.uint64)
    x, flat, bounds, count = X.reshape(-1), numbers.reshape(-1), sums.view(np.float32), ZERO
    for first in range(0, n, CHUNK_ROWS):
        last = min(n, first + CHUNK_ROWS)
        few = is_sparse(
            x, first * depth, (first + min(last - first, SAMPLE_ROWS)) * depth, start.size
        )
        if few:
            gather(x, first, last - first, depth, room)
        lane = ZERO
        while lane < start.size:
            width = PANEL if lane < wide else LANES
            for i in range(first, last, CACHED_SUMS // width):
                rows = min(last - i, CACHED_SUMS // width)
                if few and lane < wide:
                    sparse_wide(
                        room, i - first, i - first + rows, depth, minimum, words, start, lane, sums
                    )
                elif few:
                    sparse_narrow(
                        room, i - first, i - first + rows, depth, minimum, words, start, lane, sums
                    )
                elif lane < wide:
                    wide_sums(x, i, i + rows, depth, minimum, words, start, lane, sums)
                else:
                    narrow_sums(x, i, i + rows, depth, minimum, words, start, lane, sums)
                finish(sums, bounds, i, rows, flat, form, terms, lane, width, least, marks)
                if out.size:
                    copy_bounds(bounds, i, rows, form.nq, lane, width, out)
                else:
                    count = list_marked(
                        bounds, four, i, rows, lane, width, hit_rows, hit_queries, hit_bounds, count
                    )
            lane += width
    return count

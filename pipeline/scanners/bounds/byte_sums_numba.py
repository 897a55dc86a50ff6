"""Jitted functions that sum products or minima of bytes exactly: rows against query panels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.scanners.bounds.layout import LANES, PANEL, SparseWords
from mercore.pipeline.simd.dots import dot_bytes, load_dots, pack_filled, splat_word
from mercore.pipeline.simd.vectors import add, lesser_bytes, store

ONES = np.int32(0x01010101)  # four bytes of 1
TILE_ROWS = 8  # rows per step: their sums are kept in registers
V, WIDE, ONE = np.uint64(LANES), np.uint64(PANEL), np.uint64(1)

Words = NDArray[np.int32]


@jit(inline="always")
def add_word(total: Any, word: np.int32, y: Any, minimum: bool) -> Any:
    """Return a sum plus the products, or the minima, of a row's four bytes and sixteen lanes."""
    if minimum:
        return dot_bytes(total, lesser_bytes(splat_word(word), y), splat_word(ONES))
    return dot_bytes(total, splat_word(word), y)


@jit(inline="always")
def add_four_rows(sums: Any, x: Words, at: Any, w: Any, y: Any, minimum: bool) -> Any:
    """Return four sums plus those of word ``w`` of four rows, starting at ``at``, and 16 lanes."""
    return (
        add_word(sums[0], x[at[0] + w], y, minimum),
        add_word(sums[1], x[at[1] + w], y, minimum),
        add_word(sums[2], x[at[2] + w], y, minimum),
        add_word(sums[3], x[at[3] + w], y, minimum),
    )


@jit(inline="always")
def four_rows(first: int, last: int, deep: Any) -> Any:
    """Return the starts of four rows from ``first`` on; past ``last``, the last row is repeated."""
    p, q = np.uint64(min(first, last - 1)) * deep, np.uint64(min(first + 1, last - 1)) * deep
    return (
        p,
        q,
        np.uint64(min(first + 2, last - 1)) * deep,
        np.uint64(min(first + 3, last - 1)) * deep,
    )


@jit(inline="always")
def store_four(sums: Words, at: np.uint64, width: np.uint64, four: Any) -> None:
    """Store sixteen lanes of four rows of ``width``."""
    store(sums, at, four[0])
    store(sums, at + width, four[1])
    store(sums, at + width + width, four[2])
    store(sums, at + width + width + width, four[3])


@jit(constants=("minimum",))
def wide_sums(
    x: Words,
    first: int,
    last: int,
    depth: int,
    minimum: bool,
    words: Words,
    start: Words,
    lane: int,
    sums: Words,
) -> None:
    """Set ``sums`` [rows · 32] for rows ``first`` to ``last`` of x, flat, and 32 lanes."""
    deep = np.uint64(depth)
    base = np.uint64(lane) * deep
    s, t = load_dots(start, np.uint64(lane)), load_dots(start, np.uint64(lane) + V)
    for i in range(first, last, TILE_ROWS):
        p, q = four_rows(i, last, deep), four_rows(i + 4, last, deep)
        a, b, c, e = (s, s, s, s), (s, s, s, s), (t, t, t, t), (t, t, t, t)
        if minimum:
            for w in range(deep):
                y, z = load_dots(words, base + w * WIDE), load_dots(words, base + w * WIDE + V)
                a, b = add_four_rows(a, x, p, w, y, True), add_four_rows(b, x, q, w, y, True)
                c, e = add_four_rows(c, x, p, w, z, True), add_four_rows(e, x, q, w, z, True)
        else:
            for w in range(deep):
                y, z = load_dots(words, base + w * WIDE), load_dots(words, base + w * WIDE + V)
                a, b = add_four_rows(a, x, p, w, y, False), add_four_rows(b, x, q, w, y, False)
                c, e = add_four_rows(c, x, p, w, z, False), add_four_rows(e, x, q, w, z, False)
        at = np.uint64(i - first) * WIDE
        behind = at + WIDE + WIDE + WIDE + WIDE
        store_four(sums, at, WIDE, a)
        store_four(sums, behind, WIDE, b)
        store_four(sums, at + V, WIDE, c)
        store_four(sums, behind + V, WIDE, e)


@jit(constants=("minimum",))
def narrow_sums(
    x: Words,
    first: int,
    last: int,
    depth: int,
    minimum: bool,
    words: Words,
    start: Words,
    lane: int,
    sums: Words,
) -> None:
    """Set ``sums`` [rows · 16] for rows ``first`` to ``last`` of x, flat, and 16 lanes."""
    deep = np.uint64(depth)
    base, s = np.uint64(lane) * deep, load_dots(start, np.uint64(lane))
    for i in range(first, last, TILE_ROWS):
        p, q = four_rows(i, last, deep), four_rows(i + 4, last, deep)
        a, b = (s, s, s, s), (s, s, s, s)
        if minimum:
            for w in range(deep):
                y = load_dots(words, base + w * V)
                a, b = add_four_rows(a, x, p, w, y, True), add_four_rows(b, x, q, w, y, True)
        else:
            for w in range(deep):
                y = load_dots(words, base + w * V)
                a, b = add_four_rows(a, x, p, w, y, False), add_four_rows(b, x, q, w, y, False)
        at = np.uint64(i - first) * V
        store_four(sums, at, V, a)
        store_four(sums, at + V + V + V + V, V, b)


@jit(inline="always")
def add_to_two(sums: Any, word: np.int32, words: Words, at: np.uint64, minimum: bool) -> Any:
    """Return two sums plus those of a row's word and 32 lanes, which begin at ``at``."""
    y, z = load_dots(words, at), load_dots(words, at + V)
    return add_word(sums[0], word, y, minimum), add_word(sums[1], word, z, minimum)


@jit(constants=("minimum",))
def sparse_wide(
    rows: SparseWords,
    first: int,
    last: int,
    depth: int,
    minimum: bool,
    words: Words,
    start: Words,
    lane: int,
    sums: Words,
) -> None:
    """Set ``sums`` as ``wide_sums`` does, from the non-zero words of rows.

    Four words go to four sums: a single sum would wait for its own result.
    """
    values, places, counts, stride = rows
    zero = splat_word(np.int32(0))
    base, none = np.uint64(lane) * np.uint64(depth), (zero, zero)
    begin = load_dots(start, np.uint64(lane)), load_dots(start, np.uint64(lane) + V)
    for i in range(first, last):
        at = np.uint64(i * stride)
        a, b, c, e = begin, none, none, none
        for k in range(at, at + counts[i], np.uint64(4)):
            m, n, o = k + ONE, k + ONE + ONE, k + ONE + ONE + ONE
            a = add_to_two(a, values[k], words, base + np.uint64(places[k]) * WIDE, minimum)
            b = add_to_two(b, values[m], words, base + np.uint64(places[m]) * WIDE, minimum)
            c = add_to_two(c, values[n], words, base + np.uint64(places[n]) * WIDE, minimum)
            e = add_to_two(e, values[o], words, base + np.uint64(places[o]) * WIDE, minimum)
        to = np.uint64(i - first) * WIDE
        store(sums, to, add(add(a[0], b[0]), add(c[0], e[0])))
        store(sums, to + V, add(add(a[1], b[1]), add(c[1], e[1])))


@jit(constants=("minimum",))
def sparse_narrow(
    rows: SparseWords,
    first: int,
    last: int,
    depth: int,
    minimum: bool,
    words: Words,
    start: Words,
    lane: int,
    sums: Words,
) -> None:
    """Set ``sums`` as ``narrow_sums`` does, from the non-zero words of rows, in four sums."""
    values, places, counts, stride = rows
    zero = splat_word(np.int32(0))
    base, begin = np.uint64(lane) * np.uint64(depth), load_dots(start, np.uint64(lane))
    for i in range(first, last):
        at = np.uint64(i * stride)
        a, b, c, e = begin, zero, zero, zero
        for k in range(at, at + counts[i], np.uint64(4)):
            m, n, o = k + ONE, k + ONE + ONE, k + ONE + ONE + ONE
            a = add_word(a, values[k], load_dots(words, base + np.uint64(places[k]) * V), minimum)
            b = add_word(b, values[m], load_dots(words, base + np.uint64(places[m]) * V), minimum)
            c = add_word(c, values[n], load_dots(words, base + np.uint64(places[n]) * V), minimum)
            e = add_word(e, values[o], load_dots(words, base + np.uint64(places[o]) * V), minimum)
        store(sums, np.uint64(i - first) * V, add(add(a, b), add(c, e)))


@jit
def gather(x: Words, first: int, n: int, depth: int, rows: SparseWords) -> None:
    """Set ``rows`` to the non-zero words of n rows from ``first`` on of x, flat."""
    values, places, counts, stride = rows
    deep = np.uint64(depth)
    whole = deep - deep % V
    for i in range(np.uint64(n)):
        at, begin = (np.uint64(first) + i) * deep, i * np.uint64(stride)
        to = begin
        for w in range(np.uint64(0), whole, V):
            to += pack_filled(x, at + w, values, places, to, np.uint32(w))
        for w in range(whole, deep):
            word = x[at + w]
            values[to], places[to] = word, w
            to += np.uint64(word != 0)
        counts[i] = to - begin
        for k in range(to, to + np.uint64(3)):
            values[k], places[k] = 0, 0


@jit
def words_not_zero(x: Words, begin: int, end: int) -> int:
    """Return the number of non-zero words of ``x[begin:end]``."""
    count = 0
    for k in range(np.uint64(begin), np.uint64(end)):
        count += x[k] != 0
    return count

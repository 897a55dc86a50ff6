"""Jitted functions that scan binary codes of whole 64-bit words and keep the k best rows.

Rows pass in tiles. The first step lists the pairs within the k-th distance as it was before the
tile, eight at a time; ``insert_listed`` then counts their distances again and inserts them.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.bits import (
    EIGHT,
    add_distances,
    at_most,
    load_masked,
    load_words,
    population,
    rows_within,
    zero_words,
)
from mercore.pipeline.simd.vectors import lowest_bit, prefetch, store
from mercore.pipeline.topk_numba import insert

MAX_UNROLLED_WORDS = 8  # words per code, up to which functions are unrolled
TILE, FIRST_TILE = 1 << 12, 1 << 8  # rows: 128 KB of 256-bit codes stay in L2 for all queries
ROWS = 4  # rows compared with eight queries before one branch
AHEAD = 512  # words that are prefetched

Words = NDArray[np.uint64]


@jit
def pad_rows(codes: NDArray[np.uint8], width: int, masks: Words, words: Words) -> None:
    """Copy rows of ``width`` bytes, flat, to zero-padded rows of whole words.

    ``masks``, whole vectors, has the bits set that a row uses; ``words`` has room for one more mask
    at the end. A row is copied with the bytes behind it, which the next row overwrites.
    """
    count, n = (width + 7) // 8, codes.size // width
    fitting = (
        max(0, (codes.size - 8 * masks.size) // width + 1) if codes.size >= 8 * masks.size else 0
    )
    for row in range(np.uint64(fitting)):
        begin, at = row * np.uint64(width), row * np.uint64(count)
        prefetch(codes, begin + np.uint64(8 * AHEAD))
        for v in range(np.uint64(0), np.uint64(masks.size), np.uint64(EIGHT)):
            store(words, at + v, load_masked(codes, begin + np.uint64(8) * v, masks, v))
    words[fitting * count : n * count] = 0
    for row in range(fitting, n):
        for byte in range(width):
            value = np.uint64(codes[row * width + byte])
            words[row * count + byte // 8] |= value << np.uint64(8 * (byte % 8))


@cache
def batch_scan(count: int) -> Callable[..., None]:
    """Return the jitted function for rows of ``count`` words (0: any), eight queries at a time."""

    @jit
    def scan(
        words: Words,
        width: int,
        queries: Words,
        table: NDArray[np.float32],
        bits: int,
        first: int,
        scores: NDArray[np.float32],
        ids: NDArray[np.int64],
    ) -> None:
        """Keep the best of rows ``first``… for all queries.

        ``words`` flat [n · width]; ``queries`` flat [⌈nq / 8⌉ · width · 8]; ``table`` scores by
        distance; ``scores``, ``ids`` [nq, k].
        """
        fixed = np.uint64(count if count else width)
        n, nq, limits = words.size // width, scores.shape[0], np.empty(EIGHT, np.int64)
        rows, hits = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
        stop, tile = 0, FIRST_TILE
        while stop < n:
            start, stop = stop, min(n, stop + tile)
            for begin in range(0, nq, EIGHT):
                end = min(nq, begin + EIGHT)
                group = queries[begin * width : (begin + EIGHT) * width]
                set_limits(
                    scores[begin:end], ids[begin:end], first + start, table.size - 1, bits, limits
                )
                n_listed = list_near(
                    words, fixed, np.uint64(start), np.uint64(stop), group, limits, rows, hits
                )
                near = words, rows[:n_listed], hits
                insert_listed(
                    near,
                    group,
                    EIGHT,
                    table,
                    bits,
                    first,
                    limits,
                    scores[begin:end],
                    ids[begin:end],
                )
            tile = min(TILE, 2 * tile)

    return scan


@cache
def one_scan(count: int) -> Callable[..., None]:
    """Return the jitted function for rows of ``count`` words and one query."""

    @jit
    def scan(
        words: Words,
        width: int,
        query: Words,
        table: NDArray[np.float32],
        bits: int,
        first: int,
        scores: NDArray[np.float32],
        ids: NDArray[np.int64],
    ) -> None:
        """Keep the best of rows ``first``…; ``query`` is repeated 8 times; lists are [1, k]."""
        n, limits = words.size // count, np.empty(1, np.int64)
        rows, hits = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
        stop, tile, eight = 0, FIRST_TILE, np.uint64(EIGHT)
        while stop < n:
            start, stop = stop, min(n, stop + tile)
            set_limits(scores, ids, first + start, table.size - 1, bits, limits)
            n_listed, limit = np.uint64(0), limits[0]
            whole = np.uint64(stop - (stop - start) % EIGHT)
            for i in range(np.uint64(start), whole, eight):
                at = i * np.uint64(count)
                for line in range(np.uint64(AHEAD), np.uint64(AHEAD + EIGHT * count), eight):
                    prefetch(words, at + line)
                near = rows_within(words, at, query, limit, count)
                if near:
                    rows[n_listed], hits[n_listed] = i, near
                    n_listed += np.uint64(1)
            if whole < np.uint64(stop):
                rows[n_listed], hits[n_listed] = (
                    whole,
                    (np.uint64(1) << (np.uint64(stop) - whole)) - np.uint64(1),
                )
                n_listed += np.uint64(1)
            insert_listed(
                (words, rows[:n_listed], hits),
                query[:count],
                1,
                table,
                bits,
                first,
                limits,
                scores,
                ids,
            )
            tile = min(TILE, 2 * tile)

    return scan


@jit(inline="always")
def list_near(
    words: Words,
    width: Any,
    start: Any,
    stop: Any,
    queries: Words,
    limits: Any,
    rows: Words,
    hits: Words,
) -> Any:
    """List the first of each four rows with a pair within its limit; bit 8 j + q: row j, lane q."""
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(ROWS)
    eight, n_listed, most = np.uint64(EIGHT), np.uint64(0), load_words(limits, np.uint64(0))
    fours = stop - (stop - start) % four
    for i in range(start, fours, four):
        at = i * width
        a, b, c, d = zero_words(), zero_words(), zero_words(), zero_words()
        for w in range(width):
            query = load_words(queries, w * eight)
            a = add_distances(a, words[at + w], query)
            b = add_distances(b, words[at + width + w], query)
            c = add_distances(c, words[at + two * width + w], query)
            d = add_distances(d, words[at + three * width + w], query)
        near_a, near_b, near_c, near_d = (
            at_most(a, most),
            at_most(b, most),
            at_most(c, most),
            at_most(d, most),
        )
        if near_a | near_b | near_c | near_d:
            low, high = near_a | near_b << eight, near_c | near_d << eight
            rows[n_listed], hits[n_listed] = i, low | high << (two * eight)
            n_listed += one
    if fours < stop:
        rows[n_listed], hits[n_listed] = fours, (one << ((stop - fours) * eight)) - one
        n_listed += one
    return n_listed


@jit(inline="always")
def limit(score: np.float32, last: int, row: int, most: int, bits: int) -> int:
    """Return the greatest distance at which ``row`` and later rows may enter a list.

    ``score`` and ``last`` are the list's k-th. An equal distance enters a full list only before a
    later row.
    """
    if score == -np.inf:
        return most
    distance = int(np.rint((1.0 - float(score)) * bits))
    return distance if last < 0 or row < last else distance - 1


@jit
def set_limits(
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
    row: int,
    most: int,
    bits: int,
    limits: NDArray[np.int64],
) -> None:
    """Set the limits of up to eight queries for rows from ``row`` on; unused lanes get −1."""
    k = scores.shape[1]
    limits[:] = -1
    for query in range(scores.shape[0]):
        limits[query] = limit(scores[query, k - 1], ids[query, k - 1], row, most, bits)


@jit
def insert_listed(
    near: tuple[Words, Words, Words],
    queries: Words,
    lanes: int,
    table: NDArray[np.float32],
    bits: int,
    first: int,
    limits: NDArray[np.int64],
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Insert listed pairs that are within the limits, and update these; ``queries`` is flat."""
    words, rows, hits = near
    width, k, most = queries.size // lanes, scores.shape[1], table.size - 1
    for hit in range(rows.size):
        left = hits[hit]
        while left:
            bit = np.int64(lowest_bit(left))
            left &= left - np.uint64(1)
            row, query = np.int64(rows[hit]) + bit // lanes, bit % lanes
            distance = 0
            for w in range(width):
                distance += population(words[row * width + w] ^ queries[w * lanes + query])
            if distance <= limits[query]:
                insert(scores, ids, query, table[distance], first + row)
                limits[query] = limit(
                    scores[query, k - 1], ids[query, k - 1], first + row + 1, most, bits
                )

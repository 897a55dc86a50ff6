"""Jitted functions of product-quantisation codes for one query: a filter of 64 rows at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.scanners.pq_numba import ENTRIES, limit_of
from mercore.pipeline.simd.lookups import (
    ROW_OF_BYTE,
    ROW_OF_BYTE_OF_TWO,
    add_looked_up_1,
    add_looked_up_2,
    add_looked_up_any,
    bytes_are_looked_up,
)
from mercore.pipeline.simd.saturating import at_most, splat_64_bytes, zero_64_bytes
from mercore.pipeline.simd.vectors import lowest_bit, prefetch
from mercore.pipeline.topk_numba import ZERO, insert

ROWS = 64  # rows that are looked up at once
TILE = 1 << 13  # rows whose hits are rescored together, under an older limit
CODES = 8  # codes per word, and words per cache line
AHEAD = 1 << 10  # rows whose codes are prefetched
ORDER, ORDER_OF_TWO = np.array(ROW_OF_BYTE), np.array(ROW_OF_BYTE_OF_TWO)


@jit
def beats_plain_scan() -> bool:
    """Return whether this filter is faster than plain scoring on this processor."""
    return bool(bytes_are_looked_up())


@jit
def scan_one_filtered(
    codes: NDArray[np.uint8],
    table8: NDArray[np.uint8],
    table: NDArray[np.float32],
    ceiling: float,
    inverse: float,
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> int:
    """Keep the best of rows ``first``…, to the bit as ``scan_one``; return the rows rescored.

    ``codes`` [n, M], M a multiple of 8; ``table8``, ``table`` [M · 256]; ``ceiling`` is an upper
    limit of float32 scores, ``inverse`` 1 / Δ; ``scores``, ``ids`` [1, k], no k-th score below the
    one that Δ was made for. Rows after the last whole 64 are all scored in float32.
    """
    n, width = codes.shape
    words = codes.reshape(-1).view(np.uint64)
    starts, bits = np.empty(TILE // ROWS, np.int64), np.empty(TILE // ROWS, np.uint64)
    whole = n // ROWS * ROWS
    rescored, order = n - whole, ORDER_OF_TWO if width == 2 * CODES else ORDER
    for start in range(0, whole, TILE):
        stop = min(whole, start + TILE)
        limit = limit_of(ceiling, scores[0, -1], inverse)
        if width == CODES:
            count = reaching_1(words, width // CODES, start, stop, table8, limit, starts, bits)
        elif width == 2 * CODES:
            count = reaching_2(words, width // CODES, start, stop, table8, limit, starts, bits)
        else:
            count = reaching_any(words, width // CODES, start, stop, table8, limit, starts, bits)
        for hit in range(count):
            left = bits[hit]
            while left:
                row = starts[hit] + order[lowest_bit(left)]
                left &= left - np.uint64(1)
                score_one(codes, row, table, first, scores, ids)
                rescored += 1
    for row in range(whole, n):
        score_one(codes, row, table, first, scores, ids)
    return int(rescored)


def reaching_of(fixed: int) -> Any:
    """Make ``reaching`` for rows of ``fixed`` words (0: any): it lists each 64 rows with a hit."""

    @jit
    def reaching(
        words: NDArray[np.uint64],
        width: int,
        start: int,
        stop: int,
        tables: NDArray[np.uint8],
        limit: np.uint8,
        starts: NDArray[np.int64],
        bits: NDArray[np.uint64],
    ) -> int:
        most, stride, slot = splat_64_bytes(np.int8(limit)), np.uint64(fixed if fixed else width), 0
        for i in range(np.uint64(start), np.uint64(stop), np.uint64(ROWS)):
            sums = zero_64_bytes()
            ahead = (i + np.uint64(AHEAD)) * stride
            for line in range(ahead, ahead + np.uint64(ROWS) * stride, np.uint64(CODES)):
                prefetch(words, line)
            for word in range(np.uint64(0), stride, np.uint64(max(fixed, 1))):
                base = word * np.uint64(CODES * ENTRIES)
                at = i * stride + word
                if fixed == 1:
                    sums = add_looked_up_1(sums, words, at, stride, tables, base)
                elif fixed == 2:
                    sums = add_looked_up_2(sums, words, at, stride, tables, base)
                else:
                    sums = add_looked_up_any(sums, words, at, stride, tables, base)
            hits = at_most(sums, most)
            if hits:
                starts[slot] = np.int64(i)
                bits[slot] = hits
                slot += 1
        return slot

    return reaching


reaching_1, reaching_2, reaching_any = reaching_of(1), reaching_of(2), reaching_of(0)


@jit
def score_one(
    codes: NDArray[np.uint8],
    row: int,
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score a row in float32 and insert it if it is among the k best."""
    total = table[codes[row, 0]]
    for j in range(1, codes.shape[1]):
        total = total + table[j * ENTRIES + np.int64(codes[row, j])]
    if total >= scores[0, -1]:
        insert(scores, ids, ZERO, total, first + row)

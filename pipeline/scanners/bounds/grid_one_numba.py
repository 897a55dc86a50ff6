"""Jitted functions that list the rows within reach of one query by look-ups, 64 rows at once.

A row's point v is not decoded: ⟨u, v⟩ and ‖v‖² are sums over its codes. Whole numbers of steps,
rounded down, leave few rows; those are tested in full, and listed as ``grid_numba`` lists them.

A number of steps takes two bytes, high · 2^s + low, and the sums of each fit into a byte: sums of
low bytes never exceed 255, and sums of high bytes stop there. So a sum is at most a limit
h · 2^s + l if the sum of high bytes is at most h, and that of low bytes at most l + 2^s times what
the sum of high bytes is below h.
"""

# mypy: disable-error-code="call-arg"

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.scanners.bounds.grid_numba import (
    Bytes,
    Near,
    QueryPoints,
    Tests,
    Whole,
    keep_near,
)
from mercore.pipeline.simd.lookups import (
    ROW_OF_BYTE,
    add_looked_up_any,
    bytes_are_looked_up,
    look_up_rows,
)
from mercore.pipeline.simd.saturating import add_up_to_255, at_most, zero_64_bytes
from mercore.pipeline.simd.vectors import lowest_bit, prefetch, subtract
from mercore.pipeline.topk_numba import ZERO

ENTRIES, CODES = 256, 8  # entries per sub-quantizer; codes per word
ROWS = 64  # rows that are looked up at once
AHEAD = 512  # rows that are prefetched: the hardware does not follow 64 rows at once
ORDER = np.array(ROW_OF_BYTE)


class LookUps(NamedTuple):
    """A query's tables over all centroids v of all sub-quantizers, flat [M · 256], and its limits.

    ``own`` int32: 2 ⟨u, v⟩ − ‖v‖²; ``fine`` int32: ⟨w, v⟩; ``norms`` int32: ‖v‖². ``high`` and
    ``low`` uint8: how far ``own`` is below its sub-quantizer's greatest, in steps, rounded down;
    ``low`` are its ``low_bits`` lowest bits, ``high`` the rest, 255 at most. Per cell,
    ``high_limit`` and ``low_limit`` uint8[256] are the greatest sum, both 255 for any, and
    ``least`` int32[256] the least sum of ``own``.
    """

    own: Whole
    fine: Whole
    norms: Whole
    high: Bytes
    low: Bytes
    low_bits: int
    high_limit: Bytes
    low_limit: Bytes
    least: Whole


@jit
def beats_decoding() -> bool:
    """Return whether these look-ups are faster than decoding, on this processor."""
    return bool(bytes_are_looked_up())


@jit
def sum_of(table: Whole, line: Bytes) -> int:
    """Return the sum of a table [M · 256] over a row's codes."""
    total = ZERO
    for j in range(len(line)):
        total += int(table[j * ENTRIES + int(line[j])])
    return total


@jit(constants=("form",))
def keep_row(
    form: int,
    row: int,
    codes: Bytes,
    cells: Bytes,
    numbers: NDArray[np.float32],
    query: int,
    tables: LookUps,
    points: QueryPoints,
    tests: Tests,
    near: Near,
    count: int,
) -> int:
    """List a row if it is within reach; return the new count."""
    line = codes[row]
    own = sum_of(tables.own, line)
    if own < tables.least[cells[row]]:
        return count
    fine, norm = sum_of(tables.fine, line), sum_of(tables.norms, line)
    product = (own + norm) // 2
    return int(
        keep_near(form, row, query, product, fine, norm, points, numbers, tests, near, count)
    )


@jit(constants=("form",))
def list_near_one(
    form: int,
    codes: Bytes,
    cells: Bytes,
    numbers: NDArray[np.float32],
    query: int,
    tables: LookUps,
    points: QueryPoints,
    tests: Tests,
    near: Near,
    count: int,
) -> int:
    """List the rows within reach of a query as far as they fit; return the new count.

    ``codes`` uint8[n, M], M a multiple of 8; the other arguments are those of ``list_near``.
    """
    n, width = codes.shape
    words, stride = codes.reshape(-1).view(np.uint64), np.uint64(width // CODES)
    whole = n // ROWS * ROWS
    for start in range(0, whole, ROWS):
        high, low = zero_64_bytes(), zero_64_bytes()
        ahead = np.uint64(start + AHEAD) * stride
        for line in range(ahead, ahead + np.uint64(ROWS) * stride, np.uint64(CODES)):
            prefetch(words, line)
        for word in range(stride):
            at, base = np.uint64(start) * stride + word, word * np.uint64(CODES * ENTRIES)
            high = add_looked_up_any(high, words, at, stride, tables.high, base)
            low = add_looked_up_any(low, words, at, stride, tables.low, base)
        limit = look_up_rows(cells, start, tables.high_limit)
        left = subtract(limit, high)
        for _ in range(tables.low_bits):
            left = add_up_to_255(left, left)
        left = add_up_to_255(left, look_up_rows(cells, start, tables.low_limit))
        hits = at_most(high, limit) & at_most(low, left)
        while hits:
            row = start + ORDER[lowest_bit(hits)]
            hits &= hits - np.uint64(1)
            count = keep_row(
                form, row, codes, cells, numbers, query, tables, points, tests, near, count
            )
    for row in range(whole, n):
        count = keep_row(
            form, row, codes, cells, numbers, query, tables, points, tests, near, count
        )
    return count

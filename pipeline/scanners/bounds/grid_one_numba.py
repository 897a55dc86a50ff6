"""Jitted functions that list the rows within reach of one query by look-ups, 64 rows at once.

A row's point v is not decoded: ⟨u, v⟩ and ‖v‖² are sums over its codes. Sums of bytes, rounded
down, leave few rows; those are tested by whole numbers, and listed as ``grid_numba`` lists them.
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
from mercore.pipeline.simd.lookups import ROW_OF_BYTE, add_looked_up_any, bytes_are_looked_up
from mercore.pipeline.simd.saturating import at_most, load_64_bytes, zero_64_bytes
from mercore.pipeline.simd.vectors import lowest_bit
from mercore.pipeline.topk_numba import ZERO

ENTRIES, CODES = 256, 8  # entries per sub-quantizer; codes per word
ROWS = 64  # rows that are looked up at once
ORDER = np.array(ROW_OF_BYTE)


class LookUps(NamedTuple):
    """A query's tables over all centroids v of all sub-quantizers, flat [M · 256], and its limits.

    ``own`` int32: 2 ⟨u, v⟩ − ‖v‖²; ``fine`` int32: ⟨w, v⟩; ``norms`` int32: ‖v‖². ``small`` uint8:
    how far ``own`` is below its sub-quantizer's greatest, in steps, rounded down, 255 at most.
    Per cell, ``most`` uint8[256] is the greatest sum of ``small``, 255 for any, and ``least``
    int32[256] the least sum of ``own``.
    """

    own: Whole
    fine: Whole
    norms: Whole
    small: Bytes
    most: Bytes
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
    most = np.empty(ROWS, np.uint8)
    whole = n // ROWS * ROWS
    for start in range(0, whole, ROWS):
        sums = zero_64_bytes()
        for word in range(stride):
            at, base = np.uint64(start) * stride + word, word * np.uint64(CODES * ENTRIES)
            sums = add_looked_up_any(sums, words, at, stride, tables.small, base)
        for b in range(ROWS):
            most[b] = tables.most[cells[start + ORDER[b]]]
        hits = at_most(sums, load_64_bytes(most, np.uint64(0)))
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

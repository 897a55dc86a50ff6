"""Integer loops over a block of bytes: 64 minima an instruction, sums that do not round."""

# mypy: disable-error-code="call-arg, no-untyped-call, var-annotated"

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.jit import jit
from mercore.pipeline.simd.vectors import (
    INT16,
    add_bytes,
    add_to_words,
    lesser_bytes,
    load_int16,
    splat_four_bytes,
    zero_int16,
)

LANES = INT16.count
COLUMNS = LANES // 2  # of a vector: four bytes each
PANEL = 4 * COLUMNS
TILE_ROWS = 3
STEPS = 128  # words of four bytes whose minima a uint16 holds: 2 · 255 · 128 < 2¹⁶

Words = NDArray[np.int32]


@jit
def pack_columns(Y: Words, first: int, panel: Words) -> None:
    """Copy rows ``first``… of ``Y`` [m, words] to the columns of ``panel`` [words · 64]; zeros where there are none."""
    m, words = Y.shape
    flat, deep, wide = Y.reshape(-1), np.uint64(words), np.uint64(PANEL)
    for j in range(np.uint64(PANEL)):
        column = np.uint64(first) + j
        for w in range(deep):
            panel[w * wide + j] = flat[column * deep + w] if column < np.uint64(m) else np.int32(0)


@jit(inline="always")
def load_four(halves: NDArray[np.int16], at: np.uint64) -> Any:
    """Return 128 int16 as four vectors."""
    v = np.uint64(LANES)
    return (
        load_int16(halves, at),
        load_int16(halves, at + v),
        load_int16(halves, at + v + v),
        load_int16(halves, at + v + v + v),
    )


@jit(inline="always")
def add_four(sums: Any, word: np.int32, y: Any) -> Any:
    """Return four sums, the minima of a row's four bytes and those of 64 columns added."""
    x = splat_four_bytes(word)
    return (
        add_bytes(sums[0], lesser_bytes(x, y[0])),
        add_bytes(sums[1], lesser_bytes(x, y[1])),
        add_bytes(sums[2], lesser_bytes(x, y[2])),
        add_bytes(sums[3], lesser_bytes(x, y[3])),
    )


@jit(inline="always")
def widen_four(totals: Words, at: np.uint64, sums: Any) -> None:
    """Add four vectors of sums to 64 totals."""
    v = np.uint64(COLUMNS)
    add_to_words(totals, at, sums[0])
    add_to_words(totals, at + v, sums[1])
    add_to_words(totals, at + v + v, sums[2])
    add_to_words(totals, at + v + v + v, sums[3])


@jit
def intersection_panel(
    X: Words, panel: NDArray[np.int16], totals: Words, out: NDArray[np.int32], first: int, width: int
) -> None:
    """Set ``width`` columns of ``out`` from ``first`` on to Σ min of rows X [n, words] and a panel's columns."""
    n, words = X.shape
    x, flat, m = X.reshape(-1), out.reshape(-1), out.shape[1]
    zero, wide = zero_int16(), np.uint64(PANEL)
    for i in range(0, n, TILE_ROWS):
        p, q = np.uint64(i * words), np.uint64(min(i + 1, n - 1) * words)
        r = np.uint64(min(i + 2, n - 1) * words)  # the last row stands in for those that are not
        for t in range(totals.size):
            totals[t] = 0
        for start in range(0, words, STEPS):
            a, b, c = (zero, zero, zero, zero), (zero, zero, zero, zero), (zero, zero, zero, zero)
            for w in range(np.uint64(start), np.uint64(min(words, start + STEPS))):
                y = load_four(panel, w * (wide + wide))
                a, b, c = add_four(a, x[p + w], y), add_four(b, x[q + w], y), add_four(c, x[r + w], y)
            widen_four(totals, np.uint64(0), a)
            widen_four(totals, wide, b)
            widen_four(totals, wide + wide, c)
        for j in range(min(TILE_ROWS, n - i)):
            begin, at = np.uint64(j * PANEL), np.uint64((i + j) * m + first)
            for t in range(np.uint64(width)):
                flat[at + t] = totals[begin + t]


@jit
def intersections(X: Words, Y: Words, panel: Words, totals: Words, out: NDArray[np.int32]) -> None:
    """Set ``out`` [n, m] to Σ min of the bytes of X [n, words] and Y [m, words]."""
    m = Y.shape[0]
    for first in range(0, m, PANEL):
        pack_columns(Y, first, panel)
        intersection_panel(X, panel.view(np.int16), totals, out, first, min(PANEL, m - first))

"""The projection of kernel values in float64, with one order of addition in every block."""

# mypy: disable-error-code="call-arg"

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.vectors import (
    FLOAT64,
    add,
    load_float64,
    multiply,
    splat_float64,
    store,
    zero_float64,
)

VECTOR = FLOAT64.count
PANEL = 4 * VECTOR  # columns whose sums of four rows fill half of the registers
ROWS = 4

Values = NDArray[np.float64]
Four = tuple[Any, Any, Any, Any]


@jit
def project(scores: Values, panels: Values, out: Values) -> None:
    """Set ``out`` [n, P · 32] to scores [n, M] times panels [P, M, 32], landmarks ascending."""
    n, landmarks = scores.shape
    width, flat, flat_out = np.uint64(out.shape[1]), panels.reshape(-1), out.reshape(-1)
    whole = n - n % ROWS
    for panel in range(panels.shape[0]):
        begin, column = np.uint64(panel * landmarks * PANEL), np.uint64(panel * PANEL)
        for i in range(0, whole, ROWS):
            p, q, r, s = four_zeros(), four_zeros(), four_zeros(), four_zeros()
            for k in range(landmarks):
                line = load_four(flat, begin + np.uint64(k) * np.uint64(PANEL))
                p = with_products(p, line, scores[i, k])
                q = with_products(q, line, scores[i + 1, k])
                r = with_products(r, line, scores[i + 2, k])
                s = with_products(s, line, scores[i + 3, k])
            for j, sums in enumerate((p, q, r, s)):
                store_four(flat_out, np.uint64(i + j) * width + column, sums)
        for i in range(whole, n):
            p = four_zeros()
            for k in range(landmarks):
                p = with_products(
                    p, load_four(flat, begin + np.uint64(k) * np.uint64(PANEL)), scores[i, k]
                )
            store_four(flat_out, np.uint64(i) * width + column, p)


@jit(inline="always")
def four_zeros() -> Four:
    """Return four vectors of zeros."""
    return zero_float64(), zero_float64(), zero_float64(), zero_float64()


@jit(inline="always")
def load_four(array: Values, at: Any) -> Four:
    """Return four consecutive vectors."""
    v = np.uint64(VECTOR)
    return (
        load_float64(array, at),
        load_float64(array, at + v),
        load_float64(array, at + v + v),
        load_float64(array, at + v + v + v),
    )


@jit(inline="always")
def store_four(array: Values, at: Any, vectors: Four) -> None:
    """Store four consecutive vectors."""
    for j, vector in enumerate(vectors):
        store(array, at + np.uint64(j * VECTOR), vector)


@jit(inline="always")
def with_products(sums: Four, line: Four, score: float) -> Four:
    """Return sums plus a line of the projection times a score.

    Each product and each sum is rounded.
    """
    s, (a, b, c, d), (e, f, g, h) = splat_float64(score), sums, line
    return (
        add(a, multiply(e, s)),
        add(b, multiply(f, s)),
        add(c, multiply(g, s)),
        add(d, multiply(h, s)),
    )

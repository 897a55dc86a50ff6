"""Jitted functions that scan sparse codes: α look-ups per row and query, the k best kept."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.vectors import (
    FLOAT32,
    add,
    exceeds,
    load_float32,
    lowest_bit,
    multiply,
    splat_float32,
    store,
    zero_float32,
)
from mercore.pipeline.topk_numba import ZERO, insert

PANEL = FLOAT32.count  # queries per vector of sums: their table, 64 bytes per atom, stays in L2


@jit
def row_factors(
    scales: NDArray[np.uint16],
    residuals: NDArray[np.uint16],
    powers: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Set ``out`` [n] to scales times ``powers[residual]``; both are given as bits of float16."""
    for i in range(np.uint64(out.size)):
        out[i] = widened(scales[i]) * powers[residuals[i]]


@jit
def multiply_weights(
    weights: NDArray[np.number], factors: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Set ``out`` [n, α] to weights times their rows' factors, in float32."""
    for i in range(np.uint64(weights.shape[0])):
        for a in range(np.uint64(weights.shape[1])):
            out[i, a] = np.float32(weights[i, a]) * factors[i]


@jit(inline="always")
def widened(half: np.uint16) -> np.float32:
    """Return a non-negative float16, given as bits, as float32: shift, correct the exponent."""
    return np.int32(np.int32(half) << np.int32(13)).view(np.float32) * np.float32(2.0**112)


@jit(inline="always")
def half_square(half: np.uint16) -> np.float32:
    """Return ρ² / 2 of a non-negative float16, given as bits: float32 holds it exactly."""
    residual = widened(half)
    return residual * residual * np.float32(0.5)


@jit
def half_squares(halves: NDArray[np.uint16], out: NDArray[np.float32]) -> None:
    """Set ``out`` [n] to ρ² / 2 of float16 values, given as bits."""
    for i in range(np.uint64(halves.size)):
        out[i] = half_square(halves[i])


@jit
def scan_batch(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.float32],
    biases: NDArray[np.float32] | None,
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score rows ``first``… for Q queries at once and keep the best.

    ``atoms``, ``weights`` [n, α]; ``biases`` [n], added to rows' sums, or None; ``table`` [⌈Q /
    16⌉, m, 16] in panels: one atom loads 16 neighbouring entries; ``scores``, ``ids`` [Q, k].
    Products are added in atom order, then the bias: the same bits as ``scan_one``.
    """
    for panel in range(table.shape[0]):
        begin, end = panel * PANEL, min((panel + 1) * PANEL, scores.shape[0])
        scan_panel(
            atoms,
            weights,
            biases,
            table[panel].reshape(-1),
            first,
            scores[begin:end],
            ids[begin:end],
        )


@jit
def scan_panel(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.float32],
    biases: NDArray[np.float32] | None,
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score rows for up to 16 queries, ``table`` flat [m · 16]."""
    flat, flat_weights, alpha = atoms.reshape(-1), weights.reshape(-1), np.uint64(atoms.shape[1])
    least, sums = np.full(PANEL, np.inf, np.float32), np.empty(PANEL, np.float32)
    for query in range(scores.shape[0]):  # an assignment of slices takes seconds to compile
        least[query] = scores[query, -1]
    for i in range(np.uint64(atoms.shape[0])):
        total = zero_float32()
        for a in range(i * alpha, (i + np.uint64(1)) * alpha):
            entries = load_float32(table, np.uint64(flat[a]) * np.uint64(PANEL))
            total = add(total, multiply(splat_float32(flat_weights[a]), entries))
        if biases is not None:  # decided at compile time
            total = add(total, splat_float32(biases[i]))
        hits = np.uint64(exceeds(total, load_float32(least, 0)))
        if hits:
            store(sums, 0, total)
            while hits:
                query = np.int64(lowest_bit(hits))
                hits &= hits - np.uint64(1)
                insert(scores, ids, query, sums[query], first + np.int64(i))
                least[query] = scores[query, -1]


@jit
def scan_one(
    atoms: NDArray[np.uint16],
    weights: NDArray[np.float32],
    biases: NDArray[np.float32] | None,
    table: NDArray[np.float32],
    first: int,
    scores: NDArray[np.float32],
    ids: NDArray[np.int64],
) -> None:
    """Score rows ``first``… for one query, ``table`` [m]; keep the best in lists [1, k]."""
    n, alpha = atoms.shape
    least = scores[0, -1]
    for i in range(n):
        total = np.float32(0)
        for a in range(alpha):
            total = total + weights[i, a] * table[atoms[i, a]]
        if biases is not None:
            total = total + biases[i]
        if total > least:
            insert(scores, ids, ZERO, total, first + i)
            least = scores[0, -1]

"""Jitted functions of the dense scan: widening of float16, and the inner products of one point."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.simd.columns import FOUR, SIXTEEN, add_four_products, add_products
from mercore.pipeline.simd.vectors import prefetch, store, zero_float32

ROWS = 2 * SIXTEEN  # two sums per step: a single one would wait for its own result
SIGN, EXPONENT, MAGNITUDE = np.uint32(0x8000), np.uint32(0x7C00), np.uint32(0x7FFF)  # of a float16
INFINITY = np.uint32(0x7F800000)  # the bits of a float32


@jit
def widen(halves: NDArray[np.uint16], out: NDArray[np.float32]) -> None:
    """Set ``out`` [n] to float16 values, given as bits: shift them, then correct the exponent."""
    for i in range(np.uint64(out.size)):
        half = np.uint32(halves[i])
        shifted = np.uint32((half & MAGNITUDE) << np.uint32(13))
        corrected = np.float32(shifted.view(np.float32) * np.float32(2.0**112)).view(np.uint32)
        bits = shifted | INFINITY if half & EXPONENT == EXPONENT else corrected
        out[i] = np.uint32(bits | (half & SIGN) << np.uint32(16)).view(np.float32)


@jit
def score_point(
    rows: NDArray[np.float32], point: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Set ``out`` [n] to inner products of rows, flat [n · E], and a point [E]; 32 divides n.

    Each has the same bits as in ``blocks_numba.dense_panel``.
    """
    deep, sixteen, four = np.uint64(point.size), np.uint64(SIXTEEN), np.uint64(FOUR)
    whole = deep - deep % four
    for i in range(np.uint64(0), np.uint64(out.size), np.uint64(ROWS)):
        at = i * deep
        other, behind = at + sixteen * deep, at + np.uint64(ROWS) * deep
        a, b = zero_float32(), zero_float32()
        for k in range(np.uint64(0), whole, four):
            for line in range(np.uint64(0), np.uint64(ROWS) * four, sixteen):
                prefetch(rows, behind + np.uint64(ROWS) * k + line)
            a = add_four_products(a, rows, at + k, deep, point, k)
            b = add_four_products(b, rows, other + k, deep, point, k)
        for k in range(whole, deep):
            a = add_products(a, rows, at + k, deep, point[k])
            b = add_products(b, rows, other + k, deep, point[k])
        store(out, i, a)
        store(out, i + sixteen, b)

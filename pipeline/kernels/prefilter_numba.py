"""Sums of float32 terms of chosen pairs, sixteen dimensions at a time."""

# mypy: disable-error-code="call-arg, no-untyped-call, var-annotated"

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit
from mercore.pipeline.kernels.blocks_numba import VECTOR
from mercore.pipeline.kernels.terms_numba import with_terms
from mercore.pipeline.simd.vectors import (
    add,
    load_float32,
    load_widened,
    multiply,
    multiply_add,
    splat_float32,
    square_root,
    store,
    sum_of,
    zero_float32,
)

AS_IT_IS, SUM_ONE, ROOTS, NORM_ONE = range(4)  # how a row is scaled before its terms are summed
MIN_TOTAL, MAX_TOTAL = np.float32(2.0**-100), np.float32(2.0**100)  # a sum between loses no digits

Single = NDArray[np.float32]
Raw = NDArray[np.uint8 | np.int8 | np.uint16 | np.float32]
Ids = NDArray[np.int64]


@jit(inline="always")
def widen_row(flat: Any, begin: Any, d: Any, rest: Any, out: Single) -> None:
    """Set ``out`` [stride] to the d elements of ``flat`` from ``begin`` on, then zeros.

    Elements are uint8, int8, float32 or the bits of float16. ``rest`` is a buffer of sixteen
    elements, zeros from d modulo 16 on.
    """
    step = np.uint64(VECTOR)
    whole = d - d % step
    for v in range(np.uint64(0), whole, step):
        store(out, v, load_widened(flat, begin + v))
    if whole < d:
        for k in range(whole, d):
            rest[k - whole] = flat[begin + k]
        store(out, whole, load_widened(rest, np.uint64(0)))


@jit(inline="always")
def scale_row(scaling: int, row: Single) -> None:
    """Scale a row [stride] with zeros behind its dimensions.

    A row that may lose digits becomes NaN.
    """
    stride, step = np.uint64(row.size), np.uint64(VECTOR)
    sums = zero_float32()
    for v in range(np.uint64(0), stride, step):
        x = load_float32(row, v)
        sums = multiply_add(x, x, sums) if scaling == NORM_ONE else add(sums, x)
    total = sum_of(sums)
    factor = np.float32(1) / (np.sqrt(total) if scaling == NORM_ONE else total)
    if not MIN_TOTAL < total < MAX_TOTAL:
        factor = np.float32(np.nan)
    for v in range(np.uint64(0), stride, step):
        x = multiply(load_float32(row, v), splat_float32(factor))
        store(row, v, square_root(x) if scaling == ROOTS else x)


@jit(inline="always")
def sum_of_terms(terms: int, row: Single, queries: Single, begin: Any) -> Any:
    """Return the sum of terms of a row [stride] and the query at ``begin`` of ``queries``."""
    total = zero_float32()
    for v in range(np.uint64(0), np.uint64(row.size), np.uint64(VECTOR)):
        total = with_terms(terms, total, load_float32(row, v), load_float32(queries, begin + v))
    return sum_of(total)


@jit(error_model="numpy")
def sum_pairs(
    form: tuple[int, int], X: Raw, rows: Ids, Y: Single, queries: Ids, row: Single, out: Single
) -> None:
    """Set ``out[p]`` to the sum of the terms of ``X[rows[p]]`` and ``Y[queries[p]]``, in float32.

    Parameters
    ----------
    form : which terms, and how rows are scaled
    X : uint8, int8, float32, or uint16 (the bits of float16) [n, d], raw
    rows, queries : int64[p]
        ``rows`` ascending: a row is widened and scaled once.
    Y : float32[nq, stride], prepared queries, zeros behind their dimensions
    row : float32[stride]
        A buffer for the row at hand.
    """
    terms, scaling = form
    x_flat, y_flat, rest = X.reshape(-1), Y.reshape(-1), np.zeros(VECTOR, X.dtype)
    d, stride, current = np.uint64(X.shape[1]), np.uint64(Y.shape[1]), np.int64(-1)
    for p in range(out.size):
        if rows[p] != current:
            current = rows[p]
            widen_row(x_flat, np.uint64(current) * d, d, rest, row)
            if scaling != AS_IT_IS:
                scale_row(scaling, row)
        out[p] = sum_of_terms(terms, row, y_flat, np.uint64(queries[p]) * stride)

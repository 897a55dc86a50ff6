"""Float32 loops over chosen pairs of rows: sixteen dimensions at a time, rows scaled as their kernel wants them."""

# mypy: disable-error-code="call-arg, no-untyped-call, var-annotated"

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.kernels.blocks_numba import TINY, VECTOR
from pipeline.kernels.elementary_numba import log2_vector
from pipeline.kernels.loops_numba import CHI2, INTERSECTION, JENSEN_SHANNON, PRODUCT
from pipeline.simd.vectors import (
    add,
    divide,
    lesser,
    load_float32,
    load_halves,
    multiply,
    multiply_add,
    splat_float32,
    square_root,
    store,
    subtract,
    sum_of,
    zero_float32,
)

AS_IT_IS, SUM_ONE, ROOTS, NORM_ONE = range(4)  # how a kernel wants its rows
LEAST, MOST = np.float32(2.0**-100), np.float32(2.0**100)  # of a sum: beyond it, digits may be lost

Single = NDArray[np.float32]
Ids = NDArray[np.int64]


@njit(nogil=True, cache=True)
def widen_rows(halves: NDArray[np.uint16], some: Ids, out: Single) -> None:
    """Set the first rows of ``out`` [·, stride] to the named ones of float16 [n, d], given as their bits."""
    flat, room = halves.reshape(-1), out.reshape(-1)
    d, stride, step = np.uint64(halves.shape[1]), np.uint64(out.shape[1]), np.uint64(VECTOR)
    whole, rest = d - d % step, np.zeros(VECTOR, np.uint16)
    for i in range(np.uint64(some.size)):
        begin, to = np.uint64(some[i]) * d, i * stride
        for v in range(np.uint64(0), whole, step):
            store(room, to + v, load_halves(flat, begin + v))
        if whole < d:
            for k in range(whole, d):
                rest[k - whole] = flat[begin + k]
            store(room, to + whole, load_halves(rest, 0))


@njit(nogil=True, cache=True, error_model="numpy")
def scale_rows(scaling: int, X: Single, n: int) -> None:
    """Scale the first n rows of X [·, stride], zeros behind their dimensions; one that may lose digits becomes NaN."""
    if scaling == AS_IT_IS:
        return
    flat, stride, step = X.reshape(-1), np.uint64(X.shape[1]), np.uint64(VECTOR)
    for i in range(np.uint64(n)):
        begin, sums = i * stride, zero_float32()
        for v in range(begin, begin + stride, step):
            x = load_float32(flat, v)
            sums = multiply_add(x, x, sums) if scaling == NORM_ONE else add(sums, x)
        total = sum_of(sums)
        factor = np.float32(1) / (np.sqrt(total) if scaling == NORM_ONE else total)
        if not LEAST < total < MOST:
            factor = np.float32(np.nan)
        for v in range(begin, begin + stride, step):
            x = multiply(load_float32(flat, v), splat_float32(factor))
            store(flat, v, square_root(x) if scaling == ROOTS else x)


@njit(nogil=True, cache=True, inline="always")
def with_terms(terms: int, total: Any, x: Any, y: Any) -> Any:
    """Return ``total`` + the terms of sixteen dimensions."""
    if terms == CHI2:
        return add(total, divide(multiply(add(x, x), y), add(add(x, y), splat_float32(TINY))))
    if terms == INTERSECTION:
        return add(total, lesser(y, x))  # NaN where x is
    if terms == PRODUCT:
        return multiply_add(x, y, total)
    if terms == JENSEN_SHANNON:
        both = add(x, y)
        apart = multiply_add(x, log2_vector(x), multiply(y, log2_vector(y)))
        return add(total, subtract(multiply(both, log2_vector(both)), apart))
    apart = subtract(x, y)
    return multiply_add(apart, apart, total)


@njit(nogil=True, cache=True, error_model="numpy")
def sum_pairs(terms: int, X: Single, Y: Single, x_rows: Ids, y_rows: Ids, first: int, out: Single) -> None:
    """Set ``out[p]`` to the sum of the terms of ``X[x_rows[p] - first]`` and ``Y[y_rows[p]]``, both [·, stride]."""
    x_flat, y_flat = X.reshape(-1), Y.reshape(-1)
    stride, step = np.uint64(X.shape[1]), np.uint64(VECTOR)
    for p in range(out.size):
        x_begin, y_begin = np.uint64(x_rows[p] - first) * stride, np.uint64(y_rows[p]) * stride
        total = zero_float32()
        for v in range(np.uint64(0), stride, step):
            total = with_terms(terms, total, load_float32(x_flat, x_begin + v), load_float32(y_flat, y_begin + v))
        out[p] = sum_of(total)

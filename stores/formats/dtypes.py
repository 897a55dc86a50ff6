"""Dtypes of stored numbers, and their conversion to uint8, int8, float16 or float32."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError

KEPT = ("u1", "i1", "f2", "f4")
CONVERTED = ("i2", "i4", "i8", "u2", "u4", "u8", "f8")
FLOAT32_BITS = 24


def returned_dtype(stored: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the dtype in which ``Source.read`` returns numbers that are stored as ``stored``.

    uint8, int8, float16 and float32 stay; bool becomes uint8; other integers and float64 become
    float32.

    Raises
    ------
    FormatError
        If ``stored`` is anything else (complex, long double, text, objects, records, dates).
    """
    kind = f"{stored.kind}{stored.itemsize}"
    if kind in KEPT:
        return stored.newbyteorder("=")
    if kind == "b1":
        return np.dtype(np.uint8)
    if kind in CONVERTED:
        return np.dtype(np.float32)
    raise FormatError(
        f"{name}: the numbers are {stored}, expected bool, integers, float16, float32 or float64. "
        "Fix: convert the file to float32."
    )


def convert(block: NDArray[Any], dtype: np.dtype[Any], *, name: str, first: int) -> NDArray[Any]:
    """Convert ``block``, whose first row is row ``first`` of ``name``, to ``dtype``.

    float64 is rounded to the nearest float32. An integer without an exact float32 is refused.

    Raises
    ------
    InputError
        If a finite float64 would become infinite, or an integer has no exact float32.
    """
    if dtype != np.float32 or block.dtype.itemsize < 4:  # one or two bytes always fit
        return block.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        converted = block.astype(dtype, copy=False)
    if block.dtype.kind == "f":
        bad = (
            np.isinf(converted) & ~np.isinf(block)
            if block.dtype.itemsize > dtype.itemsize
            else None
        )
    else:
        bad = ~_fits_float32(block)
    if bad is not None and bad.any():
        _refuse_value(block, bad, name=name, first=first)
    return converted


def _fits_float32(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the mask of exact float32 integers: those whose odd part has at most 24 bits."""
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    magnitude = np.abs(wide).astype(np.uint64)  # the lowest int64 casts to 2**63
    lowest_bit = magnitude & (~magnitude + np.uint64(1))
    fits: NDArray[np.bool_] = (magnitude == 0) | (magnitude >> np.uint64(FLOAT32_BITS) < lowest_bit)
    return fits


def _refuse_value(block: NDArray[Any], bad: NDArray[np.bool_], *, name: str, first: int) -> None:
    """Raise the error that names the first refused value, its row and column."""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    fault = "is beyond float32's range" if block.dtype.kind == "f" else "is not exact in float32"
    raise InputError(
        f"{name}: row {first + row}, column {column} holds {block[row, column]}, which {fault}. "
        "Fix: rescale the vectors, or drop that row."
    )

"""Which stored numbers mercore reads, and what they become: uint8, float16 or float32."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError

KEPT = ("u1", "f2", "f4")
CONVERTED = ("i1", "i2", "i4", "i8", "u2", "u4", "u8", "f8")
FLOAT32_BITS = 24


def returned_dtype(stored: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the dtype in which numbers stored as ``stored`` are handed out.

    uint8, float16 and float32 stay as they are, bool becomes uint8, other integers and float64 become float32.

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
    message = (
        f"{name}: the numbers are {stored}, expected bool, integers, float16, float32 or float64. "
        f"Fix: convert the file to float32."
    )
    raise FormatError(message)


def convert(block: NDArray[Any], dtype: np.dtype[Any], *, name: str, first: int) -> NDArray[Any]:
    """Return ``block``, whose first row is row ``first`` of ``name``, as ``dtype``; no value changes but by rounding.

    float64 is rounded to the nearest float32. An integer is never rounded: it is exact or refused.

    Raises
    ------
    InputError
        If a finite float64 would become infinite, or an integer has no exact float32; the message names the row.
    """
    if dtype != np.float32 or block.dtype.itemsize < 4:  # one or two bytes always fit
        return block.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        converted = block.astype(dtype, copy=False)
    if block.dtype.kind == "f":
        bad = np.isinf(converted) & ~np.isinf(block) if block.dtype.itemsize > dtype.itemsize else None
    else:
        bad = ~_fits_float32(block)
    if bad is not None and bad.any():
        _refuse_value(block, bad, name=name, first=first)
    return converted


def _fits_float32(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Say which integers float32 holds exactly: those whose odd part has at most 24 bits."""
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    magnitude = np.abs(wide).astype(np.uint64)  # the lowest int64 wraps to itself, and the cast to 2**63: right
    lowest_bit = magnitude & (~magnitude + np.uint64(1))
    fits: NDArray[np.bool_] = (magnitude == 0) | (magnitude >> np.uint64(FLOAT32_BITS) < lowest_bit)
    return fits


def _refuse_value(block: NDArray[Any], bad: NDArray[np.bool_], *, name: str, first: int) -> None:
    """Raise the error that names the first refused value, its row and its column."""
    row, column = (int(i) for i in np.argwhere(bad)[0])
    fault = "is beyond float32's range" if block.dtype.kind == "f" else "is not exact in float32"
    message = (
        f"{name}: row {first + row}, column {column} holds {block[row, column]}, which {fault}. "
        f"Fix: rescale the vectors, or drop that row."
    )
    raise InputError(message)

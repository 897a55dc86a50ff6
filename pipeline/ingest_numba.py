"""The jitted functions that digest rows, and find the range of their numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, odd
SHIFT = np.uint64(29)


@jit
def hash_rows(words: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Set ``out[i]`` to a 64-bit digest of row ``words[i]``: multiply and fold, word by word."""
    for i in range(words.shape[0]):
        state = MULTIPLIER
        for k in range(words.shape[1]):
            state = (state ^ words[i, k]) * MULTIPLIER
            state = state ^ (state >> SHIFT)
        out[i] = (state ^ (state >> SHIFT)) * MULTIPLIER


@jit
def row_ranges(rows: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> None:
    """Set ``low[i]`` and ``high[i]`` to the least and the greatest integer of ``rows[i]``."""
    for i in range(rows.shape[0]):
        row = rows[i]
        least = greatest = row[0]
        for k in range(row.shape[0]):  # not from 1 on: vectors of numbers would not fit the rest
            least = min(least, row[k])
            greatest = max(greatest, row[k])
        low[i], high[i] = least, greatest

"""The jitted function that digests rows."""

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

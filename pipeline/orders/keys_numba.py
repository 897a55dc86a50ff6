"""The jitted function that makes keys of codes, a byte at a time."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit


@jit
def look_up(codes: NDArray[np.uint8], tables: NDArray[np.uint64], keys: NDArray[np.uint64]) -> None:
    """Set each key to the union of its bytes' entries; ``tables`` uint64[width, 256]."""
    for row in range(codes.shape[0]):
        key = np.uint64(0)
        for byte in range(codes.shape[1]):
            key |= tables[byte, codes[row, byte]]
        keys[row] = key

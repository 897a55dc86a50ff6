"""Keys of binary codes: the first 64 bits of a code whose bits are permuted."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.orders.keys_numba import look_up

KEY_BITS = 64

Keys = NDArray[np.uint64]


def draw_bits(bits: int, orders: int, random_state: int) -> NDArray[np.uint16]:
    """Return the bits of the keys of each order, the first of a random permutation of all.

    Fewer orders with the same seed are the first of more.

    Returns
    -------
    uint16[M, min(64, B)]
    """
    rng = np.random.default_rng(random_state)
    drawn = [rng.permutation(bits)[:KEY_BITS] for _ in range(orders)]
    return np.array(drawn, np.uint16)


class KeyTables:
    """The tables by which the keys of one order are made of the bytes of codes.

    Parameters
    ----------
    bits : uint16[≤ 64], the bits of a key, the highest first
    width : int, bytes per code
    """

    def __init__(self, bits: NDArray[np.uint16], width: int) -> None:
        self._tables = np.zeros((width, 256), np.uint64)
        values = np.arange(256)
        for place, bit in enumerate(bits.tolist()):
            one = np.uint64(1 << (KEY_BITS - 1 - place))
            self._tables[bit // 8, values >> (bit % 8) & 1 == 1] |= one

    def __call__(self, codes: NDArray[np.uint8]) -> Keys:
        """Return the keys of codes uint8[n, width], uint64[n]."""
        keys = np.empty(len(codes), np.uint64)
        look_up(codes, self._tables, keys)
        return keys

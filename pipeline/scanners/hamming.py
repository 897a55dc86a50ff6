"""Scan binary codes by Hamming distance."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.scanners.hamming_numba import (
    MAX_UNROLLED_WORDS,
    batch_scan,
    one_scan,
    pad_rows,
)
from mercore.pipeline.simd.aligned import aligned
from mercore.pipeline.topk import TopK

WORD, EIGHT = 8, 8  # bytes per word; queries that are compared at once
TILE_ROWS = 1 << 14  # rows that are padded at a time


class HammingScanner:
    """The scanner of binary codes: a row that differs in h bits scores 1 − h / bits.

    Parameters
    ----------
    codes : uint8[nq, b]
    bits : int, 1 ≤ bits ≤ 8 b
        The number of bits in use; the others are zero in every code.
    """

    names: tuple[str, ...] = ("code",)

    def __init__(self, codes: NDArray[np.uint8], bits: int) -> None:
        self.bits = bits
        nq, self.width = codes.shape
        self.table = (1 - np.arange(8 * self.width + 1) / bits).astype(np.float32)
        self.count = -(-self.width // WORD)
        words = aligned((-(-nq // EIGHT) * EIGHT, self.count * WORD), np.uint8)
        words[:nq, : self.width] = codes
        groups = words.view(np.uint64).reshape(-1, EIGHT, self.count)
        self.alone = nq == 1
        if self.alone:
            groups[:] = groups[:, :1]
        self.queries = aligned(groups.size, np.uint64)
        self.queries[:] = (groups if self.alone else groups.transpose(0, 2, 1)).reshape(-1)

    def scan(self, columns: Mapping[str, NDArray[Any]], first: int, best: TopK) -> None:
        """Insert the scores of one part, whose first row is ``first``, into the top-k lists."""
        unrolled = self.count <= MAX_UNROLLED_WORDS
        scan = (
            one_scan(self.count)
            if self.alone and unrolled
            else batch_scan(self.count if unrolled else 0)
        )
        for words in whole_words(columns["code"]):
            scan(
                words, self.count, self.queries, self.table, self.bits, first, best.scores, best.ids
            )
            first += words.size // self.count


def whole_words(codes: NDArray[np.uint8]) -> Iterator[NDArray[np.uint64]]:
    """Yield rows as zero-padded words, flat: all rows in place, or copies tile by tile."""
    n, width = codes.shape
    flat = codes.reshape(-1)
    if width % WORD == 0 and flat.ctypes.data % WORD == 0:
        yield flat.view(np.uint64)
        return
    count = -(-width // WORD)
    masks = aligned(-(-count // EIGHT) * EIGHT, np.uint64)
    masks.view(np.uint8)[:width] = 255
    room = aligned(min(n, TILE_ROWS) * count + masks.size, np.uint64)
    for start in range(0, n, TILE_ROWS):
        tile = flat[start * width : (start + TILE_ROWS) * width]
        pad_rows(tile, width, masks, room)
        yield room[: tile.size // width * count]

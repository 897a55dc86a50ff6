"""Checksums of blocks: any row of a plain chunk can be read, and trusted, with its block alone.

A block is a run of whole rows of a chunk, of at most ``BLOCK_BYTES`` unless one row is longer. The
receipt of a part holds a table for each of its chunks. Entry i is the crc32c of all bytes up to the
end of block i. So block i has the right bytes if they extend entry i − 1 to entry i, and the last
entry is the checksum of the whole chunk: the table takes no further pass over it.
"""

import base64
from collections.abc import Iterator
from functools import lru_cache

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from mercore.stores.part_store.column import Column

BLOCK_BYTES = 16 << 10  # 4 KiB read little faster from a disk, and have tables four times as large


def block_checksums(column: Column, data: bytes | NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the table of a chunk, uint32[blocks].

    Parameters
    ----------
    data : the file of the chunk, or its payload
    """
    checksum, table = 0, np.empty(column.blocks, np.uint32)
    payload = np.frombuffer(data, np.uint8)
    for block, (start, stop) in enumerate(_bounds(column)):
        checksum = google_crc32c.extend(checksum, payload[start:stop])
        table[block] = checksum
    return table


def _bounds(column: Column) -> Iterator[tuple[int, int]]:
    """Yield the first byte of each block, and the byte behind its last."""
    size, end = column.block_rows * column.row_bytes, column.chunk_bytes
    for start in range(0, end, size):
        yield start, min(start + size, end)


def table_text(table: NDArray[np.uint32]) -> str:
    """Return a table as a receipt holds it."""
    return base64.b64encode(table.astype("<u4").tobytes()).decode()


def text_bytes(column: Column) -> int:
    """Return the bytes of the text of a table: four letters for three of its bytes."""
    return 4 * -(-4 * column.blocks // 3)


@lru_cache(1 << 12)
def parse_table(text: str) -> NDArray[np.uint32]:
    """Return the table in a text, uint32[blocks].

    Raises
    ------
    ValueError
        If it is no text of a table.
    """
    return np.frombuffer(base64.b64decode(text, validate=True), "<u4")

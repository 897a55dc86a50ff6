"""Rows of a column looked up by their numbers: the blocks that hold them are read and checked.

Neighbouring blocks are read at once, and so are those with a gap between that takes no longer to
read than a second request. A part is read whole where its blocks would take as long, and where a
block cannot be read or is not the one that was written: the reader of whole parts says why.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import MercoreError
from mercore.stores.location.protocol import Location
from mercore.stores.part_store.column import Column
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import Receipt

Ids = NDArray[np.int64]
Range = tuple[int, int]  # the first byte of neighbouring blocks, and the byte behind their last


class RowLookup:
    """The blocks of a column that hold some rows, for any number of threads.

    The system is asked at once for all blocks, which it reads in the background.

    Parameters
    ----------
    rows : int64[p], ascending; repeats are allowed
    cached : tells of a part whether its rows are at hand, so that no block has to be read
    """

    def __init__(
        self, store: PartStore, name: str, rows: Ids, cached: Callable[[int], bool]
    ) -> None:
        self._column, self._reads = store.columns[name], store.reads
        self._files: dict[int, tuple[Location, list[Range]]] = {}
        if not self._column.blocks or not len(rows):
            return
        part = rows // self._column.part_rows
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        request_bytes = store.location.request_bytes
        inside = rows - part * self._column.part_rows
        self._at, ranges = _ranges(self._column, inside, starts, request_bytes)
        for number, chosen in zip(part[starts].tolist(), ranges, strict=True):
            size = sum(stop - start for start, stop in chosen) + len(chosen) * request_bytes
            if size < self._column.chunk_bytes and not cached(number):
                file = store.chunk_file(self._column, number)
                self._files[number] = file, chosen
                file.read_soon(chosen)

    def __len__(self) -> int:
        """Return the number of parts whose blocks are read."""
        return len(self._files)

    def read(self, place: slice, receipt: Receipt) -> NDArray[Any] | None:
        """Return the rows of one part, dtype[p], or None if the part is to be read whole.

        Parameters
        ----------
        place : the slice of ``rows`` that the part holds
        receipt : the receipt of the part
        """
        table = receipt.table(self._column)
        if receipt.part not in self._files or table is None:
            return None
        file, ranges = self._files[receipt.part]
        data = np.empty(sum(stop - start for start, stop in ranges), np.uint8)
        try:
            count = file.read_ranges(ranges, data)
        except MercoreError:
            return None
        size = self._column.block_rows * self._column.row_bytes
        blocks = sum(-(-(stop - start) // size) for start, stop in ranges)
        self._reads.add(count, len(ranges), blocks)
        data.flags.writeable = False  # google_crc32c copies a buffer that is not read-only
        if count != data.size or not self._are_right(data, ranges, table):
            return None
        shape = (-1,) if self._column.width is None else (-1, self._column.width)
        rows: NDArray[Any] = data.view(self._column.dtype).reshape(shape)[self._at[place]]
        return rows

    def _are_right(
        self, data: NDArray[np.uint8], ranges: list[Range], table: NDArray[np.uint32]
    ) -> bool:
        """Return whether all blocks in some ranges have their checksums."""
        checksums, done = [0, *table.tolist()], 0
        size = self._column.block_rows * self._column.row_bytes
        for start, stop in ranges:
            for block in range(start // size, -(-stop // size)):
                end = done + min(size, stop - block * size)
                if google_crc32c.extend(checksums[block], data[done:end]) != checksums[block + 1]:
                    return False
                done = end
        return True


def _ranges(
    column: Column, inside: Ids, starts: Ids, request_bytes: int
) -> tuple[Ids, list[list[Range]]]:
    """Return each row's position among the rows to read of its part, and the ranges of each part.

    Parameters
    ----------
    inside : int64[p], numbers of the rows within their parts
    starts : int64[parts], where the rows of each part begin
    """
    block = inside // column.block_rows
    gap = request_bytes // (column.block_rows * column.row_bytes)
    new = np.diff(block, prepend=0) > 1 + gap
    new[starts] = True
    begins, of_row = np.flatnonzero(new), np.cumsum(new) - 1
    first = block[begins] * column.block_rows
    last = block[[*(begins[1:] - 1), len(block) - 1]]
    stop = np.minimum((last + 1) * column.block_rows, column.part_rows)
    before = np.cumsum(stop - first) - (stop - first)
    ahead = before[of_row[starts]]  # rows of the ranges of earlier parts
    counts = np.diff([*starts, len(inside)])
    at = inside - first[of_row] + before[of_row] - np.repeat(ahead, counts)
    size = column.row_bytes
    ranges = list(zip((first * size).tolist(), (stop * size).tolist(), strict=True))
    splits = [*of_row[starts].tolist(), len(ranges)]
    return at, [ranges[a:b] for a, b in pairwise(splits)]

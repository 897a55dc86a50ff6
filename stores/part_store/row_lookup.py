"""Rows of a column looked up by their numbers: the blocks that hold them are read and checked.

Neighbouring blocks are read at once, and so are those with a gap between that takes no longer to
read than a second request. A part is read whole where its blocks would take as long, and where a
block cannot be read or is not the one that was written: the reader of whole parts says why.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import MercoreError
from mercore.stores.part_store.column import Column
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import Receipt

BLOCK_COST = 133  # % of the time that as many bytes of a whole part take
Ids = NDArray[np.int64]
Range = tuple[int, int]  # the first byte of neighbouring blocks, and the byte behind their last


class RowLookup:
    """The blocks of a column that hold some rows, for any number of threads.

    Parameters
    ----------
    rows : int64[p], ascending; repeats are allowed
    prefers_whole : of a part, and the bytes that its blocks cost, whether to read the part whole
    """

    def __init__(
        self, store: PartStore, name: str, rows: Ids, prefers_whole: Callable[[int, int], bool]
    ) -> None:
        self._store, self._column = store, store.columns[name]
        self._ranges: dict[int, list[Range]] = {}
        if not self._column.blocks or not len(rows):
            return
        part = rows // self._column.part_rows
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        request_bytes = store.location.request_bytes
        inside = rows - part * self._column.part_rows
        self._at, ranges, cost = _ranges(self._column, inside, starts, request_bytes)
        for number, chosen, size in zip(part[starts].tolist(), ranges, cost, strict=True):
            if size < self._column.chunk_bytes and not prefers_whole(number, size):
                self._ranges[number] = chosen

    def __len__(self) -> int:
        """Return the number of parts whose blocks are read."""
        return len(self._ranges)

    def read(self, place: slice, receipt: Receipt, *, wait: bool) -> NDArray[Any] | None:
        """Return the rows of one part, dtype[p], or None if the part is to be read whole.

        Parameters
        ----------
        place : the slice of ``rows`` that the part holds
        receipt : the receipt of the part
        wait : otherwise return None if the system has to read first, and ask it to
        """
        column, ranges = self._column, self._ranges.get(receipt.part)
        table = receipt.table(column) if ranges else None
        if ranges is None or table is None:
            return None
        data = np.empty(sum([stop - start for start, stop in ranges]), np.uint8)
        file = self._store.chunk_file(column, receipt.part)
        try:
            count = file.read_ranges(ranges, data, wait=wait)
        except MercoreError:
            return None
        data.flags.writeable = False  # google_crc32c copies a buffer that is not read-only
        if count != data.size or not _are_right(self._store, column, data, ranges, table):
            return None
        shape = (-1,) if column.width is None else (-1, column.width)
        rows: NDArray[Any] = data.view(column.dtype).reshape(shape)[self._at[place]]
        return rows


def read_ranges(
    store: PartStore, receipts: Sequence[Receipt], name: str, ranges: Sequence[Range]
) -> NDArray[Any]:
    """Return the rows of ranges of a column, ascending, one range behind the other, each checked.

    A part is read whole where its blocks have no checksums, or are not those that were written.

    Raises
    ------
    IntegrityError
        If a byte of them differs from the byte that was written.
    """
    column, size = store.columns[name], store.layout.part_rows
    count = sum(stop - start for start, stop in ranges)
    shape = (count,) if column.width is None else (count, column.width)
    out, filled = np.empty(shape, column.dtype), 0
    pieces: dict[int, list[Range]] = {}
    for start, stop in ranges:
        for part in range(start // size, -(-stop // size)):
            first = part * size
            piece = max(start - first, 0), min(stop - first, size)
            pieces.setdefault(part, []).append(piece)
    for part, inside in pieces.items():
        rows = _from_blocks(store, column, receipts[part], inside)
        if rows is None:
            values = store.read_chunk(receipts[part], name)
            rows = [values[start:stop] for start, stop in inside]
        for each in rows:
            out[filled : filled + len(each)] = each
            filled += len(each)
    return out


def _from_blocks(
    store: PartStore, column: Column, receipt: Receipt, inside: list[Range]
) -> list[NDArray[Any]] | None:
    """Return the rows of ranges of a part, or None if the part is to be read whole."""
    table = receipt.table(column)
    if table is None:
        return None
    blocks: list[Range] = []  # to read: ranges that share a block, or touch, are read at once
    offsets, size = list[int](), 0  # of the rows of each range, in what is read
    for start, stop in inside:
        first = start // column.block_rows * column.block_rows
        last = min(-(-stop // column.block_rows) * column.block_rows, column.part_rows)
        if blocks and first <= blocks[-1][1]:
            first, _ = blocks.pop()
        else:
            size += 0 if not blocks else blocks[-1][1] - blocks[-1][0]
        blocks.append((first, last))
        offsets.append(size + start - first)
    bytes_of = [(start * column.row_bytes, stop * column.row_bytes) for start, stop in blocks]
    data = np.empty(sum(stop - start for start, stop in bytes_of), np.uint8)
    try:
        read = store.chunk_file(column, receipt.part).read_ranges(bytes_of, data)
    except MercoreError:
        return None
    data.flags.writeable = False  # google_crc32c copies a buffer that is not read-only
    if read != data.size or not _are_right(store, column, data, bytes_of, table):
        return None
    shape = (-1,) if column.width is None else (-1, column.width)
    rows = data.view(column.dtype).reshape(shape)
    return [rows[at : at + stop - start] for at, (start, stop) in zip(offsets, inside, strict=True)]


def _are_right(
    store: PartStore,
    column: Column,
    data: NDArray[np.uint8],
    ranges: list[Range],
    table: NDArray[np.uint32],
) -> bool:
    """Return whether all blocks in some ranges have their checksums; count what was read."""
    done, blocks, size = 0, 0, column.block_rows * column.row_bytes
    for start, stop in ranges:
        block = start // size
        checksum = int(table[block - 1]) if block else 0
        last = done + stop - start
        while done < last:
            end = min(done + size, last)
            checksum = google_crc32c.extend(checksum, data[done:end])
            if checksum != table[block]:
                return False
            done, block, blocks = end, block + 1, blocks + 1
    store.reads.add(data.size, len(ranges), blocks)
    return True


def _ranges(
    column: Column, inside: Ids, starts: Ids, request_bytes: int
) -> tuple[Ids, list[list[Range]], list[int]]:
    """Return the blocks to read.

    These are each row's position among the rows that are read of its part; and for each part the
    ranges to read, and the number of bytes that take as long to read at once.

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
    size, splits = column.row_bytes, of_row[starts]
    cost = np.add.reduceat(
        (stop - first) * size * BLOCK_COST // 100 + request_bytes, splits
    ).tolist()
    ranges = list(zip((first * size).tolist(), (stop * size).tolist(), strict=True))
    bounds = pairwise([*splits.tolist(), len(ranges)])
    return at, [ranges[begin:end] for begin, end in bounds], cost

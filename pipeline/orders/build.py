"""Sort an order, or a range of it: rows by key, and rows of equal keys by number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.orders.keys import Keys, KeyTables
from mercore.stores.codes import CodeStore
from mercore.stores.indexes.orders import FIRST_KEY, OrderStore
from mercore.stores.part_store.part_reader import PartReader

DIGIT_BITS, DIGITS = 16, 4
SORTED_BYTES = 48  # per row while it is sorted: keys twice, positions, and the sort's own memory
COUNTS_BYTES = 1 << 22  # of the digits of keys
LAST_KEY = np.iinfo(np.uint64).max

Rows = NDArray[np.int64]


class Run(NamedTuple):
    """A range of one order that is sorted at once, and the parts of the store to write from it.

    The range begins with the first part to write, and ends with the last.
    """

    order: int
    wanted: list[int]


class Rank(NamedTuple):
    """The pair at a place of an order: its key, and how many rows before it have the same key."""

    key: int
    equal_before: int


def runs_of(parts: Sequence[int], order_parts: int, most: int) -> list[Run]:
    """Return the runs that write some ascending parts; a run spans at most ``most`` of them."""
    runs: list[Run] = []
    for part in parts:
        order = part // order_parts
        if runs and runs[-1].order == order and part < runs[-1].wanted[0] + most:
            runs[-1].wanted.append(part)
        else:
            runs.append(Run(order, [part]))
    return runs


def sort_bytes(part_rows: int, parts: int, code_part_bytes: int) -> int:
    """Return the memory that sorting a run of ``parts`` parts takes."""
    return SORTED_BYTES * part_rows * parts + 4 * code_part_bytes + COUNTS_BYTES


@dataclass(frozen=True)
class OrderBuilder:
    """The writer of runs: codes, and the store of their orders."""

    codes: CodeStore
    orders: OrderStore

    def write(self, run: Run) -> int:
        """Sort a run and write its parts; return how many."""
        store, size = self.orders, self.orders.part_rows
        first = run.order * store.order_parts
        start = (run.wanted[0] - first) * size
        stop = min((run.wanted[-1] + 1 - first) * size, store.rows)
        keys, rows = self.sorted_rows(run.order, start, stop)
        for part in run.wanted:
            at = (part - run.wanted[0]) * size
            span = slice(at, at + size)
            columns = {
                "keys": _padded(keys[span], size, LAST_KEY),
                "rows": _padded(rows[span], size, store.no_row),
            }
            store.store.write_part(part, columns, {FIRST_KEY: int(keys[at])})
        return len(run.wanted)

    def sorted_rows(
        self, order: int, start: int, stop: int
    ) -> tuple[Keys, NDArray[np.unsignedinteger]]:
        """Return keys uint64 and rows of the places [start, stop) of an order.

        Only these rows are held in memory. If the order has more rows, the codes are read a
        few times to find the keys at its ends.
        """
        whole = start == 0 and stop == self.codes.rows
        ends = None if whole else self._ends(order, (start, stop - 1))
        keys, rows = (
            np.empty(stop - start, np.uint64),
            np.empty(stop - start, self.orders.row_dtype),
        )
        count, equal = 0, [0, 0]
        for first, some in self._keys(order):
            inside = np.arange(len(some)) if ends is None else _between(some, ends, equal)
            filled = slice(count, count + len(inside))
            keys[filled], rows[filled] = some[inside], first + inside
            count += len(inside)
        assert count == stop - start
        place = np.argsort(keys, kind="stable")  # rows ascend, and so do those of equal keys
        return keys[place], rows[place]

    def _keys(self, order: int) -> Iterator[tuple[int, Keys]]:
        """Yield the first row and the keys of each part of the codes."""
        store = self.codes.store
        reader = PartReader(store, self.codes.receipts, ["code"])
        tables = KeyTables(self.orders.model["key_bits"][order], _width(self.codes))
        for part in range(self.codes.parts):
            yield store.bounds(part)[0], tables(reader.read(part)["code"])

    def _ends(self, order: int, places: tuple[int, int]) -> tuple[Rank, Rank]:
        """Return the pairs at two places of an order, by counting digits of keys, highest first."""
        prefixes, left = [0, 0], list(places)
        for digit in range(DIGITS):
            shift = 64 - DIGIT_BITS * (digit + 1)
            counts = np.zeros((2, 1 << DIGIT_BITS), np.int64)
            for _, keys in self._keys(order):
                digits = keys >> np.uint64(shift)
                for end in range(2):
                    same = digits >> np.uint64(DIGIT_BITS) == prefixes[end]
                    found = (digits[same] & np.uint64((1 << DIGIT_BITS) - 1)).astype(np.int64)
                    counts[end] += np.bincount(found, minlength=1 << DIGIT_BITS)
            for end in range(2):
                before = np.cumsum(counts[end])
                value = int(np.searchsorted(before, left[end], side="right"))
                left[end] -= int(before[value - 1]) if value else 0
                prefixes[end] = (prefixes[end] << DIGIT_BITS) | value
        return Rank(prefixes[0], left[0]), Rank(prefixes[1], left[1])


def _between(keys: Keys, ends: tuple[Rank, Rank], equal: list[int]) -> Rows:
    """Return the positions of keys from one pair to another, both included.

    ``equal`` counts the rows seen so far that have the key of each end; it is updated.
    """
    low, high = ends
    inside = (keys > low.key) & (keys < high.key)
    for end, rank in enumerate(ends):
        same = np.flatnonzero(keys == rank.key)
        number = equal[end] + np.arange(len(same))
        equal[end] += len(same)
        kept = np.ones(len(same), np.bool_)
        if rank.key == low.key:
            kept &= number >= low.equal_before
        if rank.key == high.key:
            kept &= number <= high.equal_before
        inside[same] = kept
    return np.flatnonzero(inside)


def _padded(
    values: NDArray[np.unsignedinteger], size: int, filler: int
) -> NDArray[np.unsignedinteger]:
    """Return values, and behind them ``filler`` up to a size."""
    return np.concatenate([values, np.full(size - len(values), filler, values.dtype)])


def _width(codes: CodeStore) -> int:
    """Return the bytes per code."""
    width = codes.store.layout.column("code").width
    assert width is not None
    return width

"""Candidates of queries: the rows next to each query in every sorted order."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders import Encoder
from mercore.pipeline.orders.keys import Keys, KeyTables
from mercore.pipeline.parallel import over_parts
from mercore.stores.indexes.orders import OrderStore
from mercore.stores.selection import Selection

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class OpenOrders:
    """Open orders, the encoder that hashes queries, and the further rows on either side of one."""

    store: OrderStore
    encoder: Encoder
    neighbours: int = 0

    def candidates(
        self,
        queries: NDArray[Any],
        *,
        threads: int,
        orders: int | None = None,
        selection: Selection | None = None,
    ) -> tuple[Rows, Rows]:
        """Return the pairs (rows, queries) of the orders, int64[p] each, each pair once.

        Pairs ascend by query, then by row. In an order, the candidates are the 1 + ``neighbours``
        rows on either side of the place where the key of the query belongs: fewer at its ends.

        Parameters
        ----------
        queries : dtype[nq, d], raw rows
        orders : int, optional
            The number of first orders to look at, all by default.
        selection : optional
            Of the candidates, those that it selects are returned, by their numbers.

        Raises
        ------
        IntegrityError
            If a byte of a part that is read differs from the byte that was written.
        """
        codes, count = self.encoder.encode(queries)["code"], orders or self.store.orders
        each = 2 * (1 + self.neighbours)
        found = np.empty((len(codes), count, each), self.store.row_dtype)

        def work(orders: Iterator[int]) -> None:
            buffer = np.empty(_chunk_bytes(self.store), np.uint8)
            for order in orders:
                tables = KeyTables(self.store.model["key_bits"][order], codes.shape[1])
                _look_up(_Order(self.store, order, buffer), tables(codes), found[:, order])

        over_parts(list(range(count)), threads, work)
        rows = np.sort(found.reshape(len(codes), -1), axis=1)
        first = np.ones(rows.shape, np.bool_)
        np.not_equal(rows[:, 1:], rows[:, :-1], out=first[:, 1:])
        first &= rows != self.store.no_row
        of_query, place = np.nonzero(first)
        found_rows = rows[of_query, place].astype(np.int64)
        if selection is None:
            return found_rows, of_query
        numbers = selection.numbers_of(found_rows)
        return numbers[numbers >= 0], of_query[numbers >= 0]


@dataclass(frozen=True)
class _Order:
    """One order of a store, whose parts are read into ``buffer`` when they are needed."""

    store: OrderStore
    order: int
    buffer: NDArray[np.uint8]

    def chunk(self, name: str, place: int) -> NDArray[np.unsignedinteger]:
        """Return a column of a part, checked, without padding; the next call overwrites it."""
        part = self.order * self.store.order_parts + place
        values = self.store.store.read_chunk(self.store.receipts[part], name, self.buffer)
        return values[: self.store.rows - place * self.store.part_rows]

    def places(self, keys: Keys) -> Rows:
        """Return the number of rows with a lesser key, int64[nq]; ``keys`` ascend."""
        size, first_keys = self.store.part_rows, self.store.first_keys[self.order]
        part = np.searchsorted(first_keys, keys, side="left") - 1  # its first key is lesser
        places = np.zeros(len(keys), np.int64)
        for number, queries in _groups(part):
            if number >= 0:
                within = np.searchsorted(self.chunk("keys", number), keys[queries], side="left")
                places[queries] = number * size + within
        return places


def _look_up(order: _Order, keys: Keys, out: NDArray[np.unsignedinteger]) -> None:
    """Write the rows next to each key to ``out`` [nq, 2 w], and ``no_row`` where there are none."""
    size, n, each = order.store.part_rows, order.store.rows, out.shape[1]
    ascending = np.argsort(keys, kind="stable")
    starts = order.places(keys[ascending]) - each // 2
    found = np.full(out.shape, order.store.no_row, out.dtype)
    steps = np.array([*range(0, each, size), each - 1])  # at least one place in every part
    for number in np.unique(np.clip(starts[:, None] + steps, 0, n - 1) // size).tolist():
        first, last = number * size, min((number + 1) * size, n)
        window = slice(*np.searchsorted(starts, [first - each + 1, last]))
        place = starts[window, None] + np.arange(each)
        inside = (place >= first) & (place < last)
        found[window][inside] = order.chunk("rows", number)[place[inside] - first]
    out[ascending] = found


def _groups(ascending: Rows) -> Iterator[tuple[int, slice]]:
    """Yield each value of an ascending array, and its places."""
    values, starts = np.unique(ascending, return_index=True)
    stops = [*starts[1:].tolist(), len(ascending)]
    for value, start, stop in zip(values.tolist(), starts.tolist(), stops, strict=True):
        yield value, slice(start, stop)


def candidate_bytes(queries: int, orders: int, neighbours: int) -> int:
    """Return the memory that the candidates of a batch take."""
    return 72 * queries * orders * 2 * (1 + neighbours)


def _chunk_bytes(store: OrderStore) -> int:
    """Return the bytes of the largest file of a part."""
    return max(int(each["bytes"]) for one in store.receipts for each in one.chunks.values())

"""Selections: the rows of a store that take part in a search.

A selection renumbers. Its rows are 0, 1, 2 … in the order of the store, and a search runs in these
numbers from the first part to the last merge. At its end numbers become rows, and then ids. So ties
go to the lower row, and k rows are found where k rows take part.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Positions = slice | NDArray[np.intp]
WORD = 64  # rows per word of bits


class Selection(ABC):
    """The rows of a store that take part in a search; a row beyond the store takes no part.

    ``nbytes`` is the memory that the selection takes, and ``copies`` says that the selected rows of
    a part are a copy of them. A selection is sent to each worker of a cluster once, so it is small
    when it is pickled: bits, or the path of a file.
    """

    nbytes: int = 0
    copies: bool = False

    @property
    def count(self) -> int:
        """The number of selected rows."""
        return int(self.rank(np.array([np.iinfo(np.int64).max]))[0])

    @property
    def digest(self) -> str:
        """The digest of the selected rows: two selections of the same rows have the same."""
        return blake2b(self.packed().tobytes().rstrip(b"\0"), digest_size=16).hexdigest()

    @abstractmethod
    def packed(self) -> NDArray[np.uint8]:
        """Return a bit per row, the lowest of a byte first; rows beyond are not selected."""

    @abstractmethod
    def rank(self, rows: Ids) -> Ids:
        """Return the number of selected rows before each row; ``rows`` ≥ 0 may lie beyond."""

    @abstractmethod
    def positions(self, first: int, stop: int) -> Positions:
        """Return the selected ones of the rows [first, stop), counted from ``first``, ascending."""

    @abstractmethod
    def rows_of(self, numbers: Ids) -> Ids:
        """Return the row of each number; −1 stays −1."""

    @abstractmethod
    def numbers_of(self, rows: Ids) -> Ids:
        """Return the number of each row, −1 for a row that is not selected, and for row −1."""


Groups = Iterable[tuple[Ids, Selection]]  # some queries of a batch, and the rows that they meet


class RangeSelection(Selection):
    """The rows [start, stop): all rows, the first rows of a store, or others that follow."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop

    def packed(self) -> NDArray[np.uint8]:
        """Return a bit per row."""
        return pack_range(self.start, self.stop, self.stop)

    def rank(self, rows: Ids) -> Ids:
        """Return the number of selected rows before each row."""
        return np.clip(rows, self.start, self.stop) - self.start

    def positions(self, first: int, stop: int) -> slice:
        """Return the selected ones of the rows [first, stop)."""
        return slice(max(self.start - first, 0), max(min(self.stop, stop) - first, 0))

    def rows_of(self, numbers: Ids) -> Ids:
        """Return the row of each number."""
        return np.where(numbers < 0, -1, numbers + self.start)

    def numbers_of(self, rows: Ids) -> Ids:
        """Return the number of each row, −1 for a row that is not selected."""
        return np.where((rows < self.start) | (rows >= self.stop), -1, rows - self.start)


class BitSelection(Selection):
    """The rows whose bit is set; it takes 1 to 2 bits of memory per row.

    Parameters
    ----------
    bits : uint8[⌈n / 8⌉], as ``np.packbits(mask, bitorder="little")`` returns them for bool[n]
    """

    copies = True

    def __init__(self, bits: NDArray[np.uint8]) -> None:
        padded = np.zeros((len(bits) // 8 + 1) * 8, np.uint8)  # whole words; the last byte is 0
        padded[: len(bits)] = bits
        self._words = padded.view("<u8")
        before = np.cumsum(np.bitwise_count(self._words), dtype=np.int64)
        count = int(before[-1])
        before -= np.bitwise_count(self._words)
        self._before = before.astype(np.uint32 if count < 1 << 32 else np.int64)
        self.nbytes = self._words.nbytes + self._before.nbytes

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[NDArray[np.uint8]]]:
        return BitSelection, (self.packed()[:-1],)

    def packed(self) -> NDArray[np.uint8]:
        """Return a bit per row."""
        return self._words.view(np.uint8)

    def rank(self, rows: Ids) -> Ids:
        """Return the number of selected rows before each row."""
        rows = np.minimum(rows, self._beyond)
        words, bit = rows // WORD, (rows % WORD).astype(np.uint64)
        lower = self._words[words] & ((np.uint64(1) << bit) - np.uint64(1))
        return np.asarray(self._before[words].astype(np.int64) + np.bitwise_count(lower))

    def positions(self, first: int, stop: int) -> NDArray[np.intp]:
        """Return the selected ones of the rows [first, stop)."""
        words = self._words[first // WORD : -(-stop // WORD)].view(np.uint8)
        bits = np.unpackbits(words, bitorder="little").view(np.bool_)  # numpy finds bools faster
        return np.flatnonzero(bits[first % WORD :][: stop - first])

    def rows_of(self, numbers: Ids) -> Ids:
        """Return the row of each number."""
        # as numbers of one dtype: else all of the words would be copied
        some = np.maximum(numbers, 0).astype(self._before.dtype)
        words = np.searchsorted(self._before, some, side="right") - 1
        bits, rows = self._words[words], words * WORD
        left = (some - self._before[words]).astype(np.int64)  # set bits before the wanted one
        for width in (32, 16, 8, 4, 2, 1):
            lower = np.bitwise_count(bits & np.uint64((1 << width) - 1))
            above = left >= lower
            left -= np.where(above, lower, 0)
            rows += np.where(above, width, 0)
            bits = np.where(above, bits >> np.uint64(width), bits)
        return np.where(numbers < 0, -1, rows)

    def numbers_of(self, rows: Ids) -> Ids:
        """Return the number of each row, −1 for a row that is not selected."""
        inside = np.clip(rows, 0, self._beyond)
        set_bits = self._words[inside // WORD] >> (inside % WORD).astype(np.uint64) & np.uint64(1)
        return np.where((rows >= 0) & (set_bits > 0), self.rank(inside), -1)

    @property
    def _beyond(self) -> int:
        """The last row that has a bit, which is not set."""
        return WORD * len(self._words) - 1


def pack_range(start: int, stop: int, count: int) -> NDArray[np.uint8]:
    """Return a bit for each of ``count`` rows, set for the rows [start, stop)."""
    bits = np.zeros(-(-count // 8), np.uint8)
    if start < stop:
        bits[start // 8 : -(-stop // 8)] = 0xFF
        bits[start // 8] &= 0xFF << start % 8 & 0xFF
        bits[(stop - 1) // 8] &= 0xFF >> 7 - (stop - 1) % 8
    return bits


def pack_rows(rows: Ids, count: int) -> NDArray[np.uint8]:
    """Return a bit for each of ``count`` rows, set for some rows in any order."""
    bits, rows = np.zeros(-(-count // 8), np.uint8), np.unique(rows)
    holding, firsts = np.unique(rows // 8, return_index=True)
    if len(rows):
        bits[holding] = np.bitwise_or.reduceat(np.uint8(1) << (rows % 8).astype(np.uint8), firsts)
    return bits


def selection_of(bits: NDArray[np.uint8]) -> Selection:
    """Return the selection of the rows whose bit is set: a range if they follow one another."""
    count, holding = int(np.bitwise_count(bits).sum(dtype=np.int64)), np.flatnonzero(bits)
    if not count:
        return RangeSelection(0, 0)
    first, last = int(holding[0]), int(holding[-1])
    start = 8 * first + int(np.unpackbits(bits[first], bitorder="little").argmax())
    stop = 8 * last + 8 - int(np.unpackbits(bits[last]).argmax())
    return RangeSelection(start, stop) if stop - start == count else BitSelection(bits)


@dataclass(frozen=True, eq=False)
class RowsByLabel:
    """The rows that take part for each query: those of its label, or without ``same`` all others.

    ``rows`` are the labels of the rows, ``queries`` those of the queries: integers [n] and [nq].
    """

    rows: NDArray[np.signedinteger[Any]]
    queries: NDArray[np.signedinteger[Any]]
    same: bool

    @classmethod
    def of(cls, rows: Ids, queries: Ids | None, *, same: bool) -> Self:
        """Return the rows that take part; without labels of queries, the rows are the queries."""
        narrow = _narrowed(rows)
        return cls(narrow, narrow if queries is None else queries, same)

    @cached_property
    def counts(self) -> Ids:
        """The number of rows that take part for each query, int64[nq]."""
        labels, counts = np.unique(self.rows, return_counts=True)
        at = np.searchsorted(labels, self.queries).clip(max=len(labels) - 1)
        equal = np.where(labels[at] == self.queries, counts[at], 0)
        return equal if self.same else len(self.rows) - equal

    @property
    def about(self) -> dict[str, Any]:
        """The description in a certificate: which rows, and the digests of int64 labels."""
        labels = {"rows": self.rows, "queries": self.queries}
        digests = {
            name: blake2b(values.astype("<i8").tobytes(), digest_size=16).hexdigest()
            for name, values in labels.items()
        }
        return {"same": self.same, **digests}

    def bytes_with(self, batches: int) -> int:
        """Return the bytes of the labels, and of a selection for each batch at a time."""
        return self.rows.nbytes + self.queries.nbytes + 2 * batches * len(self.rows)

    def groups(self, first: int, count: int, start: int = 0) -> Iterator[tuple[Ids, Selection]]:
        """Yield the queries of each label in a batch, and the rows from ``start`` on for them.

        Parameters
        ----------
        first, count : the first query of the batch, and their number; the queries yielded are
            counted from the first
        """
        labels, of_query = np.unique(self.queries[first : first + count], return_inverse=True)
        for number, label in enumerate(labels.tolist()):
            taken = (self.rows == label) == self.same
            taken[:start] = False
            selection = selection_of(np.packbits(taken, bitorder="little"))
            yield np.flatnonzero(of_query == number), selection


def _narrowed(labels: Ids) -> NDArray[np.signedinteger[Any]]:
    """Return labels in the smallest dtype that holds them: they are compared once per label."""
    low, high = labels.min(), labels.max()
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return labels.astype(kind)
    return labels


class SelectedParts:
    """The parts of a store that hold selected rows, numbered 0, 1, 2 …, in numbers of a selection.

    ``stored`` int64[parts] are their numbers in the store. ``starts`` int64[parts + 1] are the
    number of the first selected row of each, and the number of all.

    Parameters
    ----------
    starts : int64, the first row of each part of the store, and the number of its rows
    """

    def __init__(self, selection: Selection, starts: Ids) -> None:
        self._selection, self._store_starts = selection, starts
        ranks = selection.rank(starts)
        self.stored: Ids = np.flatnonzero(np.diff(ranks))
        self.starts: Ids = np.append(ranks[self.stored], ranks[-1])

    def positions(self, part: int) -> Positions:
        """Return the selected rows of a part; of a part with all its rows this copies nothing."""
        first, stop = self._store_starts[self.stored[part] :][:2].tolist()
        if self.starts[part + 1] - self.starts[part] == stop - first:
            return slice(None)
        return self._selection.positions(first, stop)


def select_rows(
    values: NDArray[Any], positions: Positions, room: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return the rows of a part at some positions: a view if these are a slice.

    With ``room`` for them, they are written there: new memory is slow.
    """
    if isinstance(positions, slice):
        return values[positions]
    out = None if room is None else room[: len(positions)]
    # many times as fast as an index; clipping needs no copy of what is written
    return np.take(values, positions, axis=0, out=out, mode="raise" if out is None else "clip")

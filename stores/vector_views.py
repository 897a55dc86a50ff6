"""Views of vectors: the same rows watched or kept in memory, or some of them."""

from collections.abc import Iterable
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.selection import RangeSelection, SelectedParts, Selection, select_rows
from mercore.stores.vectors import Lookup, State, Vectors, VectorStore

SPARSE = 256  # rows of a part per selected one: with fewer selected ones, blocks are looked up


class WrappedVectors(Vectors):
    """Vectors that read their parts from other vectors."""

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.rows, self.dims, self.dtype = vectors.rows, vectors.dims, vectors.dtype
        self.where, self.fingerprint = vectors.where, vectors.fingerprint
        self.fingerprint_of = vectors.fingerprint_of
        self.part_rows, self.dropped = vectors.part_rows, vectors.dropped
        self.selection, self.history = vectors.selection, vectors.history
        self.open_bytes, self.read_bytes = vectors.open_bytes, vectors.read_bytes
        self.requests = vectors.requests

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each part, and the number of rows, int64[parts + 1]."""
        return self.vectors.starts

    @property
    def id_count(self) -> int:
        """The number of ids."""
        return self.vectors.id_count

    @property
    def deleted(self) -> NDArray[np.uint8] | None:
        """A bit for each row of the store, set if it is deleted."""
        return self.vectors.deleted

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of rows; −1 stays −1."""
        return self.vectors.ids_of(rows)

    def rows_with(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of original ids, −1 for an id of no row."""
        return self.vectors.rows_with(ids)

    def read_soon(self, parts: Iterable[int]) -> None:
        """Ask the system to read parts in the background."""
        self.vectors.read_soon(parts)


class SameVectors(WrappedVectors):
    """The rows of other vectors as they are, in the same parts."""

    def look_up(self, rows: NDArray[np.int64], through: Vectors | None = None) -> Lookup:
        """Return a reader of rows by their numbers."""
        return self.vectors.look_up(rows, through or self)

    def holds(self, part: int) -> bool:
        """Return whether the rows of a part are in memory."""
        return self.vectors.holds(part)

    def reads_whole(self, part: int) -> bool:
        """Return whether ``read_part`` reads a part whole."""
        return self.vectors.reads_whole(part)

    def check_part(self, part: int) -> None:
        """Read a part whole; raise ``IntegrityError`` if a byte differs from the one written."""
        self.vectors.check_part(part)

    def prefers_whole(self, part: int, block_bytes: int) -> bool:
        """Return whether to read a part whole although its blocks take fewer bytes."""
        return self.vectors.prefers_whole(part, block_bytes)


class SelectedVectors(WrappedVectors):
    """Selected rows of vectors, in the numbers of their selection.

    Parts without a selected row are left out.
    """

    selection: Selection

    def __init__(self, vectors: Vectors, selection: Selection) -> None:
        super().__init__(vectors)
        self.selection = selection
        self._selected = SelectedParts(selection, vectors.starts)
        self.rows = int(self._selected.starts[-1])
        self.open_bytes += selection.nbytes
        if selection.copies:
            self.read_bytes += vectors.part_rows * vectors.dims * vectors.dtype.itemsize

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first number of each part, and the number of rows, int64[parts + 1]."""
        return self._selected.starts

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of rows, given by their numbers; −1 stays −1."""
        return self.vectors.ids_of(self.selection.rows_of(rows))

    def rows_with(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of original ids, −1 for an id of no selected row."""
        return self.selection.numbers_of(self.vectors.rows_with(ids))

    def read_part(self, part: int) -> NDArray[Any]:
        """Return the selected rows of a part: from blocks if they are few."""
        if self.reads_whole(part):
            values = self.vectors.read_part(int(self._selected.stored[part]))
            return select_rows(values, self._selected.positions(part))
        numbers = np.arange(*self.bounds(part))
        return self.vectors.look_up(self.selection.rows_of(numbers)).read(0)  # of one part

    def reads_whole(self, part: int) -> bool:
        """Return whether ``read_part`` reads a part whole."""
        stored, few = int(self._selected.stored[part]), self.bounds(part)
        first, stop = self.vectors.bounds(stored)
        sparse = SPARSE * (few[1] - few[0]) < stop - first
        return not sparse or self.vectors.holds(stored)

    def check_part(self, part: int) -> None:
        """Read a part whole; raise ``IntegrityError`` if a byte differs from the one written."""
        self.vectors.check_part(int(self._selected.stored[part]))

    def read_soon(self, parts: Iterable[int]) -> None:
        """Ask the system to read parts in the background."""
        self.vectors.read_soon([int(self._selected.stored[part]) for part in parts])

    def look_up(self, rows: NDArray[np.int64], through: Vectors | None = None) -> Lookup:
        """Return a reader of rows by their numbers."""
        stored = self.vectors.look_up(self.selection.rows_of(rows))
        return Lookup(through or self, rows, stored)

    def holds(self, part: int) -> bool:
        """Return whether the rows of a part are in memory."""
        return self.vectors.holds(int(self._selected.stored[part]))


def selected_vectors(vectors: Vectors, selection: Selection | None) -> Vectors:
    """Return the selected rows of vectors, or the vectors as they are if all are selected."""
    return vectors if selection is None else SelectedVectors(vectors, selection)


class EarlierVectors(SelectedVectors):
    """Vectors as they were in an earlier state, before rows were appended."""

    def __init__(self, vectors: Vectors, state: State) -> None:
        super().__init__(vectors, RangeSelection(0, state.rows))
        self.fingerprint = state.fingerprint
        self.dropped = vectors.dropped[: state.dropped]
        self.history = vectors.history[: vectors.history.index(state)]

    @property
    def id_count(self) -> int:
        """The number of ids of that state."""
        return self.rows + len(self.dropped)


class WatchedVectors(SameVectors):
    """Vectors that remember which parts were read, and thereby checked."""

    def __init__(self, vectors: Vectors) -> None:
        super().__init__(vectors)
        self._unread = set(range(vectors.parts))

    def read_part(self, part: int) -> NDArray[Any]:
        """Return the rows of a part."""
        values = self.vectors.read_part(part)
        if self.vectors.reads_whole(part):
            self._unread.discard(part)
        return values

    @property
    def seen(self) -> list[int]:
        """The parts that were read."""
        return sorted(set(range(self.parts)) - self._unread)

    @property
    def unread(self) -> list[int]:
        """The parts that were not read."""
        return sorted(self._unread)


class VectorCache(SameVectors):
    """A cache, for any number of threads, of the parts of vectors that are read first.

    ``cache_bytes`` is its size, which holds ``max_parts``.
    """

    def __init__(self, vectors: Vectors, cache_bytes: int) -> None:
        super().__init__(vectors)
        self.hits = 0  # hits of several threads at once may count as one
        self._cached: dict[int, NDArray[Any]] = {}
        self._lock = Lock()
        self._part_bytes = vectors.part_rows * vectors.dims * vectors.dtype.itemsize
        self.max_parts = cache_bytes // self._part_bytes
        self._looked_up: dict[int, int] = {}

    def read_part(self, part: int) -> NDArray[Any]:
        """Return the rows of a part."""
        values = self._cached.get(part)
        self.hits += values is not None
        if values is None:
            values = self.vectors.read_part(part)
            with self._lock:
                if len(self._cached) < self.max_parts:
                    self._cached[part] = values
        return values

    @property
    def size(self) -> int:
        """Bytes of the rows that the cache holds."""
        return sum(values.nbytes for values in self._cached.copy().values())

    def holds(self, part: int) -> bool:
        """Return whether the rows of a part are in memory."""
        return part in self._cached or self.vectors.holds(part)

    def prefers_whole(self, part: int, block_bytes: int) -> bool:
        """Return whether to keep a part: it is here, or look-ups have cost as much as reading it.

        So look-ups cost at most twice what they would have cost by whole parts from the start.
        """
        if self.holds(part) or self.vectors.prefers_whole(part, block_bytes):
            return True
        if len(self._cached) >= self.max_parts:
            return False
        self._looked_up[part] = self._looked_up.get(part, 0) + block_bytes
        return self._looked_up[part] >= self._part_bytes

    def read_soon(self, parts: Iterable[int]) -> None:
        """Ask the system to read the parts that the cache does not hold."""
        self.vectors.read_soon([part for part in parts if part not in self._cached])


def store_of(vectors: Vectors) -> VectorStore | None:
    """Return the vector store that vectors are read from, or None if they are foreign."""
    while isinstance(vectors, WrappedVectors):
        vectors = vectors.vectors
    return vectors if isinstance(vectors, VectorStore) else None

"""Vector stores, and the original ids of rows where ingest dropped others."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.location.resolve import Where
from mercore.stores.part_store.column import CHECKSUM_BYTES, DIGEST
from mercore.stores.part_store.deletions import deleted_bits
from mercore.stores.part_store.header import Header, column_fields, open_header
from mercore.stores.part_store.page_cache import chunk_files, read_soon, receipt_files
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import Receipt, stated
from mercore.stores.part_store.row_lookup import RowLookup
from mercore.stores.selection import Selection
from mercore.stores.spec import ABSENT, digest, from_json

KIND = "vectors"
STEP_BYTES = 1 << 18  # of rows that are looked up at a time: they stay in the processor's cache


@dataclass(frozen=True, kw_only=True)
class VectorSpec:
    """The spec of a vector store: its contents, and facts about the source.

    ``content`` is the digest of what receipts state of all chunks: size, crc32c, and BLAKE3. The
    counts are of source rows.
    ``value_min`` and ``value_max`` are of the finite values, None if there are none.
    ``duplicate_rows`` are counted within each ingest and each append: old rows are not read again.
    ``dropped_kinds`` are the dropped rows by kind, where others than all-zero rows were dropped.
    ``appended`` lists the appends, each with its sources: ``source``, ``fingerprint`` and ``rows``.
    ``source``, the name of the source, is a note of the header instead, unless the store is an old
    one.
    """

    name: str = "mercore-vectors"
    version: int = 1
    dims: int
    dtype: str
    content: str
    source: str | None = field(default=None, metadata={ABSENT: None})
    source_dtype: str
    source_rows: int
    dropped_rows: int
    zero_rows: int
    nan_rows: int
    infinite_rows: int
    negative_rows: int
    duplicate_rows: int
    value_min: float | None
    value_max: float | None
    dropped_kinds: dict[str, int] = field(default_factory=dict, metadata={ABSENT: {}})
    appended: list[list[dict[str, Any]]] = field(default_factory=list, metadata={ABSENT: []})

    def kept_rows(self, kind: str) -> int:
        """Return the number of stored rows of a kind: zero, nan, infinite or negative."""
        return int(getattr(self, f"{kind}_rows")) - self.dropped_of(kind)

    def dropped_of(self, kind: str) -> int:
        """Return the number of dropped rows of a kind."""
        return (self.dropped_kinds or {"zero": self.dropped_rows}).get(kind, 0)


@dataclass(frozen=True)
class State:
    """An earlier state of vectors that have grown: its rows, fingerprint, and dropped rows."""

    rows: int
    fingerprint: str
    dropped: int


class Vectors(ABC):
    """Rows that are read part by part, by any number of threads.

    A part has at most ``part_rows`` rows. ``selection`` says which rows of the store take part,
    None for all. ``dropped`` are the source rows that ingest dropped, int64, ascending.
    ``history`` are the earlier states of vectors that have grown, oldest first.
    ``fingerprint_of`` says what the fingerprint depends on.
    ``open_bytes`` is the memory that they hold while they are open, ``read_bytes`` the memory that
    reading a part takes beyond its rows. ``requests`` is the number of parts to read blocks from
    at the same time, whatever the number of threads.
    """

    rows: int
    dims: int
    dtype: np.dtype[Any]
    where: str
    fingerprint: str
    fingerprint_of: str = "all rows"
    part_rows: int
    dropped: NDArray[np.int64]
    selection: Selection | None = None
    history: tuple[State, ...] = ()
    open_bytes: int = 0
    read_bytes: int = 0
    requests: int = 1

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each part, and the number of rows, int64[parts + 1]."""
        return np.append(np.arange(0, self.rows, self.part_rows), self.rows)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.starts) - 1

    def bounds(self, part: int) -> tuple[int, int]:
        """Return the first row of a part and the row behind its last."""
        return int(self.starts[part]), int(self.starts[part + 1])

    def parts_of(self, rows: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the parts that hold one of these rows; both ascend."""
        if not len(rows):
            return np.empty(0, np.intp)
        first, last = np.searchsorted(self.starts, rows[[0, -1]], side="right") - 1
        held = np.diff(np.searchsorted(rows, self.starts[first : last + 2]))
        return np.asarray(first + np.flatnonzero(held))

    @property
    def id_count(self) -> int:
        """The number of ids: those of the rows of the store, and of the rows it dropped."""
        return self.rows + len(self.dropped)

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of rows; −1 stays −1."""
        return original_ids(rows, self.dropped)

    def rows_with(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of original ids, −1 for an id of no row."""
        rows = stored_rows(ids, self.dropped)
        return np.where(rows < self.rows, rows, -1)

    @property
    def deleted(self) -> NDArray[np.uint8] | None:
        """A bit for each row of the store, set if it is deleted; None if none is."""
        return None

    @abstractmethod
    def read_part(self, part: int) -> NDArray[Any]:
        """Return the rows of a part, dtype[rows of the part, d], checked if it has a receipt."""

    def read_soon(self, parts: Iterable[int]) -> None:  # noqa: B027 - foreign files need not do it
        """Ask the system to read parts in the background, so that ``read_part`` waits less."""

    def look_up(self, rows: NDArray[np.int64], through: "Vectors | None" = None) -> "Lookup":
        """Return a reader of rows by their numbers.

        Parameters
        ----------
        rows : int64[p], ascending; repeats are allowed
        through : reads complete parts in place of these vectors, such as a cache of their parts
        """
        return Lookup(through or self, rows)

    def holds(self, part: int) -> bool:
        """Return whether the rows of a part are in memory."""
        return False

    def reads_whole(self, part: int) -> bool:
        """Return whether ``read_part`` reads a part whole, and so checks all of its bytes."""
        return True

    def check_part(self, part: int) -> None:
        """Read a part whole; raise ``IntegrityError`` if a byte differs from the one written."""
        self.read_part(part)

    def prefers_whole(self, part: int, block_bytes: int) -> bool:
        """Return whether to read a part whole although its blocks take fewer bytes.

        Parameters
        ----------
        block_bytes : bytes that take as long to read as the blocks that are wanted
        """
        return False


class Lookup:
    """Rows of vectors by their numbers, read step by step, by any number of threads.

    ``places`` are the slices of the rows that the steps read: those of a few parts, as many as are
    worth the work on a step. Complete parts are read, unless ``inner`` reads blocks of the same
    rows.
    """

    def __init__(
        self, vectors: Vectors, rows: NDArray[np.int64], inner: "Lookup | None" = None
    ) -> None:
        self.vectors, self.rows, self._inner = vectors, rows, inner
        self._parts = vectors.parts_of(rows)
        self._ends = np.searchsorted(rows, [0, *vectors.starts[self._parts + 1]])
        step = self._ends[:-1] * vectors.dims * vectors.dtype.itemsize // STEP_BYTES
        if vectors.requests > 1:  # parts are read side by side
            step = np.arange(len(self._parts))
        self._steps = [*np.flatnonzero(np.diff(step, prepend=-1)).tolist(), len(self._parts)]
        self.places = [slice(*each) for each in pairwise(self._ends[self._steps].tolist())]

    @property
    def whole_parts(self) -> int:
        """The number of parts that are read whole."""
        return len(self._parts) if self._inner is None else self._inner.whole_parts

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps."""
        return list(range(len(self.places)))

    def readers(self, threads: int) -> int:
        """Return the number of threads to read with: blocks of objects are waited for at once."""
        return threads if self.whole_parts else max(threads, self.vectors.requests)

    def read(self, step: int) -> NDArray[Any]:
        """Return the rows of a step, dtype[p, d], each checked.

        Raises
        ------
        IntegrityError
            If a byte of them differs from the one that was written.
        """
        numbers = range(*self._steps[step : step + 2])
        # the system is asked for the blocks of all parts before one of them is waited for
        found = [self._in_memory(number) for number in numbers]
        rows = [
            self._read(number) if values is None else values
            for number, values in zip(numbers, found, strict=True)
        ]
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def blocks(self, number: int, *, wait: bool) -> NDArray[Any] | None:
        """Return the rows of the part ``number`` from blocks, or None to read it whole.

        Parameters
        ----------
        wait : otherwise return None too if the system has to read first, and ask it to
        """
        return None if self._inner is None else self._inner.blocks(number, wait=wait)

    def _in_memory(self, number: int) -> NDArray[Any] | None:
        """Return the rows of a part if their blocks are in memory; else ask the system for them."""
        held = self.vectors.holds(int(self._parts[number]))
        return None if held else self.blocks(number, wait=False)

    def _read(self, number: int) -> NDArray[Any]:
        """Return the rows of a part; ``number`` counts the parts that hold one."""
        part = int(self._parts[number])
        rows = None if self.vectors.holds(part) else self.blocks(number, wait=True)
        if rows is not None:
            return rows
        wanted = self.rows[self._ends[number] : self._ends[number + 1]] - self.vectors.starts[part]
        found: NDArray[Any] = np.take(self.vectors.read_part(part), wanted, axis=0)
        return found


class BlockLookup(Lookup):
    """Rows of a vector store, from the blocks that hold them."""

    def __init__(self, store: "VectorStore", rows: NDArray[np.int64], through: Vectors) -> None:
        super().__init__(through, rows)
        self._store = store
        self._blocks = RowLookup(store.store, "vectors", rows, through.prefers_whole)
        store.receipts_soon(self._parts.tolist())

    @property
    def whole_parts(self) -> int:
        """The number of parts that are read whole."""
        return len(self._parts) - len(self._blocks)

    def blocks(self, number: int, *, wait: bool) -> NDArray[Any] | None:
        """Return the rows of the part ``number`` from blocks: see ``Lookup``."""
        place = slice(*self._ends[number : number + 2].tolist())
        return self._blocks.read(place, self._store.receipt(int(self._parts[number])), wait=wait)


def blocks(
    vectors: Vectors, start: int, stop: int, block_rows: int
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield (first row, dtype[≤ block_rows, d]) over rows [start, stop), reading each part once.

    Blocks end at multiples of ``block_rows`` and at the ends of parts, for any start and stop.
    """
    wanted = np.searchsorted(vectors.starts, [start, stop - 1], side="right")
    for part in range(int(wanted[0]) - 1, int(wanted[1])):
        first, last = vectors.bounds(part)
        values = vectors.read_part(part)
        row, behind = max(first, start), min(last, stop)
        while row < behind:
            end = min((row // block_rows + 1) * block_rows, behind)
            yield row, values[row - first : end - first]
            row = end


def gather(vectors: Vectors, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the named rows, dtype[len(rows), d], in their order.

    Parameters
    ----------
    rows : int64[p], any order, repeats allowed
    """
    out, order = np.empty((len(rows), vectors.dims), vectors.dtype), np.argsort(rows, kind="stable")
    lookup = vectors.look_up(rows[order])
    for step, place in enumerate(lookup.places):
        out[order[place]] = lookup.read(step)
    return out


def original_ids(rows: NDArray[np.int64], dropped: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the source ids of stored rows: row number plus rows dropped before it; −1 stays −1.

    Parameters
    ----------
    rows : int64[any shape]
    dropped : int64[dropped rows], ascending
    """
    kept_before = dropped - np.arange(len(dropped))
    return np.where(rows < 0, rows, rows + np.searchsorted(kept_before, rows, side="right"))


def stored_rows(ids: NDArray[np.int64], dropped: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the stored rows of source ids, −1 for a dropped id: ``original_ids`` inverted."""
    rows = ids - np.searchsorted(dropped, ids)
    return np.where((ids < 0) | np.isin(ids, dropped), -1, rows)


def dropped_rows(model: Mapping[str, NDArray[Any]], states: int) -> list[NDArray[np.int64]]:
    """Return the rows that each of a store's states dropped, from its model: int64, ascending."""
    none = np.empty(0, np.int64)
    return [model.get(dropped_name(state), none) for state in range(states)]


def dropped_name(state: int) -> str:
    """Return the name of the model array of the rows that a state of a store dropped."""
    return f"dropped_{state}" if state else "dropped"


def vectors_column(dtype: str, dims: int, compressor: str = "none") -> dict[str, Any]:
    """Return the entry of ``Layout.columns`` for the rows of a vector store."""
    return {**column_fields("vectors", dtype, dims, compressor), "digest": DIGEST}


def content_of(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return the digest of what the receipts of all parts state of their chunks."""
    return digest([*map(stated, entries)])


class VectorStore(Vectors):
    """A vector store written by ``ingest``: see ``Vectors``."""

    kind = KIND

    def __init__(self, store: PartStore) -> None:
        self.store = store
        self.spec = from_json(VectorSpec, store.header.spec, store.where)
        columns = [vectors_column(self.spec.dtype, self.spec.dims)]
        store.layout.check_columns(columns, store.where)
        if store.columns["vectors"].digest == "none":
            self.fingerprint_of = "the crc32c checksums of all rows"
        self.rows = store.layout.rows
        self.dims = self.spec.dims
        self.dtype = np.dtype(self.spec.dtype)
        self.where = store.where
        self.fingerprint = store.header.spec_digest
        self.part_rows = store.layout.part_rows
        self.requests = store.location.requests
        self._receipts: dict[int, Receipt] = {}  # read when they are needed: there may be 30 000
        grown_from = store.layout.grown_from
        dropped = dropped_rows(store.read_model(), len(grown_from) + 1)
        self.dropped: NDArray[np.int64] = np.concatenate(dropped)
        ends = np.cumsum([len(rows) for rows in dropped]).tolist()
        self.history = tuple(
            State(state["rows"], state["digest"], end)
            for state, end in zip(grown_from, ends, strict=False)
        )

    def chunk_entries(self) -> list[dict[str, Any]]:
        """Return the entry of each part's chunk in its receipt."""
        return [receipt.chunks["vectors"] for receipt in self.store.receipts()]

    def check_content(self) -> str | None:
        """Return the fault of receipts that are not those of the fingerprint, or None."""
        found = content_of(self.chunk_entries())
        if found == self.spec.content:
            return None
        return (
            f"{self.where}: its receipts are of other rows than its fingerprint: found content "
            f"{found}, expected {self.spec.content}. {self.store.fix}"
        )

    @property
    def stored_bytes(self) -> int:
        """Bytes of the rows on disk."""
        column = self.store.layout.column("vectors")
        if column.is_plain:
            return self.parts * (column.chunk_bytes + CHECKSUM_BYTES)
        return self.store.column_bytes(self.store.receipts())["vectors"]

    def appends_of(self, fingerprints: list[str]) -> list[int]:
        """Return the numbers of the appends of sources with these fingerprints, the last first."""
        known = [[each["fingerprint"] for each in sources] for sources in self.spec.appended]
        return [number for number, each in enumerate(known) if each == fingerprints][::-1]

    def rows_of_append(self, number: int) -> tuple[int, int, NDArray[np.int64]]:
        """Return the rows [start, stop) of an append, and the rows of its source that it dropped.

        The dropped rows, int64, ascending, count from the first row of the source.
        """
        states = [*self.history, State(self.rows, self.fingerprint, len(self.dropped))]
        before, after = states[number], states[number + 1]
        dropped = self.dropped[before.dropped : after.dropped] - (before.rows + before.dropped)
        return before.rows, after.rows, dropped

    @cached_property
    def deleted(self) -> NDArray[np.uint8] | None:
        """A bit for each row of the store, set if it is deleted: see ``deletions.py``."""
        return deleted_bits(self.store.header, self.store.location)

    @property
    def source(self) -> str:
        """The name of the ingested source, as the user wrote it."""
        return str(self.spec.source or self.store.header.notes.get("source", ""))

    def read_part(self, part: int) -> NDArray[Any]:
        """Return the rows of a part, dtype[rows of the part, d].

        Raises
        ------
        IntegrityError
            If a byte differs from the ingested one.
        """
        return self.store.read_chunk(self.receipt(part), "vectors")

    def receipt(self, part: int) -> Receipt:
        """Return the receipt of a part, which is read once."""
        receipt = self._receipts.get(part)
        if receipt is None:
            receipt = self._receipts[part] = self.store.done_receipt(part)
        return receipt

    def receipts_soon(self, parts: Iterable[int]) -> None:
        """Ask the system for the receipts of parts at once; a disk takes a while for each."""
        read_soon(receipt_files(self.store, (each for each in parts if each not in self._receipts)))

    def look_up(self, rows: NDArray[np.int64], through: Vectors | None = None) -> Lookup:
        """Return a reader of rows by their numbers, which reads the blocks that hold them."""
        return BlockLookup(self, rows, through or self)

    def read_soon(self, parts: Iterable[int]) -> None:
        """Ask the system to read parts in the background, if they lie on this machine."""
        read_soon(chunk_files(self.store, parts))


def open_vector_store(path: Where, header: Header | None = None) -> VectorStore:
    """Open a vector store that ``ingest`` wrote.

    Parameters
    ----------
    header : that of the store, if it has been read

    Raises
    ------
    NotFoundError, FormatError, IntegrityError
        If it does not exist, is something else, or is damaged.
    """
    header = header or open_header(path)
    if header.kind != KIND:
        raise FormatError(
            f"{path} is a store of {header.kind}: expected one of {KIND}. Fix: name the vector "
            "store."
        )
    return VectorStore(PartStore(path, header))

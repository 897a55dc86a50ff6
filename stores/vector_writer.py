"""Writing of vector stores: new ones, and the rows that are appended to one.

The chunks of a new store go to a draft, which becomes the store at the end.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import MercoreError
from mercore.stores.location.local import LocalLocation
from mercore.stores.location.protocol import Location, Piece
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.blocks import BLOCK_BYTES
from mercore.stores.part_store.column import Column
from mercore.stores.part_store.compressors import check_compressor
from mercore.stores.part_store.group_metadata import (
    files_beside_parts,
    publish_files,
    root_metadata,
)
from mercore.stores.part_store.growth import (
    begin_growth,
    finish_growth,
    grow_part,
    publish_growth,
    ragged_part,
    undo_growth,
)
from mercore.stores.part_store.header import Header, Layout, model_entries
from mercore.stores.part_store.page_cache import forget
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import encode_with_entry
from mercore.stores.part_store.sizes import small_part_rows
from mercore.stores.spec import to_json
from mercore.stores.vectors import (
    KIND,
    VectorSpec,
    VectorStore,
    content_of,
    dropped_name,
    open_vector_store,
    vectors_column,
)

CHUNK_BYTES = 4 << 20
CACHED_BYTES = 4 << 30  # of a store: the next verb finds these in memory; rows behind leave it
WRITERS = 8  # threads that publish chunks while others wait for the disk; at most ``MAX_GAP``
KINDS = ("zero", "nan", "infinite", "negative")
COUNTS = ("source_rows", "dropped_rows", "duplicate_rows", *(f"{kind}_rows" for kind in KINDS))


def chunk_rows(dims: int, dtype: np.dtype[Any], rows: int | None = None) -> int:
    """Return the number of rows per chunk: the greatest power of two that fits 4 MiB, or 1.

    A store of at most ``rows`` rows may have smaller chunks: see ``small_part_rows``.
    """
    row_bytes = dims * dtype.itemsize
    max_rows = 1 << (max(1, CHUNK_BYTES // row_bytes).bit_length() - 1)
    return max_rows if rows is None else small_part_rows(rows, row_bytes, max_rows)


class RowWriter(ABC):
    """A writer of rows, chunk by chunk, in a ``with`` block that ends with ``finish``."""

    block_bytes = BLOCK_BYTES
    _folder: Location  # to which the chunks are written

    def __init__(self, fields: dict[str, Any], part_rows: int) -> None:
        self.part_rows = part_rows
        self._fields = fields
        self._pending = np.empty((part_rows, fields["width"]), fields["dtype"])
        self._filled = 0
        self._chunks: list[dict[str, Any]] = []
        self._parts = 0
        self._pool = ThreadPoolExecutor(WRITERS, thread_name_prefix="write")
        self._writes: deque[Future[dict[str, Any]]] = deque()
        self._block = ExitStack()

    def __enter__(self) -> Self:
        self._block.callback(self._pool.shutdown, cancel_futures=True)  # first at the end
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401 - an error and its trace, or None
        self._block.__exit__(*error)

    @abstractmethod
    def finish(self, report: Mapping[str, Any], dropped: NDArray[np.int64]) -> VectorStore:
        """Publish the rows, and return the store that holds them.

        Parameters
        ----------
        report : the fields of ``VectorSpec`` that describe the source
        dropped : int64[dropped rows], ascending source rows that were not appended
        """

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows, dtype[any, d], which nobody changes any more: a part of them is not copied."""
        done = 0
        while done < len(rows):
            block = rows[done : done + self.part_rows - self._filled]
            done += len(block)
            if len(block) == self.part_rows:
                self._submit(block)
                continue
            self._pending[self._filled : self._filled + len(block)] = block
            self._filled += len(block)
            if self._filled == self.part_rows:
                self._flush()

    @property
    def _rows(self) -> int:
        """Number of rows of the store so far."""
        return self._parts * self.part_rows + self._filled

    def _write_receipts(self, store: PartStore, first: int) -> None:
        """Publish the receipts of the parts from ``first`` on."""

        def write(part: int) -> None:
            store.publish_receipt(store.new_receipt(part, {"vectors": self._chunks[part]}))

        with ThreadPoolExecutor(max(WRITERS, store.location.requests)) as pool:
            for _ in pool.map(write, range(first, store.layout.parts)):
                pass

    def _flush(self) -> None:
        """Let a thread publish the pending rows as the next chunk, if there are any."""
        if self._filled:
            rows, self._pending = self._pending[: self._filled], np.empty_like(self._pending)
            self._filled = 0
            self._submit(rows)

    def _submit(self, rows: NDArray[Any]) -> None:
        """Let a thread publish rows as the next chunk."""
        self._writes.append(self._pool.submit(self._write, self._parts, rows))
        self._parts += 1
        self._wait_for(WRITERS)

    def _wait_for(self, max_writes: int) -> None:
        """Wait until at most ``max_writes`` chunks are still to be published."""
        while len(self._writes) > max_writes:
            self._chunks.append(self._writes.popleft().result())

    def _write(self, part: int, rows: NDArray[Any]) -> dict[str, Any]:
        """Publish rows as the chunk of a part; return its entry for the receipt."""
        column = Column(
            **self._fields,
            rows=(part + 1) * self.part_rows,
            part_rows=self.part_rows,
            block_bytes=self.block_bytes,
        )
        pieces, entry = encode_with_entry(column, rows)
        self._publish(part, self._folder / column.chunk_key(part), *pieces)
        return entry

    def _publish(self, part: int, file: Location, *pieces: Piece) -> None:
        """Publish the chunk of a part."""
        file.publish(*pieces)
        if part * self._pending.nbytes >= CACHED_BYTES and isinstance(file, LocalLocation):
            forget([file.path])


class VectorWriter(RowWriter):
    """A writer of a new store; leaving its block without ``finish`` removes what it wrote."""

    def __init__(
        self,
        where: Where,
        *,
        dims: int,
        dtype: np.dtype[Any],
        compressor: str,
    ) -> None:
        self.location = location_of(where)
        self.location.check_new()
        fields = vectors_column(dtype.name, dims, check_compressor(compressor))
        super().__init__(fields, chunk_rows(dims, dtype))

    def __enter__(self) -> Self:
        self._draft = self._block.enter_context(self.location.draft())
        self._folder = self._draft.location
        return super().__enter__()

    def finish(self, report: Mapping[str, Any], dropped: NDArray[np.int64]) -> VectorStore:
        """Publish the store: see ``RowWriter``."""
        rows = self._rows
        if not self._parts:  # all rows are pending: a small store has one small chunk
            row_bytes = self._pending[:1].nbytes
            self.part_rows = small_part_rows(rows, row_bytes, self.part_rows)
        self._flush()
        self._wait_for(0)
        facts = dict(report)
        notes = {"source": facts.pop("source")}
        spec = VectorSpec(
            **facts,
            dims=self._fields["width"],
            dtype=self._fields["dtype"],
            content=content_of(self._chunks),
        )
        model = {"dropped": dropped} if dropped.size else {}
        layout = Layout(
            rows=rows, part_rows=self.part_rows, columns=[self._fields], model=model_entries(model)
        )
        header = Header(kind=KIND, spec=to_json(spec), layout=layout, notes=notes)
        publish_files(self._draft.location, files_beside_parts(header, model))
        self._write_receipts(PartStore(self._draft.location, header), 0)
        self._draft.finish(root_metadata(header))
        return VectorStore(PartStore(self.location, header))


class VectorAppender(RowWriter):
    """A writer of rows behind those of a store; the store has grown when ``finish`` returns.

    A block that is left without ``finish``, or is killed, leaves the store with its old rows: see
    ``growth.py``.

    Parameters
    ----------
    store : a store from ``ready_to_grow``, whose lease is held
    sources : name, fingerprint and rows of each source
    """

    def __init__(self, store: VectorStore, sources: list[dict[str, Any]]) -> None:
        layout = store.store.layout
        super().__init__(layout.columns[0], layout.part_rows)
        self.block_bytes = store.store.header.block_bytes
        self._old, self._sources, self._folder = store, sources, store.store.location
        self._ragged = ragged_part(layout)
        self._ragged_data = b""
        self._parts = layout.rows // layout.part_rows
        self._chunks = store.chunk_entries()[: self._parts]
        if self._ragged is not None:
            self.append(store.read_part(self._ragged))
        self._finished = False
        self._block.push(self._undo)

    def _undo(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Remove the files of an append that an error has ended before the store has grown."""
        if isinstance(error, Exception) and not self._finished:
            with suppress(MercoreError):
                undo_growth(self._old.store, _next_dropped(self._old))

    def finish(self, report: Mapping[str, Any], dropped: NDArray[np.int64]) -> VectorStore:
        """Publish the new rows, in the order of ``growth.py``: see ``RowWriter``."""
        rows, old = self._rows, self._old.store
        self._flush()
        self._wait_for(0)
        new = {_next_dropped(self._old): dropped + self._old.spec.source_rows}
        model = new if dropped.size else {}
        header = begin_growth(old, self._grown_spec(report), rows, model)  # step 1
        store = PartStore(old.location, header)
        self._write_receipts(store, old.layout.parts)
        if self._ragged is not None:  # steps 2 and 3
            earlier = old.done_receipt(self._ragged)
            grow_part(store, earlier, {"vectors": self._ragged_data})
        self._finished = True  # from here on, an error leaves the store to the next append
        publish_growth(store)  # steps 4 and 5
        return VectorStore(store)

    def _grown_spec(self, report: Mapping[str, Any]) -> VectorSpec:
        """Return the spec of the grown store."""
        spec = self._old.spec
        kinds = [kind for kind in KINDS if spec.dropped_kinds or report.get("dropped_kinds")]
        added = VectorSpec(**report, dims=spec.dims, dtype=spec.dtype, content="")
        lows = [each.value_min for each in (spec, added) if each.value_min is not None]
        highs = [each.value_max for each in (spec, added) if each.value_max is not None]
        counts = {name: getattr(spec, name) + getattr(added, name) for name in COUNTS}
        return replace(
            spec,
            **counts,
            content=content_of(self._chunks),
            value_min=min(lows, default=None),
            value_max=max(highs, default=None),
            dropped_kinds={kind: spec.dropped_of(kind) + added.dropped_of(kind) for kind in kinds},
            appended=[*spec.appended, self._sources],
        )

    def _publish(self, part: int, file: Location, *pieces: Piece) -> None:
        """Publish the chunk of a new part; that of the part that grows waits for the others."""
        if part == self._ragged:
            self._ragged_data = b"".join(pieces)
        else:
            super()._publish(part, file, *pieces)


def ready_to_grow(where: Where) -> VectorStore:
    """Open a store whose lease is held; finish or undo an append that was killed.

    The store has its old rows if the append was killed before the new header.

    Raises
    ------
    NotFoundError, FormatError, IntegrityError
        If it is no vector store, or is damaged.
    """
    store = open_vector_store(where)
    store.store.sweep()
    if not finish_growth(store.store):
        undo_growth(store.store, _next_dropped(store))
    return store


def _next_dropped(store: VectorStore) -> str:
    """Return the name of the model array of the rows that the next append drops."""
    return dropped_name(len(store.history) + 1)

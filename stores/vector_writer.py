"""Writing of vector stores: chunks go to a draft, which becomes the store at the end."""

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.column import Column, encode_chunk, payload_checksum
from mercore.stores.part_store.compressors import check_compressor
from mercore.stores.part_store.header import Header, Layout, column_fields, model_entries
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import Receipt, receipt_bytes
from mercore.stores.part_store.sizes import small_part_rows
from mercore.stores.part_store.skeleton import root_metadata, write_skeleton
from mercore.stores.spec import digest, to_json
from mercore.stores.vectors import KIND, VectorSpec, VectorStore

CHUNK_BYTES = 4 << 20


def chunk_rows(dims: int, dtype: np.dtype[Any], rows: int | None = None) -> int:
    """Return the number of rows per chunk: the greatest power of two that fits 4 MiB, or 1.

    A store of at most ``rows`` rows that are fewer has a smaller chunk: see ``small_part_rows``.
    """
    row_bytes = dims * dtype.itemsize
    most = 1 << (max(1, CHUNK_BYTES // row_bytes).bit_length() - 1)
    return most if rows is None else small_part_rows(rows, row_bytes, most)


class VectorWriter:
    """A writer of rows; leaving its ``with`` block without ``finish`` removes what it wrote.

    ``rows`` bounds the number of rows, if that is known.
    """

    def __init__(
        self,
        where: Where,
        *,
        dims: int,
        dtype: np.dtype[Any],
        compressor: str,
        rows: int | None = None,
    ) -> None:
        self.location = location_of(where)
        self.location.check_new()
        self.part_rows = chunk_rows(dims, dtype, rows)
        self._fields = column_fields("vectors", dtype.name, dims, check_compressor(compressor))
        self._pending = np.empty((self.part_rows, dims), dtype)
        self._filled = 0
        self._chunks: list[dict[str, Any]] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._draft = self._open.enter_context(self.location.draft())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows, dtype[any, d]."""
        done = 0
        while done < len(rows):
            count = min(self.part_rows - self._filled, len(rows) - done)
            self._pending[self._filled : self._filled + count] = rows[done : done + count]
            self._filled += count
            done += count
            if self._filled == self.part_rows:
                self._flush()

    def finish(self, report: Mapping[str, Any], dropped: NDArray[np.int64]) -> VectorStore:
        """Publish the store.

        Parameters
        ----------
        report : the fields of ``VectorSpec`` that describe the source, and its name, ``source``,
            which is a note: the same rows from two files have one fingerprint
        dropped : int64[dropped rows], ascending source rows that were not appended
        """
        rows = len(self._chunks) * self.part_rows + self._filled
        if self._filled:
            self._flush()
        facts = dict(report)
        notes = {"source": facts.pop("source")}
        spec = VectorSpec(
            **facts,
            dims=self._fields["width"],
            dtype=self._fields["dtype"],
            content=digest(self._chunks),
        )
        model = {"dropped": dropped} if dropped.size else {}
        layout = Layout(
            rows=rows, part_rows=self.part_rows, columns=[self._fields], model=model_entries(model)
        )
        header = Header(kind=KIND, spec=to_json(spec), layout=layout, notes=notes)
        write_skeleton(self._draft.location, header, model)
        self._write_receipts(PartStore(self._draft.location, header))
        self._draft.finish(root_metadata(header))
        return VectorStore(PartStore(self.location, header))

    def _write_receipts(self, store: PartStore) -> None:
        """Publish the receipts of all parts."""

        def write(part: int) -> None:
            start, stop = store.bounds(part)
            chunks = {"vectors": self._chunks[part]}
            receipt = Receipt(
                part=part, start=start, stop=stop, job=store.header.spec_digest, chunks=chunks
            )
            store.receipt_file(part).publish(receipt_bytes(receipt, store.layout.parts))

        for _ in store.location.each(write, range(store.layout.parts)):
            pass

    def _flush(self) -> None:
        """Publish the pending rows as the next chunk."""
        part = len(self._chunks)
        column = Column(**self._fields, rows=(part + 1) * self.part_rows, part_rows=self.part_rows)
        data = encode_chunk(column, part, self._pending[: self._filled])
        (self._draft.location / column.chunk_key(part)).publish(data)
        self._chunks.append({"bytes": len(data), "crc32c": f"{payload_checksum(data):08x}"})
        self._filled = 0

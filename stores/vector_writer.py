"""Writing a vector store: chunks stream into a scratch folder that takes the store's name when all is there."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stores.columns import Column, encode_chunk, payload_checksum
from stores.compressors import check_compressor
from stores.header import Header, Layout, column_fields, model_entries
from stores.parts import PartStore, check_new_path, take_name
from stores.publish import publish, storage_errors
from stores.receipts import Receipt, receipt_bytes
from stores.scratch import scratch_folder, sweep
from stores.skeleton import write_skeleton
from stores.spec import digest, to_json
from stores.vectors import KIND, VectorSpec, VectorStore

CHUNK_BYTES = 4 << 20


def chunk_rows(dims: int, dtype: np.dtype[Any]) -> int:
    """Return how many rows a chunk holds: the power of two that keeps it within 4 MiB."""
    fit = max(1, CHUNK_BYTES // (dims * dtype.itemsize))
    return 1 << (fit.bit_length() - 1)


class VectorWriter:
    """Collect rows into chunks; leaving the ``with`` block without ``finish`` removes all that was written."""

    def __init__(self, path: Path, *, dims: int, dtype: np.dtype[Any], compressor: str) -> None:
        check_new_path(path)
        self.path = path
        self.part_rows = chunk_rows(dims, dtype)
        self._fields = column_fields("vectors", dtype.name, dims, check_compressor(compressor))
        self._pending = np.empty((self.part_rows, dims), dtype)
        self._filled = 0
        self._chunks: list[dict[str, Any]] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        sweep(self.path.parent, self.path.name)
        with storage_errors("write", self.path):
            self._scratch = self._open.enter_context(scratch_folder(self.path))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def append(self, rows: NDArray[Any]) -> None:
        """Add rows, dtype[any, d]."""
        at = 0
        while at < len(rows):
            count = min(self.part_rows - self._filled, len(rows) - at)
            self._pending[self._filled : self._filled + count] = rows[at : at + count]
            self._filled += count
            at += count
            if self._filled == self.part_rows:
                self._flush()

    def finish(self, report: Mapping[str, Any], dropped: NDArray[np.int64]) -> VectorStore:
        """Publish the store under its name.

        Parameters
        ----------
        report : the fields of ``VectorSpec`` that only the reader of the source knows
        dropped : int64[dropped rows], ascending source rows that were not appended
        """
        rows = len(self._chunks) * self.part_rows + self._filled
        if self._filled:
            self._flush()
        spec = VectorSpec(
            **report, dims=self._fields["width"], dtype=self._fields["dtype"], content=digest(self._chunks)
        )
        model = {"dropped": dropped} if dropped.size else {}
        layout = Layout(rows=rows, part_rows=self.part_rows, columns=[self._fields], model=model_entries(model))
        header = Header(kind=KIND, spec=to_json(spec), layout=layout)
        write_skeleton(self._scratch, header, model)
        store = PartStore(self._scratch, header)
        for part, chunk in enumerate(self._chunks):
            start, stop = store.bounds(part)
            receipt = Receipt(part=part, start=start, stop=stop, job=header.job, chunks={"vectors": chunk})
            publish(store.receipt_path(part), receipt_bytes(receipt, layout.parts))
        with storage_errors("write", self.path):
            take_name(self._scratch, self.path)
        return VectorStore(PartStore(self.path, header))

    def _flush(self) -> None:
        """Publish the pending rows as the next chunk."""
        part = len(self._chunks)
        column = Column(**self._fields, rows=(part + 1) * self.part_rows, part_rows=self.part_rows)
        data = encode_chunk(column, part, self._pending[: self._filled])
        publish(self._scratch / column.chunk_key(part), data)
        self._chunks.append({"bytes": len(data), "crc32c": f"{payload_checksum(data):08x}"})
        self._filled = 0

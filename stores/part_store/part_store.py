"""A store of parts: a Zarr v3 group with an array per column, a model, and a receipt per part."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, IntegrityError, NotFoundError
from mercore.stores.location.protocol import Location, Result
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.column import Column, decode_chunk, encode_chunk, payload_checksum
from mercore.stores.part_store.header import Header, model_column
from mercore.stores.part_store.receipts import (
    Receipt,
    parse_receipt,
    receipt_bytes,
    receipts_column,
)
from mercore.stores.part_store.skeleton import (
    restore_skeleton,
    root_metadata,
    write_skeleton,
    wrong_metadata,
)


class PartStore:
    """An open store of parts, safe to read and write from any threads and processes.

    Attributes
    ----------
    location : Location
    header : Header
    """

    def __init__(self, where: Where, header: Header) -> None:
        self.location = location_of(where)
        self.header = header
        self.layout = header.layout

    @property
    def where(self) -> str:
        """The path or URL as messages show it."""
        return str(self.location)

    def bounds(self, part: int) -> tuple[int, int]:
        """Return the first row of a part and the row behind its last."""
        start = part * self.layout.part_rows
        return start, min(start + self.layout.part_rows, self.layout.rows)

    def chunk_file(self, column: Column, part: int) -> Location:
        """Return the file that holds a part of a column."""
        return self.location / column.chunk_key(part)

    def write_part(
        self,
        part: int,
        columns: Mapping[str, NDArray[Any]],
        facts: Mapping[str, int] = MappingProxyType({}),
    ) -> Receipt:
        """Publish every chunk of a part, then its receipt; writing a part again is harmless.

        Parameters
        ----------
        columns : dtype[rows of the part(, width)] per column
        facts : numbers that the receipt states

        Raises
        ------
        StorageError
            If the disk refuses; the part then has no receipt, so it is not done.
        """
        start, stop = self.bounds(part)
        chunks: dict[str, dict[str, Any]] = {}
        for name in self.layout.column_names:
            column = self.layout.column(name)
            assert columns[name].shape == (stop - start, *column.shape[1:]), name
            data = encode_chunk(column, part, columns[name])
            self.chunk_file(column, part).publish(data)
            chunks[name] = {"bytes": len(data), "crc32c": f"{payload_checksum(data):08x}"}
        receipt = Receipt(
            part=part,
            start=start,
            stop=stop,
            job=self.header.spec_digest,
            chunks=chunks,
            facts=dict(facts),
        )
        self.receipt_file(part).publish(receipt_bytes(receipt, self.layout.parts))
        return receipt

    def receipt(self, part: int) -> Receipt | None:
        """Return the receipt of a part, or None if there is none.

        Raises
        ------
        IntegrityError
            If the receipt is damaged, or belongs to another store.
        """
        file = self.receipt_file(part)
        try:
            data = file.read()
        except NotFoundError:
            return None
        receipt = parse_receipt(data, str(file))
        if receipt is None:
            raise self.fault(
                part,
                "its receipt is damaged: found bytes that fail their own checksum, expected the "
                "ones published",
            )
        expected = self.header.spec_digest
        if receipt.job != expected or (receipt.part, receipt.start, receipt.stop) != (
            part,
            *self.bounds(part),
        ):
            raise self.fault(
                part,
                f"its receipt is of spec {receipt.job}, part {receipt.part}: expected spec "
                f"{expected}",
            )
        return receipt

    def receipts(self) -> list[Receipt]:
        """Return all receipts in the order of the parts.

        Raises
        ------
        IntegrityError
            If a receipt is missing or damaged, or a chunk's file is missing or of wrong size.
        """
        receipts = []
        size_of = self.location.sizes()
        for part, receipt in enumerate(self._read_receipts()):
            if receipt is None:
                raise self.fault(
                    part, "it has no receipt, so it is not done: expected one for every part"
                )
            for name in self.layout.column_names:
                column = self.layout.column(name)
                self._check_size(receipt, column, size_of(column.chunk_key(part)))
            receipts.append(receipt)
        return receipts

    def read_chunk(
        self, receipt: Receipt, name: str, buffer: NDArray[np.uint8] | None = None
    ) -> NDArray[Any]:
        """Read a part of a column, dtype[rows of the part(, width)], checked by its receipt.

        Parameters
        ----------
        buffer : uint8[at least the file's bytes], optional
            The memory to read into; the result is a view of it, unless the column is compressed.

        Raises
        ------
        IntegrityError
            If the chunk is missing, truncated, or differs by a bit.
        """
        column = self.layout.column(name)
        data = self._read_file(receipt, column, buffer)
        self.check_bytes(receipt, column, data)
        if not column.is_plain:
            return decode_chunk(column, receipt.part, data.tobytes())
        values = data[: column.chunk_bytes].view(column.dtype).reshape(column.chunk_shape)
        return values[: receipt.stop - receipt.start]

    def check_chunk(
        self, receipt: Receipt, name: str, buffer: NDArray[np.uint8] | None = None
    ) -> None:
        """Read a part of a column; raise ``IntegrityError`` unless its receipt agrees."""
        column = self.layout.column(name)
        self.check_bytes(receipt, column, self._read_file(receipt, column, buffer))

    def check_bytes(
        self, receipt: Receipt, column: Column, data: bytes | NDArray[np.uint8]
    ) -> None:
        """Raise ``IntegrityError`` unless ``data`` is the file that the receipt describes."""
        expected = receipt.chunks[column.name]
        checksum = payload_checksum(data)
        if (
            len(data) != expected["bytes"]
            or checksum is None
            or f"{checksum:08x}" != expected["crc32c"]
        ):
            stated = (
                "no checksum of its own bytes" if checksum is None else f"crc32c {checksum:08x}"
            )
            raise self.fault(
                receipt.part,
                f"column {column.name} has {stated}: "
                f"its receipt says {expected['crc32c']} over {expected['bytes']} bytes",
            )

    def check(self, advance: Callable[[int], None] = lambda parts: None) -> list[str]:
        """Read every byte of every file; return one sentence per fault."""
        faults = [
            f"{self.where}: {key} is missing or damaged: expected what the header says. {self.fix}"
            for key in wrong_metadata(self.location, self.header)
        ]
        try:
            self.read_model()
        except IntegrityError as error:
            faults.append(str(error))
        for fault in self.each_part(self.check_part):
            if fault is not None:
                faults.append(fault)
            advance(1)
        return faults

    def each_part(self, function: Callable[[int], Result]) -> Iterator[Result]:
        """Yield ``function``, which reads a chunk, of each part in order; see ``Location.each``."""
        columns = map(self.layout.column, self.layout.column_names)
        call_bytes = max(column.chunk_bytes for column in columns)
        return self.location.each(function, range(self.layout.parts), call_bytes=call_bytes)

    def check_part(self, part: int) -> str | None:
        """Read every byte of a part; return its fault, or None."""
        try:
            receipt = self.receipt(part)
            if receipt is None:
                return f"{self.where}: part {part} has no receipt: it is not done. {self.fix}"
            for name in self.layout.column_names:
                self.check_chunk(receipt, name)
        except (IntegrityError, FormatError) as error:
            return str(error)
        return None

    def restore(self, model: Mapping[str, NDArray[Any]]) -> list[str]:
        """Write missing and damaged metadata and model files again; return their keys.

        Parameters
        ----------
        model : the arrays that the store was created with
        """
        return restore_skeleton(self.location, self.header, model)

    def sweep(self) -> None:
        """Remove from the store what killed writers left."""
        self.location.sweep()

    def read_model(self) -> dict[str, NDArray[Any]]:
        """Read the arrays of the model and check every byte.

        Raises
        ------
        IntegrityError
            If an array is missing or differs by a bit.
        """
        return {name: self.read_model_array(name) for name in self.layout.model}

    def read_model_array(self, name: str) -> NDArray[Any]:
        """Read one array of the model and check every byte: see ``read_model``."""
        entry = self.layout.model[name]
        column = model_column(name, entry)
        file = self.location / f"model/{column.chunk_key(0)}"
        try:
            data = file.read()
        except NotFoundError:
            data = b""
        checksum = payload_checksum(data)
        if (
            checksum is None
            or f"{checksum:08x}" != entry["crc32c"]
            or len(data) != column.chunk_bytes + 4
        ):
            raise IntegrityError(
                f"{self.where}: model array {name} is missing or damaged: "
                f"expected crc32c {entry['crc32c']} at {file}. {self.fix}"
            )
        return np.frombuffer(data[: column.chunk_bytes], column.dtype).reshape(column.shape)

    @property
    def stored_bytes(self) -> dict[str, int]:
        """Bytes on disk per column, by the receipts of the parts that are done."""
        done = [receipt for receipt in self._read_receipts() if receipt is not None]
        return {
            name: sum(receipt.chunks[name]["bytes"] for receipt in done)
            for name in self.layout.column_names
        }

    @property
    def parts_done(self) -> int:
        """Number of parts that have a receipt."""
        return sum(receipt is not None for receipt in self._read_receipts())

    @property
    def fix(self) -> str:
        """The sentence on how to repair a part: the note ``fix``, in older stores ``mend``."""
        fix = "Fix: restore the file from a copy, or write the store anew."
        return str(self.header.notes.get("fix", self.header.notes.get("mend", fix))).replace(
            "Mend:", "Fix:"
        )

    def fault(self, part: int, what: str) -> IntegrityError:
        """Return the error that names the fault of a part."""
        return IntegrityError(f"{self.where}: part {part}: {what}. {self.fix}")

    def receipt_file(self, part: int) -> Location:
        """Return the file of the receipt of a part."""
        return self.location / receipts_column(self.layout.parts).chunk_key(part)

    def _read_receipts(self) -> Iterator[Receipt | None]:
        """Yield the receipt of each part, or None if it has none."""
        return self.location.each(self.receipt, range(self.layout.parts))

    def _read_file(
        self, receipt: Receipt, column: Column, buffer: NDArray[np.uint8] | None
    ) -> NDArray[np.uint8]:
        """Read the file of a chunk, whose size must be that of the receipt."""
        size = receipt.chunks[column.name]["bytes"]
        data = (np.empty(size, np.uint8) if buffer is None else buffer)[:size]
        try:
            size_read = self.chunk_file(column, receipt.part).read_into(data)
        except NotFoundError:
            size_read = None
        self._check_size(receipt, column, size_read)
        return data

    def _check_size(self, receipt: Receipt, column: Column, size: int | None) -> None:
        """Raise ``IntegrityError`` unless the file exists and has the size in the receipt."""
        expected = receipt.chunks[column.name]["bytes"]
        if size is None:
            where = self.chunk_file(column, receipt.part)
            raise self.fault(
                receipt.part,
                f"column {column.name} is missing: expected {expected} bytes at {where}",
            )
        if size != expected:
            raise self.fault(
                receipt.part, f"column {column.name} has {size} bytes: its receipt says {expected}"
            )


def create(where: Where, header: Header, model: Mapping[str, NDArray[Any]]) -> PartStore:
    """Publish an empty store: the metadata of every array and the model, all at once.

    Raises
    ------
    ExistsError
        If something is there.
    NotFoundError
        If its folder does not exist.
    StorageError
        If the disk or the object store refuses; nothing is left behind.
    """
    location = location_of(where)
    location.check_new()
    with location.draft() as draft:
        write_skeleton(draft.location, header, model)
        draft.finish(root_metadata(header))
    return PartStore(location, header)

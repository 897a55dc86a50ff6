"""A store of parts: a Zarr v3 group, one array a column, a model beside them, and one receipt a part."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, IntegrityError, NotFoundError
from mercore.stores.location.protocol import Location, Result
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.column import Column, decode_chunk, encode_chunk, payload_checksum
from mercore.stores.part_store.header import Header, model_column
from mercore.stores.part_store.receipts import Receipt, parse_receipt, receipt_bytes, receipts_column
from mercore.stores.part_store.skeleton import restore_skeleton, root_metadata, write_skeleton, wrong_metadata


class PartStore:
    """An open store of parts. Reading and writing parts is safe from any number of threads and processes.

    Attributes
    ----------
    place : Place
    header : Header
    """

    def __init__(self, where: Where, header: Header) -> None:
        self.place = location_of(where)
        self.header = header
        self.layout = header.layout

    @property
    def where(self) -> str:
        """The path or URL as messages show it."""
        return str(self.place)

    def bounds(self, part: int) -> tuple[int, int]:
        """Return the first row of a part and the row behind its last."""
        start = part * self.layout.part_rows
        return start, min(start + self.layout.part_rows, self.layout.rows)

    def chunk_place(self, column: Column, part: int) -> Location:
        """Return the file of a part's chunk of a column."""
        return self.place / column.chunk_key(part)

    def write_part(self, part: int, columns: Mapping[str, NDArray[Any]]) -> Receipt:
        """Publish every column's chunk of a part, then its receipt; writing a part again is harmless.

        Parameters
        ----------
        columns : dtype[rows of the part(, width)] a column

        Raises
        ------
        StorageError
            If the disk refuses; the part is then not done, and no part is half done.
        """
        start, stop = self.bounds(part)
        chunks: dict[str, dict[str, Any]] = {}
        for name in self.layout.column_names:
            column = self.layout.column(name)
            assert columns[name].shape == (stop - start, *column.shape[1:]), name
            data = encode_chunk(column, part, columns[name])
            self.chunk_place(column, part).publish(data)
            chunks[name] = {"bytes": len(data), "crc32c": f"{payload_checksum(data):08x}"}
        receipt = Receipt(part=part, start=start, stop=stop, job=self.header.job, chunks=chunks)
        self.receipt_place(part).publish(receipt_bytes(receipt, self.layout.parts))
        return receipt

    def receipt(self, part: int) -> Receipt | None:
        """Return a part's receipt, or None if there is none.

        Raises
        ------
        IntegrityError
            If the receipt is there but damaged, or belongs to another job.
        """
        file = self.receipt_place(part)
        try:
            data = file.read()
        except NotFoundError:
            return None
        receipt = parse_receipt(data, str(file))
        if receipt is None:
            raise self.fault(
                part, "its receipt is damaged: found bytes that fail their own checksum, expected the ones published"
            )
        if receipt.job != self.header.job or (receipt.part, receipt.start, receipt.stop) != (part, *self.bounds(part)):
            raise self.fault(
                part, f"its receipt is of job {receipt.job}, part {receipt.part}: expected job {self.header.job}"
            )
        return receipt

    def receipts(self) -> list[Receipt]:
        """Return all receipts in the parts' order.

        Raises
        ------
        IntegrityError
            If any is missing or damaged, or a chunk's file is missing or of the wrong size.
        """
        receipts = []
        size_of = self.place.sizes()
        for part, receipt in enumerate(self._receipts_found()):
            if receipt is None:
                raise self.fault(part, "it has no receipt, so it is not done: expected one for every part")
            for name in self.layout.column_names:
                column = self.layout.column(name)
                self._check_size(receipt, column, size_of(column.chunk_key(part)))
            receipts.append(receipt)
        return receipts

    def read_chunk(self, receipt: Receipt, name: str, buffer: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """Return ``dtype[rows of the part(, width)]`` of a column, every byte checked against the receipt.

        Parameters
        ----------
        buffer : uint8[at least the file's bytes], optional
            Where to read to; the result is then a view of it, unless the column is compressed.

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

    def check_chunk(self, receipt: Receipt, name: str, buffer: NDArray[np.uint8] | None = None) -> None:
        """Read a column's chunk and raise ``IntegrityError`` unless every byte is the one its receipt vouches for."""
        column = self.layout.column(name)
        self.check_bytes(receipt, column, self._read_file(receipt, column, buffer))

    def check_bytes(self, receipt: Receipt, column: Column, data: bytes | NDArray[np.uint8]) -> None:
        """Raise ``IntegrityError`` unless ``data`` is the chunk's file that the receipt vouches for."""
        expected = receipt.chunks[column.name]
        found = payload_checksum(data)
        if len(data) != expected["bytes"] or found is None or f"{found:08x}" != expected["crc32c"]:
            told = "no checksum of its own bytes" if found is None else f"crc32c {found:08x}"
            raise self.fault(
                receipt.part,
                f"column {column.name} has {told}: "
                f"its receipt says {expected['crc32c']} over {expected['bytes']} bytes",
            )

    def check(self, advance: Callable[[int], None] = lambda parts: None) -> list[str]:
        """Return all that is wrong with the store, a sentence each; every byte of every file is read."""
        faults = [
            f"{self.where}: {key} is missing or damaged: expected what the header says. {self.fix}"
            for key in wrong_metadata(self.place, self.header)
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
        """Yield ``function`` of each part in order, on an object store of several at once, if it reads a chunk."""
        columns = map(self.layout.column, self.layout.column_names)
        held = max(column.chunk_bytes for column in columns)
        return self.place.each(function, range(self.layout.parts), held=held)

    def check_part(self, part: int) -> str | None:
        """Return what is wrong with a part, or None; every byte is read."""
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
        """Write the metadata and model files that are missing or damaged again; return their keys.

        Parameters
        ----------
        model : the arrays that the store was created with
        """
        return restore_skeleton(self.place, self.header, model)

    def sweep(self) -> None:
        """Remove what killed writers left in the store."""
        self.place.sweep()

    def read_model(self) -> dict[str, NDArray[Any]]:
        """Return the model's arrays, every byte checked.

        Raises
        ------
        IntegrityError
            If one is missing or differs by a bit.
        """
        return {name: self._read_model_array(name) for name in self.layout.model}

    @property
    def stored_bytes(self) -> dict[str, int]:
        """Bytes on disk by column, as the receipts of the parts that are done state them."""
        done = [receipt for receipt in self._receipts_found() if receipt is not None]
        return {name: sum(receipt.chunks[name]["bytes"] for receipt in done) for name in self.layout.column_names}

    @property
    def parts_done(self) -> int:
        """Number of parts that have a receipt."""
        return sum(receipt is not None for receipt in self._receipts_found())

    @property
    def fix(self) -> str:
        """How to repair a damaged part, as the store's notes say; the first stores called the note ``mend``."""
        fix = "Fix: restore the file from a copy, or write the store anew."
        return str(self.header.notes.get("fix", self.header.notes.get("mend", fix))).replace("Mend:", "Fix:")

    def fault(self, part: int, what: str) -> IntegrityError:
        """Return the error that says what is wrong with a part."""
        return IntegrityError(f"{self.where}: part {part}: {what}. {self.fix}")

    def receipt_place(self, part: int) -> Location:
        """Return the file of a part's receipt."""
        return self.place / receipts_column(self.layout.parts).chunk_key(part)

    def _receipts_found(self) -> Iterator[Receipt | None]:
        """Yield each part's receipt, or None if there is none."""
        return self.place.each(self.receipt, range(self.layout.parts))

    def _read_file(self, receipt: Receipt, column: Column, buffer: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        """Return the bytes of a chunk's file, which has as many as the receipt says."""
        size = receipt.chunks[column.name]["bytes"]
        data = (np.empty(size, np.uint8) if buffer is None else buffer)[:size]
        try:
            found = self.chunk_place(column, receipt.part).read_into(data)
        except NotFoundError:
            found = None
        self._check_size(receipt, column, found)
        return data

    def _check_size(self, receipt: Receipt, column: Column, found: int | None) -> None:
        """Raise ``IntegrityError`` unless a chunk's file is there and has the bytes that the receipt says."""
        expected = receipt.chunks[column.name]["bytes"]
        if found is None:
            where = self.chunk_place(column, receipt.part)
            raise self.fault(receipt.part, f"column {column.name} is missing: expected {expected} bytes at {where}")
        if found != expected:
            raise self.fault(receipt.part, f"column {column.name} has {found} bytes: its receipt says {expected}")

    def _read_model_array(self, name: str) -> NDArray[Any]:
        entry = self.layout.model[name]
        column = model_column(name, entry)
        file = self.place / f"model/{column.chunk_key(0)}"
        try:
            data = file.read()
        except NotFoundError:
            data = b""
        found = payload_checksum(data)
        if found is None or f"{found:08x}" != entry["crc32c"] or len(data) != column.chunk_bytes + 4:
            raise IntegrityError(
                f"{self.where}: model array {name} is missing or damaged: "
                f"expected crc32c {entry['crc32c']} at {file}. {self.fix}"
            )
        return np.frombuffer(data[: column.chunk_bytes], column.dtype).reshape(column.shape)


def create(where: Where, header: Header, model: Mapping[str, NDArray[Any]]) -> PartStore:
    """Publish an empty store: every array's metadata and the whole model become a store at once.

    Raises
    ------
    ExistsError
        If something is there.
    NotFoundError
        If the folder that it is to lie in is not there.
    StorageError
        If the disk or the object store refuses; nothing is left behind.
    """
    at = location_of(where)
    at.check_new()
    with at.draft() as draft:
        write_skeleton(draft.place, header, model)
        draft.finish(root_metadata(header))
    return PartStore(at, header)

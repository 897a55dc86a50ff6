"""A store of parts: a Zarr v3 group, one array a column, a model beside them, and one receipt a part."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stores.columns import Column, decode_chunk, encode_chunk, payload_checksum
from stores.errors import ExistsError, FormatError, IntegrityError, NotFoundError
from stores.header import Header, model_column
from stores.publish import check_folder, publish, storage_errors, sync_folder
from stores.receipts import Receipt, parse_receipt, receipt_bytes, receipts_column
from stores.scratch import scratch_folder, sweep, sweep_tree
from stores.skeleton import write_skeleton, wrong_metadata


class PartStore:
    """An open store of parts. Reading and writing parts is safe from any number of threads and processes.

    Attributes
    ----------
    path : Path
    header : Header
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self.layout = header.layout

    @property
    def where(self) -> str:
        """The path as messages show it."""
        return str(self.path)

    def bounds(self, part: int) -> tuple[int, int]:
        """Return the first row of a part and the row behind its last."""
        start = part * self.layout.part_rows
        return start, min(start + self.layout.part_rows, self.layout.rows)

    def chunk_path(self, column: Column, part: int) -> Path:
        """Return the file of a part's chunk of a column."""
        return self.path / column.chunk_key(part)

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
            publish(self.chunk_path(column, part), data)
            chunks[name] = {"bytes": len(data), "crc32c": f"{payload_checksum(data):08x}"}
        receipt = Receipt(part=part, start=start, stop=stop, job=self.header.job, chunks=chunks)
        publish(self.receipt_path(part), receipt_bytes(receipt, self.layout.parts))
        return receipt

    def receipt(self, part: int) -> Receipt | None:
        """Return a part's receipt, or None if there is none.

        Raises
        ------
        IntegrityError
            If the receipt is there but damaged, or belongs to another job.
        """
        path = self.receipt_path(part)
        try:
            with storage_errors("read", path):
                data = path.read_bytes()
        except NotFoundError:
            return None
        receipt = parse_receipt(data, str(path))
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
        for part in range(self.layout.parts):
            receipt = self.receipt(part)
            if receipt is None:
                raise self.fault(part, "it has no receipt, so it is not done: expected one for every part")
            for name in self.layout.column_names:
                self._check_size(receipt, self.layout.column(name))
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
            f"{self.where}: {key} is missing or damaged: expected what the header says. {self.mend}"
            for key in wrong_metadata(self.path, self.header)
        ]
        try:
            self.read_model()
        except IntegrityError as error:
            faults.append(str(error))
        for part in range(self.layout.parts):
            fault = self.check_part(part)
            if fault is not None:
                faults.append(fault)
            advance(1)
        return faults

    def check_part(self, part: int) -> str | None:
        """Return what is wrong with a part, or None; every byte is read."""
        try:
            receipt = self.receipt(part)
            if receipt is None:
                return f"{self.where}: part {part} has no receipt: it is not done. {self.mend}"
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
        return write_skeleton(self.path, self.header, model)

    def sweep(self) -> None:
        """Remove the scratch files that killed writers left in the store."""
        sweep_tree(self.path)

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
        done = [receipt for receipt in map(self.receipt, range(self.layout.parts)) if receipt is not None]
        return {name: sum(receipt.chunks[name]["bytes"] for receipt in done) for name in self.layout.column_names}

    @property
    def parts_done(self) -> int:
        """Number of parts that have a receipt."""
        return sum(self.receipt(part) is not None for part in range(self.layout.parts))

    @property
    def mend(self) -> str:
        """What mends a damaged part."""
        return str(self.header.notes.get("mend", "Mend: restore the file from a copy, or write the store anew."))

    def fault(self, part: int, what: str) -> IntegrityError:
        """Return the error that says what is wrong with a part."""
        return IntegrityError(f"{self.where}: part {part}: {what}. {self.mend}")

    def receipt_path(self, part: int) -> Path:
        """Return the file of a part's receipt."""
        return self.path / receipts_column(self.layout.parts).chunk_key(part)

    def _read_file(self, receipt: Receipt, column: Column, buffer: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
        """Return the bytes of a chunk's file, its size checked before a byte is read."""
        self._check_size(receipt, column)
        path = self.chunk_path(column, receipt.part)
        size = receipt.chunks[column.name]["bytes"]
        data = (np.empty(size, np.uint8) if buffer is None else buffer)[:size]
        with storage_errors("read", path), path.open("rb", buffering=0) as file:
            done = 0
            while done < size and (count := file.readinto(data.data[done:])):
                done += count
        return data[:done]

    def _check_size(self, receipt: Receipt, column: Column) -> None:
        path = self.chunk_path(column, receipt.part)
        expected = receipt.chunks[column.name]["bytes"]
        try:
            with storage_errors("read", path):
                found = path.stat().st_size
        except NotFoundError:
            raise self.fault(
                receipt.part, f"column {column.name} is missing: expected {expected} bytes at {path}"
            ) from None
        if found != expected:
            raise self.fault(receipt.part, f"column {column.name} has {found} bytes: its receipt says {expected}")

    def _read_model_array(self, name: str) -> NDArray[Any]:
        entry = self.layout.model[name]
        column = model_column(name, entry)
        path = self.path / "model" / column.chunk_key(0)
        try:
            with storage_errors("read", path):
                data = path.read_bytes()
        except NotFoundError:
            data = b""
        found = payload_checksum(data)
        if found is None or f"{found:08x}" != entry["crc32c"] or len(data) != column.chunk_bytes + 4:
            raise IntegrityError(
                f"{self.where}: model array {name} is missing or damaged: "
                f"expected crc32c {entry['crc32c']} at {path}. {self.mend}"
            )
        return np.frombuffer(data[: column.chunk_bytes], column.dtype).reshape(column.shape)


def create(path: Path, header: Header, model: Mapping[str, NDArray[Any]]) -> PartStore:
    """Publish an empty store: every array's metadata and the whole model appear at once under ``path``.

    Raises
    ------
    ExistsError
        If ``path`` exists.
    StorageError
        If the disk refuses; nothing is left behind.
    """
    check_new_path(path)
    sweep(path.parent, path.name)
    with storage_errors("write", path), scratch_folder(path) as scratch:
        write_skeleton(scratch, header, model)
        take_name(scratch, path)
    return PartStore(path, header)


def check_new_path(path: Path) -> None:
    """Refuse a path at which no store can be made, before any work is done for it.

    Raises
    ------
    ExistsError
        If something is there.
    StorageError
        If its folder is not there.
    """
    with storage_errors("write", path):
        if os.path.lexists(path):
            raise ExistsError(f"{path} exists: expected a new path. Mend: name another, or remove it.")
    check_folder(path)


def take_name(scratch: Path, path: Path) -> None:
    """Give a finished folder its name, durably.

    Raises
    ------
    ExistsError
        If another process was quicker.
    """
    try:
        scratch.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        raise ExistsError(f"{path} appeared a moment ago: expected a new path. Mend: name another.") from None
    sync_folder(path.parent)

"""A store of parts: a Zarr v3 group with an array per column, a model, and a receipt per part."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, IntegrityError, MercoreError, NotFoundError
from mercore.stores.location.local import LocalLocation
from mercore.stores.location.protocol import Location, Result
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.column import Column, decode_chunk, encode_chunk, payload_checksum
from mercore.stores.part_store.header import Header, model_column, open_header
from mercore.stores.part_store.receipts import (
    Receipt,
    check_receipt,
    chunk_entry,
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

MENDING = {"codes": "encode", "orders": "index"}  # the verb that redoes damaged parts, by kind


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
        self._columns = [*map(self.layout.column, self.layout.column_names)]

    @property
    def where(self) -> str:
        """The path or URL as messages show it."""
        return str(self.location)

    @property
    def is_local(self) -> bool:
        """Whether its files lie on this machine, whose memory keeps what was just read."""
        return isinstance(self.location, LocalLocation)

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

        A part that had fewer rows in an earlier state of the store grows: see ``grow_part``.

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
        shapes = {name: values.shape for name, values in columns.items()}
        for name in self.layout.column_names:
            assert shapes[name] == (stop - start, *self.layout.column(name).shape[1:]), name
        encoded = (
            (name, encode_chunk(self.layout.column(name), columns[name]))
            for name in self.layout.column_names
        )
        earlier = self.ungrown_receipt(part)
        if earlier is not None:
            return self.grow_part(earlier, dict(encoded))
        chunks: dict[str, dict[str, Any]] = {}
        for name, data in encoded:
            self.chunk_file(self.layout.column(name), part).publish(data)
            chunks[name] = chunk_entry(data)
        return self.publish_receipt(part, chunks, facts)

    def grow_part(self, earlier: Receipt, files: Mapping[str, bytes]) -> Receipt:
        """Publish the files of a part that has fewer rows in an earlier state of the store.

        The receipt comes first, and describes both states: old and new files begin with the same
        rows, so a reader of either state may find any of them.

        Parameters
        ----------
        earlier : the receipt of the earlier state
        files : the chunk of each column
        """
        part, stop = earlier.part, self.bounds(earlier.part)[1]
        chunks = {name: chunk_entry(data) for name, data in files.items()}
        grown = {"job": self.header.spec_digest, "stop": stop, "chunks": chunks}
        both = replace(earlier, grown=grown)
        self.receipt_file(part).publish(receipt_bytes(both, self.layout.parts))
        for name, data in files.items():
            self.chunk_file(self.layout.column(name), part).publish(data)
        return both

    def publish_receipt(
        self,
        part: int,
        chunks: dict[str, dict[str, Any]],
        facts: Mapping[str, int] = MappingProxyType({}),
    ) -> Receipt:
        """Publish the receipt of a part whose chunks, with these entries, are published."""
        start, stop = self.bounds(part)
        job = self.header.spec_digest
        receipt = Receipt(
            part=part, start=start, stop=stop, job=job, chunks=chunks, facts=dict(facts)
        )
        self.receipt_file(part).publish(receipt_bytes(receipt, self.layout.parts))
        return receipt

    def receipt(self, part: int) -> Receipt | None:
        """Return the receipt of a part, or None if there is none for all its rows.

        A store that grows, or has grown since it was opened, keeps its receipts of this state.

        Raises
        ------
        IntegrityError
            If the receipt is damaged, or belongs to another store.
        """
        stored = self.stored_receipt(part)
        if stored is None or self._is_ungrown(stored, part):
            return None
        receipt = self._of_this_state(stored, part) or self._of_newer_state(part)
        if receipt is None:
            raise self.fault(
                part,
                f"its receipt is of spec {stored.job}, part {stored.part}: expected spec "
                f"{self.header.spec_digest}",
            )
        return receipt

    def stored_receipt(self, part: int) -> Receipt | None:
        """Return the receipt of a part as it is stored, of any state, or None if there is none.

        Raises
        ------
        IntegrityError, FormatError
            If the receipt is damaged, or describes no files of this store.
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
        check_receipt(receipt, self._columns, str(file))
        return receipt

    def ungrown_receipt(self, part: int) -> Receipt | None:
        """Return the stored receipt of a part if it is of an earlier state with fewer rows."""
        if not self.layout.grown_from:
            return None
        with suppress(IntegrityError, FormatError):
            stored = self.stored_receipt(part)
            if stored is not None and self._is_earlier(stored, part):
                return stored
        return None

    def _is_earlier(self, stored: Receipt, part: int) -> bool:
        """Return whether a receipt is of an earlier state, in which its part had fewer rows."""
        start, stop = self.bounds(part)
        at_start = (stored.part, stored.start) == (part, start)
        return at_start and stored.job in self._earlier and stored.stop < stop

    @cached_property
    def _earlier(self) -> set[str]:
        """The digests of the earlier states."""
        return {state["digest"] for state in self.layout.grown_from}

    def _is_ungrown(self, stored: Receipt, part: int) -> bool:
        """Return whether a part has still to grow to this state."""
        grows = stored.grown.get("job") == self.header.spec_digest
        return self._is_earlier(stored, part) and not grows

    def _of_this_state(self, stored: Receipt, part: int) -> Receipt | None:
        """Return a stored receipt as one of this state, or None if it is of another."""
        job = self.header.spec_digest
        wanted = (part, *self.bounds(part))
        known = stored.job == job or stored.job in self._earlier
        if known and (stored.part, stored.start, stored.stop) == wanted:
            return stored
        grown = stored.grown
        if (grown.get("job"), stored.part, stored.start, grown.get("stop")) == (job, *wanted):
            return replace(stored, job=job, stop=grown["stop"], chunks=grown["chunks"], grown={})
        return None

    def _of_newer_state(self, part: int) -> Receipt | None:
        """Return the receipt of a part after the store has grown, or None if it has not."""
        with suppress(MercoreError):
            header = open_header(self.location)
            states = [state["digest"] for state in header.layout.grown_from]
            if self.header.spec_digest in states:
                newer = PartStore(self.location, header).receipt(part)
                return None if newer is None else replace(newer, stop=self.bounds(part)[1])
        return None

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
                raise self._not_done(part)
            for column in self._columns:
                self._check_size(receipt, column, size_of(column.chunk_key(part)))
            receipts.append(receipt)
        return receipts

    def done_receipt(self, part: int) -> Receipt:
        """Return the receipt of a part.

        Raises
        ------
        IntegrityError
            If it is missing or damaged.
        """
        receipt = self.receipt(part)
        if receipt is None:
            raise self._not_done(part)
        return receipt

    def _not_done(self, part: int) -> IntegrityError:
        """Return the error that a part has no receipt."""
        return self.fault(part, "it has no receipt, so it is not done: expected one for every part")

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
            If the chunk is missing, truncated, differs by a bit, or is none of the column.
        """
        column = self.layout.column(name)
        data = self._read_checked(receipt, column, buffer)
        if not column.is_plain:
            try:
                return decode_chunk(column, receipt.part, data.data)
            except ValueError as error:
                raise self.fault(
                    receipt.part, f"column {name} cannot be decoded: {error}"
                ) from error
        values = data[: column.chunk_bytes].view(column.dtype).reshape(column.chunk_shape)
        return values[: receipt.stop - receipt.start]

    def check_chunk(
        self, receipt: Receipt, name: str, buffer: NDArray[np.uint8] | None = None
    ) -> None:
        """Read a part of a column; raise ``IntegrityError`` unless its receipt agrees."""
        self._read_checked(receipt, self.layout.column(name), buffer)

    def check_bytes(
        self, receipt: Receipt, column: Column, data: bytes | NDArray[np.uint8]
    ) -> None:
        """Raise ``IntegrityError`` unless ``data`` is the file that the receipt describes."""
        expected = receipt.chunks[column.name]
        checksum = payload_checksum(data)
        found = {"bytes": len(data), "crc32c": None if checksum is None else f"{checksum:08x}"}
        if found not in receipt.entries(column.name):
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

    def each_part(self, function: Callable[[int], Result], first: int = 0) -> Iterator[Result]:
        """Yield ``function``, which reads a chunk, of each part from ``first`` on, in order.

        See ``Location.each``.
        """
        call_bytes = max(column.chunk_bytes for column in self._columns)
        return self.location.each(function, range(first, self.layout.parts), call_bytes=call_bytes)

    def check_part(self, part: int) -> str | None:
        """Read every byte of a part; return its fault, or None."""
        try:
            receipt = self.receipt(part)
            if receipt is None:
                return f"{self.where}: part {part} has no receipt: it is not done. {self.fix}"
            for column in self._columns:
                self.check_chunk(receipt, column.name)
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

    def done(self) -> list[Receipt]:
        """Return the receipts of the parts that are done."""
        return [receipt for receipt in self._read_receipts() if receipt is not None]

    def column_bytes(self, receipts: Sequence[Receipt]) -> dict[str, int]:
        """Return the bytes on disk per column of the parts of some receipts."""
        return {
            name: sum(receipt.chunks[name]["bytes"] for receipt in receipts)
            for name in self.layout.column_names
        }

    @property
    def parts_done(self) -> int:
        """Number of parts that have a receipt."""
        return len(self.done())

    @property
    def fix(self) -> str:
        """The sentence on how to repair a part, by the kind of the store, not by its notes."""
        verb = MENDING.get(self.header.kind)
        if verb is None:
            return "Fix: restore the file from a copy, or write the store anew."
        return f"Fix: run the same mercore {verb} again: it redoes what is wrong, and only that."

    def fault(self, part: int, what: str) -> IntegrityError:
        """Return the error that names the fault of a part."""
        return IntegrityError(f"{self.where}: part {part}: {what}. {self.fix}")

    def receipt_file(self, part: int) -> Location:
        """Return the file of the receipt of a part."""
        return self.location / self.receipt_key(part)

    def receipt_key(self, part: int) -> str:
        """Return the key of the receipt of a part."""
        return receipts_column(self.layout.parts).chunk_key(part)

    def _read_receipts(self) -> Iterator[Receipt | None]:
        """Yield the receipt of each part, or None if it has none."""
        return self.location.each(self.receipt, range(self.layout.parts))

    def _read_checked(
        self, receipt: Receipt, column: Column, buffer: NDArray[np.uint8] | None
    ) -> NDArray[np.uint8]:
        """Read the file of a chunk and check it; read again if the part has grown meanwhile."""
        try:
            data = self._read_file(receipt, column, buffer)
            self.check_bytes(receipt, column, data)
        except IntegrityError:
            fresh = None
            with suppress(MercoreError):
                fresh = self.receipt(receipt.part)
            if fresh is None or fresh == receipt:
                raise
            data = self._read_file(fresh, column, None)
            self.check_bytes(fresh, column, data)
        return data

    def _read_file(
        self, receipt: Receipt, column: Column, buffer: NDArray[np.uint8] | None
    ) -> NDArray[np.uint8]:
        """Read the file of a chunk, whose size must be one that the receipt states."""
        file, size_read = self.chunk_file(column, receipt.part), None
        for size in {entry["bytes"]: None for entry in receipt.entries(column.name)}:
            fits = buffer is not None and len(buffer) >= size
            data = buffer[:size] if buffer is not None and fits else np.empty(size, np.uint8)
            with suppress(NotFoundError):
                size_read = file.read_into(data)
            if size_read == size:
                return data
        self._check_size(receipt, column, size_read)
        raise AssertionError("a file of a stated size was not read")

    def _check_size(self, receipt: Receipt, column: Column, size: int | None) -> None:
        """Raise ``IntegrityError`` unless the file exists and has the size in the receipt."""
        expected = receipt.chunks[column.name]["bytes"]
        if size is None:
            where = self.chunk_file(column, receipt.part)
            raise self.fault(
                receipt.part,
                f"column {column.name} is missing: expected {expected} bytes at {where}",
            )
        if size not in (entry["bytes"] for entry in receipt.entries(column.name)):
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

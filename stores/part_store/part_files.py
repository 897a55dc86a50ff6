"""The files of the parts of a store: chunks and receipts, published and read as they lie there."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import IntegrityError, NotFoundError
from mercore.stores.location.protocol import Location
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.column import (
    CHECKSUM_BYTES,
    DIGEST,
    Column,
    chunk_digest,
    decode_chunk,
    payload_checksum,
)
from mercore.stores.part_store.header import Header
from mercore.stores.part_store.receipts import (
    Receipt,
    check_receipt,
    parse_receipt,
    receipt_bytes,
    receipts_column,
)

# the verb that redoes damaged parts, by kind
MENDING = {"codes": "encode"} | dict.fromkeys(("orders", "cells", "sorted_parts"), "index")


class Reads:
    """A count of what was read of the chunks of a store, for any number of threads."""

    def __init__(self) -> None:
        self.bytes = self.requests = self.blocks = 0
        self._lock = Lock()

    def add(self, size: int, requests: int = 1, blocks: int = 0) -> None:
        """Count bytes, the requests that read them, and the blocks that they were looked up in."""
        with self._lock:
            self.bytes += size
            self.requests += requests
            self.blocks += blocks


class PartFiles:
    """The files of the parts of a store, in the state that a header describes.

    Attributes
    ----------
    location : Location
    header : Header
    layout : Layout
    columns : Column by name
    receipts_column : Column
    reads : Reads, of chunks
    """

    def __init__(self, where: Where, header: Header) -> None:
        self.location = location_of(where)
        self.header = header
        self.layout = header.layout
        self.columns = header.columns
        self.receipts_column = receipts_column(header)
        self.reads = Reads()

    @cached_property
    def earlier(self) -> set[str]:
        """The digests of the earlier states."""
        return {state["digest"] for state in self.layout.grown_from}

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

    def receipt_file(self, part: int) -> Location:
        """Return the file of the receipt of a part."""
        return self.location / self.receipt_key(part)

    def receipt_key(self, part: int) -> str:
        """Return the key of the receipt of a part."""
        return self.receipts_column.chunk_key(part)

    def new_receipt(
        self,
        part: int,
        chunks: dict[str, dict[str, Any]],
        facts: Mapping[str, int] = MappingProxyType({}),
    ) -> Receipt:
        """Return the receipt of all rows of a part, whose chunks have these entries."""
        start, stop = self.bounds(part)
        job = self.header.spec_digest
        return Receipt(part=part, start=start, stop=stop, job=job, chunks=chunks, facts=dict(facts))

    def publish_receipt(self, receipt: Receipt) -> None:
        """Publish the receipt of a part whose chunks are published."""
        self.receipt_file(receipt.part).publish(receipt_bytes(receipt, self.receipts_column))

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
        check_receipt(receipt, [*self.columns.values()], str(file))
        return receipt

    def read_file(
        self, receipt: Receipt, column: Column, buffer: NDArray[np.uint8] | None = None
    ) -> NDArray[np.uint8]:
        """Read the file of a chunk, and check that it is one that the receipt describes.

        Parameters
        ----------
        buffer : uint8[any], optional
            The memory to read into, if it is large enough; the result is a view of it.

        Raises
        ------
        IntegrityError
            If the file is missing, truncated, or differs by a bit.
        """
        file, size_read = self.chunk_file(column, receipt.part), None
        for size in {entry["bytes"]: None for entry in receipt.entries(column.name)}:
            fits = buffer is not None and len(buffer) >= size
            data = buffer[:size] if buffer is not None and fits else np.empty(size, np.uint8)
            with suppress(NotFoundError):
                size_read = file.read_into(data)
            if size_read == size:
                self.reads.add(size)
                self.check_bytes(receipt, column, data)
                return data
        self.check_size(receipt, column, size_read)
        raise AssertionError("a file of a stated size was not read")

    def decode_file(
        self, receipt: Receipt, column: Column, data: NDArray[np.uint8]
    ) -> NDArray[Any]:
        """Return the rows in a checked file, dtype[rows of the part(, width)].

        They are a view of the file's bytes, unless the column is compressed.
        """
        if not column.is_plain:
            try:
                return decode_chunk(column, receipt.part, data.data)
            except ValueError as error:
                raise self.fault(
                    receipt.part, f"column {column.name} cannot be decoded: {error}"
                ) from error
        values = data[: column.chunk_bytes].view(column.dtype).reshape(column.chunk_shape)
        return values[: receipt.stop - receipt.start]

    def check_bytes(
        self, receipt: Receipt, column: Column, data: bytes | NDArray[np.uint8]
    ) -> None:
        """Raise ``IntegrityError`` unless ``data`` is a file that the receipt describes."""
        expected = receipt.chunks[column.name]
        checksum = payload_checksum(data)
        found = len(data), None if checksum is None else f"{checksum:08x}"
        if found not in [(each["bytes"], each["crc32c"]) for each in receipt.entries(column.name)]:
            stated = (
                "no checksum of its own bytes" if checksum is None else f"crc32c {checksum:08x}"
            )
            raise self.fault(
                receipt.part,
                f"column {column.name} has {stated}: "
                f"its receipt says {expected['crc32c']} over {expected['bytes']} bytes",
            )

    def check_digest(self, receipt: Receipt, column: Column, data: NDArray[np.uint8]) -> None:
        """Raise ``IntegrityError`` unless the receipt states the digest of ``data``, if any."""
        if column.digest == "none":
            return
        found = chunk_digest(data[:-CHECKSUM_BYTES])
        expected = [entry[DIGEST] for entry in receipt.entries(column.name)]
        if found not in expected:
            raise self.fault(
                receipt.part,
                f"column {column.name} has other bytes of the same crc32c: found {DIGEST} {found}, "
                f"its receipt says {expected[0]}",
            )

    def check_size(self, receipt: Receipt, column: Column, size: int | None) -> None:
        """Raise ``IntegrityError`` unless the file exists, in a size that the receipt states."""
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

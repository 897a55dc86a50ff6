"""Receipts, one per part: the proof that its chunks were published, and with which bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mercore.stores.errors import FormatError
from mercore.stores.part_store.column import CHECKSUM_BYTES, Column, encode_chunk, payload_checksum
from mercore.stores.spec import (
    ABSENT,
    RESTORE,
    canonical_json,
    check_types,
    from_json,
    parse_json,
    to_json,
)

RECEIPT_BYTES = 1024
ENTRY_TYPES = {"bytes": int, "crc32c": str}
GROWN_TYPES = {"job": str, "stop": int, "chunks": dict[str, Any]}


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The proof that a part, rows ``start`` to ``stop``, is done.

    ``job`` is the store's ``Header.spec_digest``. ``chunks`` maps each column to the size of the
    part's file and the crc32c of all but its last four bytes. ``facts`` are numbers that a reader
    can use before it reads the part.

    ``grown`` describes the part of the store that the next state of a growing store will have: its
    ``job``, its ``stop`` and its ``chunks``. Until the growth is done, a file of the part may
    be that of ``chunks`` or that of ``grown``; either begins with the same rows.
    """

    name: str = field(default="mercore-receipt", init=True)
    version: int = 1
    part: int
    start: int
    stop: int
    job: str
    chunks: dict[str, dict[str, Any]]
    facts: dict[str, int] = field(default_factory=dict, metadata={ABSENT: {}})
    grown: dict[str, Any] = field(default_factory=dict, metadata={ABSENT: {}})

    @property
    def states(self) -> list["Receipt"]:
        """The receipt of each state that it describes: its own, and that of ``grown``."""
        return [self, *([replace(self, **self.grown, grown={})] if self.grown else [])]

    def entries(self, column: str) -> list[dict[str, Any]]:
        """Return size and checksum of each file that may hold the part of a column."""
        return [each.chunks[column] for each in self.states]


def chunk_entry(data: bytes) -> dict[str, Any]:
    """Return the entry of a receipt for the file of a chunk."""
    return {"bytes": len(data), "crc32c": f"{payload_checksum(data):08x}"}


def receipts_column(parts: int) -> Column:
    """Return the column of the receipts: per part one chunk, a row of JSON padded with blanks."""
    return Column(name="receipts", dtype="uint8", width=RECEIPT_BYTES, rows=parts, part_rows=1)


def receipt_bytes(receipt: Receipt, parts: int) -> bytes:
    """Return the chunk of a receipt."""
    text = canonical_json(to_json(receipt)).encode()
    if len(text) > RECEIPT_BYTES:
        raise FormatError(
            f"receipt of part {receipt.part} takes {len(text)} bytes: expected at most "
            f"{RECEIPT_BYTES}. Fix: fewer columns."
        )
    row = np.frombuffer(text.ljust(RECEIPT_BYTES), np.uint8)[None, :]
    return encode_chunk(receipts_column(parts), row)


def parse_receipt(data: bytes, where: str) -> Receipt | None:
    """Return the receipt in a chunk, or None if its bytes are damaged.

    Raises
    ------
    FormatError
        If its bytes are right, but it is of another format version.
    """
    if len(data) != RECEIPT_BYTES + CHECKSUM_BYTES or payload_checksum(data) is None:
        return None
    try:
        mapping = parse_json(data[:RECEIPT_BYTES])
    except ValueError:
        return None
    return from_json(Receipt, mapping, where)


def check_receipt(receipt: Receipt, columns: Sequence[Column], where: str) -> None:
    """Refuse a receipt unless it states a file of a possible size for each column.

    Raises
    ------
    FormatError
        If a column is missing or unknown, an entry has other fields, or a size is impossible.
    """
    if receipt.grown:
        check_types(receipt.grown, GROWN_TYPES, where)
    for each in receipt.states:
        check_types(each.chunks, {column.name: dict[str, Any] for column in columns}, where)
        for column in columns:
            entry = each.chunks[column.name]
            check_types(entry, ENTRY_TYPES, where)
            if not column.can_take(entry["bytes"]):
                raise FormatError(
                    f"{where}: column {column.name} takes {entry['bytes']} bytes, expected a size "
                    f"that chunks of {column.chunk_bytes} bytes can have. {RESTORE}"
                )

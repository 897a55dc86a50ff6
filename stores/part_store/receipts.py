"""Receipts, one per part: the proof that its chunks were published, and with which bytes."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mercore.stores.errors import FormatError
from mercore.stores.part_store.column import CHECKSUM_BYTES, Column, encode_chunk, payload_checksum
from mercore.stores.spec import ABSENT, canonical_json, from_json, to_json

RECEIPT_BYTES = 1024


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

    def entries(self, column: str) -> list[dict[str, Any]]:
        """Return size and checksum of each file that may hold the part of a column."""
        states = [self.chunks, *([self.grown["chunks"]] if self.grown else [])]
        return [chunks[column] for chunks in states]


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
            f"{RECEIPT_BYTES}. "
            "Fix: fewer columns."
        )
    row = np.frombuffer(text.ljust(RECEIPT_BYTES), np.uint8)[None, :]
    return encode_chunk(receipts_column(parts), receipt.part, row)


def parse_receipt(data: bytes, where: str) -> Receipt | None:
    """Return the receipt in a chunk, or None if its bytes are damaged.

    Raises
    ------
    FormatError
        If the receipt is whole, but of another format version.
    """
    if len(data) != RECEIPT_BYTES + CHECKSUM_BYTES or payload_checksum(data) is None:
        return None
    try:
        mapping = json.loads(data[:RECEIPT_BYTES])
    except ValueError:
        return None
    return from_json(Receipt, mapping, where)

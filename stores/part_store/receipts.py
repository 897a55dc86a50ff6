"""Receipts: one a part, the proof that each of its chunks was published, and with which bytes."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mercore.stores.errors import FormatError
from mercore.stores.part_store.column import CHECKSUM_BYTES, Column, encode_chunk, payload_checksum
from mercore.stores.spec import canonical_json, from_json, to_json

RECEIPT_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The proof that part ``part``, rows ``start`` to ``stop``, is done for the job of digest ``job``.

    ``chunks`` maps a column to the size of its chunk's file and the crc32c of all but the file's last four bytes.
    """

    name: str = field(default="mercore-receipt", init=True)
    version: int = 1
    part: int
    start: int
    stop: int
    job: str
    chunks: dict[str, dict[str, Any]]


def receipts_column(parts: int) -> Column:
    """Return the column that holds the receipts: a row of JSON text a part, padded with blanks, a chunk each."""
    return Column(name="receipts", dtype="uint8", width=RECEIPT_BYTES, rows=parts, part_rows=1)


def receipt_bytes(receipt: Receipt, parts: int) -> bytes:
    """Return the chunk that holds ``receipt``."""
    text = canonical_json(to_json(receipt)).encode()
    if len(text) > RECEIPT_BYTES:
        raise FormatError(
            f"receipt of part {receipt.part} takes {len(text)} bytes: expected at most {RECEIPT_BYTES}. "
            "Fix: fewer columns."
        )
    row = np.frombuffer(text.ljust(RECEIPT_BYTES), np.uint8)[None, :]
    return encode_chunk(receipts_column(parts), receipt.part, row)


def parse_receipt(data: bytes, where: str) -> Receipt | None:
    """Return the receipt in a chunk's bytes, or None if its bytes are not the ones that were written.

    Raises
    ------
    FormatError
        If the bytes are whole but of another format version.
    """
    if len(data) != RECEIPT_BYTES + CHECKSUM_BYTES or payload_checksum(data) is None:
        return None
    try:
        mapping = json.loads(data[:RECEIPT_BYTES])
    except ValueError:
        return None
    return from_json(Receipt, mapping, where)

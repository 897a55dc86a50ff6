"""Receipts, one per part: the proof that its chunks were published, and with which bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.location.protocol import Piece
from mercore.stores.part_store.blocks import (
    block_checksums,
    parse_table,
    table_text,
    text_bytes,
)
from mercore.stores.part_store.column import (
    CHECKSUM_BYTES,
    DIGEST,
    Column,
    checksum_bytes,
    chunk_digest,
    chunk_payload,
    encode_chunk,
    payload_checksum,
)
from mercore.stores.part_store.header import Header
from mercore.stores.spec import (
    ABSENT,
    RESTORE,
    canonical_json,
    check_types,
    from_json,
    parse_json,
    to_json,
)

RECEIPT_BYTES = 1024  # without tables of blocks
STATED = ("bytes", "crc32c", DIGEST)  # what an entry can state of a chunk as a whole
ENTRY_TYPES = {"bytes": int, "crc32c": str, DIGEST: str, "blocks": str}
GROWN_TYPES = {"job": str, "stop": int, "chunks": dict[str, Any]}


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The proof that a part, rows ``start`` to ``stop``, is done.

    ``job`` is the store's ``Header.spec_digest``. ``chunks`` maps each column to the size of the
    part's file and the crc32c of all but its last four bytes. An entry also has the BLAKE3 of these
    bytes if its column has digests, and the checksums of its blocks (see ``blocks.py``), if it has
    any. ``facts`` are numbers that a reader can use before it reads the part.

    ``grown`` describes the part of the store that the next state of a growing store will have: its
    ``job``, its ``stop`` and its ``chunks``. Until the growth is done, a file of the part may
    be that of ``chunks`` or that of ``grown``; either begins with the same rows. Only ``grown``
    has checksums of blocks then.
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
        return [stated(each.chunks[column]) for each in self.states]

    def table(self, column: Column) -> NDArray[np.uint32] | None:
        """Return the checksums of the blocks of a column, uint32[blocks], or None without any."""
        text = self.chunks[column.name].get("blocks", "")
        return parse_table(text) if text and column.blocks else None


def chunk_entry(column: Column, data: bytes) -> dict[str, Any]:
    """Return the entry of a receipt for the file of a chunk."""
    return _entry(column, np.frombuffer(data, np.uint8)[:-CHECKSUM_BYTES])


def encode_with_entry(
    column: Column, values: NDArray[Any]
) -> tuple[tuple[Piece, Piece], dict[str, Any]]:
    """Return the file of a chunk in two pieces (see ``encode_chunk``), and its entry.

    Both take one pass over the bytes.
    """
    payload = chunk_payload(column, values)
    entry = _entry(column, payload)
    return (payload.data, checksum_bytes(int(entry["crc32c"], 16))), entry


def _entry(column: Column, payload: NDArray[np.uint8]) -> dict[str, Any]:
    """Return the entry for a chunk without its checksum."""
    table = block_checksums(column, payload) if column.blocks else None
    checksum = google_crc32c.value(payload) if table is None else table[-1]
    entry = {"bytes": len(payload) + CHECKSUM_BYTES, "crc32c": f"{checksum:08x}"}
    if column.digest != "none":
        entry[DIGEST] = chunk_digest(payload)
    return entry if table is None else {**entry, "blocks": table_text(table)}


def stated(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry without the checksums of blocks."""
    return {name: entry[name] for name in STATED if name in entry}


def receipts_column(header: Header) -> Column:
    """Return the column of the receipts: per part one chunk, a row of JSON padded with blanks."""
    width = RECEIPT_BYTES + sum(map(text_bytes, header.columns.values()))
    return Column(
        name="receipts", dtype="uint8", width=width, rows=header.layout.parts, part_rows=1
    )


def receipt_bytes(receipt: Receipt, column: Column) -> bytes:
    """Return the chunk of a receipt in the column of the receipts."""
    text = canonical_json(to_json(receipt)).encode()
    if len(text) > column.row_bytes:
        raise FormatError(
            f"receipt of part {receipt.part} takes {len(text)} bytes: expected at most "
            f"{column.row_bytes}. Fix: fewer columns."
        )
    row = np.frombuffer(text.ljust(column.row_bytes), np.uint8)[None, :]
    return encode_chunk(column, row)


def parse_receipt(data: bytes, where: str) -> Receipt | None:
    """Return the receipt in a chunk, or None if its bytes are damaged.

    Raises
    ------
    FormatError
        If its bytes are right, but it is of another format version.
    """
    if len(data) < RECEIPT_BYTES + CHECKSUM_BYTES or payload_checksum(data) is None:
        return None
    try:
        mapping = parse_json(data[:-CHECKSUM_BYTES])
    except ValueError:
        return None
    return from_json(Receipt, mapping, where)


def check_receipt(receipt: Receipt, columns: Sequence[Column], where: str) -> None:
    """Refuse a receipt unless it states, for each column, a file and blocks that there can be.

    Raises
    ------
    FormatError
        If a column is missing or unknown, an entry has other fields, a size is impossible, or the
        checksums of blocks are not those of the chunk.
    """
    if receipt.grown:
        check_types(receipt.grown, GROWN_TYPES, where)
    for each in receipt.states:
        check_types(each.chunks, {column.name: dict[str, Any] for column in columns}, where)
        for column in columns:
            entry = each.chunks[column.name]
            known = {} if column.digest == DIGEST else {DIGEST: ""}
            check_types({**known, "blocks": "", **entry}, ENTRY_TYPES, where)
            _check_table(each, column, where)
            if not column.can_take(entry["bytes"]):
                raise FormatError(
                    f"{where}: column {column.name} takes {entry['bytes']} bytes, expected a size "
                    f"that chunks of {column.chunk_bytes} bytes can have. {RESTORE}"
                )


def _check_table(receipt: Receipt, column: Column, where: str) -> None:
    """Refuse a table of blocks that is not one of the chunk that its receipt states."""
    checksum = receipt.chunks[column.name]["crc32c"]
    try:
        table = receipt.table(column)
        if table is None or (len(table) == column.blocks and f"{table[-1]:08x}" == checksum):
            return
        found = f"{len(table)} of them, the last {table[-1:].tolist()}"
    except ValueError:
        found = "no numbers"
    raise FormatError(
        f"{where}: column {column.name} has checksums of blocks that are not those of its chunk: "
        f"found {found}, expected {column.blocks}, the last {checksum}. {RESTORE}"
    )

"""Rows deleted from a vector store: a bit for each, in a file that the header names.

A deletion changes no row and no fingerprint, so codes and certificates stay what they are: a search
leaves the deleted rows out, as it does with any rows that take no part. The file is published
before the header that names it. The file of the deletion before stays until the next one, for those
who have read the header before.
"""

import zlib
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import IntegrityError, NotFoundError
from mercore.stores.location.protocol import ROOT, Location
from mercore.stores.part_store.group_metadata import root_metadata
from mercore.stores.part_store.header import Header

NOTE = "deleted"  # in the header's notes: the digest of the bits, that of those before, and rows
Bits = NDArray[np.uint8]


def deleted_bits(header: Header, location: Location) -> Bits | None:
    """Return a bit for each row of a store, set if the row is deleted; None if none is.

    Rows that were appended later have no bit.

    Raises
    ------
    IntegrityError
        If the file is missing or damaged.
    """
    note = header.notes.get(NOTE)
    if note is None:
        return None
    file = _file(location, note["digest"])
    try:
        bits = np.frombuffer(zlib.decompress(file.read()), np.uint8)
    except (NotFoundError, zlib.error):
        bits = None
    if bits is None or _digest(bits) != note["digest"]:
        raise IntegrityError(
            f"{file} is missing or damaged: expected the bits of {note['rows']:,} deleted rows, "
            "which the header names. Fix: restore it from a copy."
        )
    return bits


def deleted_rows(header: Header) -> int:
    """Return the number of deleted rows."""
    return int(header.notes.get(NOTE, {}).get("rows", 0))


def publish_deletion(header: Header, location: Location, bits: Bits) -> Header:
    """Publish the bits of all deleted rows, and the header that names them; needs the lease."""
    before: dict[str, Any] = header.notes.get(NOTE, {})
    digest = _digest(bits)
    location.sweep()
    if digest == before.get("digest") or not bits.any():
        return header
    if before.get("before") not in (None, digest):
        _file(location, before["before"]).remove()
    _file(location, digest).publish(zlib.compress(bits.tobytes(), 1))
    location.sync_folders()  # the header names a file in a folder that may be new
    rows = int(np.bitwise_count(bits).sum(dtype=np.int64))
    note = {"digest": digest, "before": before.get("digest"), "rows": rows}
    header = replace(header, notes={**header.notes, NOTE: note}, text=None)
    (location / ROOT).publish(root_metadata(header))
    return header


def _file(location: Location, digest: str) -> Location:
    return location / f"{NOTE}/{digest}"


def _digest(bits: Bits) -> str:
    return blake2b(bits.tobytes(), digest_size=16).hexdigest()

"""Read a store as ``notebooks/guide/format.md`` specifies it, with NumPy and Python's own library.

Every byte that is read is checked; BLAKE3 alone is left out, as Python has none. ``ValueError`` says
what is wrong. Of the compressors, gzip, bz2 and lzma are known.
"""

import bz2
import gzip
import json
import lzma
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.independent.check_certificate import crc32c, digest

Array = NDArray[Any]
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.decompress,
    "bz2": bz2.decompress,
    "lzma": lzma.decompress,
}


def expect(condition: object, message: str) -> None:
    """Refuse a store that is not as the page says."""
    if not condition:
        raise ValueError(message)


class Store:
    """An open store: its header, and its arrays when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        header = json.loads((folder / "zarr.json").read_bytes())["attributes"]["mercore"]
        stated = header.pop("digest")
        expect(digest(header) == stated, "the header is damaged")
        self.kind, self.spec, self.layout = header["kind"], header["spec"], header["layout"]
        expect(self.layout["version"] == self.spec["version"] == 1, "not version 1")
        self.notes, self.block_bytes = header["notes"], header.get("block_bytes", 0)
        self.rows, self.part_rows = self.layout["rows"], self.layout["part_rows"]
        self.state = digest({"kind": self.kind, "spec": self.spec, "layout": self.layout})
        self.states = {self.state, *(each["digest"] for each in self.layout.get("grown_from", []))}
        self.receipts = [self._receipt(part) for part in range(-(-self.rows // self.part_rows))]

    def bounds(self, part: int) -> tuple[int, int]:
        """The first row of a part, and the row behind its last."""
        return part * self.part_rows, min((part + 1) * self.part_rows, self.rows)

    def column(self, name: str) -> Array:
        """All rows of a column."""
        (column,) = (each for each in self.layout["columns"] if each["name"] == name)
        parts = range(len(self.receipts))
        return np.concatenate([self._chunk(column, part) for part in parts])

    def model(self, name: str) -> Array:
        """An array of the model."""
        entry = self.layout["model"][name]
        key = f"model/{name}/c/" + "/".join("0" for _ in entry["shape"])
        payload = checked(self.folder / key)
        expect(f"{crc32c(payload):08x}" == entry["crc32c"], f"{key} is of another store")
        return array(payload, entry["dtype"]).reshape(entry["shape"])

    def ids(self) -> Array:
        """The id of each row of vectors or codes."""
        dropped = [self.model(name) for name in self.layout["model"] if is_dropped(name)]
        missing = np.concatenate([np.empty(0, np.int64), *dropped])
        return np.setdiff1d(np.arange(self.rows + len(missing)), missing)

    def deleted(self) -> Array:
        """Whether each row of vectors is deleted."""
        mask = np.zeros(self.rows, bool)
        if "deleted" in self.notes:
            note = self.notes["deleted"]
            bits = zlib.decompress((self.folder / "deleted" / note["digest"]).read_bytes())
            named = blake2b(bits, digest_size=16).hexdigest()
            expect(named == note["digest"], "the deleted rows are damaged")
            found = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
            expect(found.sum() == note["rows"], "other rows are deleted than the header counts")
            mask[: len(found)] = found[: self.rows]
        return mask

    def content(self) -> str:
        """The digest of what the receipts of vectors state of their chunks."""
        entries = [{**receipt["chunks"]["vectors"]} for receipt in self.receipts]
        for entry in entries:
            entry.pop("blocks", None)
        return digest(entries)

    def _receipt(self, part: int) -> dict[str, Any]:
        """The receipt of a part in the state of the header."""
        stored = json.loads(checked(self.folder / f"receipts/c/{part}/0"))
        grown = stored.pop("grown", {})
        expect(stored["version"] == 1, "not version 1")
        for state in (stored, stored | grown):
            rows = state["part"], state["start"], state["stop"]
            if state["job"] in self.states and rows == (part, *self.bounds(part)):
                return {**state, "files": [stored["chunks"], grown.get("chunks", stored["chunks"])]}
        raise ValueError(f"part {part} is not done")

    def _chunk(self, column: Mapping[str, Any], part: int) -> Array:
        """The rows of a part of a column."""
        name, width, receipt = column["name"], column["width"], self.receipts[part]
        file = self.folder / f"{name}/c/{part}{'' if width is None else '/0'}"
        payload = checked(file)
        found = len(payload) + 4, f"{crc32c(payload):08x}"
        stated = [(each[name]["bytes"], each[name]["crc32c"]) for each in receipt["files"]]
        expect(found in stated, f"{file.relative_to(self.folder)} is not what its receipt says")
        for end, checksum in self._blocks(column, receipt["chunks"][name].get("blocks", "")):
            expect(crc32c(payload[:end]) == checksum, "the checksums of blocks are wrong")
        plain = DECOMPRESS[column["compressor"].partition(":")[0]](payload)
        values = array(plain, column["dtype"]).reshape(self.part_rows, *([width] if width else []))
        start, stop = self.bounds(part)
        return values[: stop - start]

    def _blocks(self, column: Mapping[str, Any], text: str) -> Iterator[tuple[int, int]]:
        """The byte behind each block of a chunk, and the checksum of all bytes before it."""
        table = array(b64decode(text), "uint32")
        row = np.dtype(column["dtype"]).itemsize * (column["width"] or 1)
        rows = min(self.part_rows, max(1, self.block_bytes // row))
        expect(len(table) in (0, -(-self.part_rows // rows)), "not as many blocks")
        for block, checksum in enumerate(table.tolist(), 1):
            yield min(block * rows, self.part_rows) * row, checksum


def is_dropped(name: str) -> bool:
    """Whether an array of the model lists dropped rows."""
    return name == "dropped" or name.startswith("dropped_")


def checked(file: Path) -> bytes:
    """The bytes of a file before the checksum that ends it."""
    data = file.read_bytes()
    expect(crc32c(data[:-4]).to_bytes(4, "little") == data[-4:], f"{file.name} is damaged")
    return data[:-4]


def array(data: bytes, dtype: str) -> Array:
    """Little-endian numbers."""
    return np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))

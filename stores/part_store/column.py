"""Columns of a store: Zarr arrays of one chunk per part, encoded and decoded chunk by chunk."""

import struct
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.buffer import Buffer
from zarr.buffer import cpu
from zarr.storage import MemoryStore

from mercore.stores.decompress import decompress
from mercore.stores.part_store.compressors import chunk_codecs, quiet

CHECKSUM_BYTES = 4
MORE_BYTES = 1 << 10  # headers of compressors


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column, dtype[rows] or dtype[rows, width], in chunks of ``part_rows`` rows."""

    name: str
    dtype: str
    width: int | None
    rows: int
    part_rows: int
    compressor: str = "none"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole column."""
        return (self.rows,) if self.width is None else (self.rows, self.width)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of every chunk; Zarr pads the last, ragged one."""
        return (self.part_rows,) if self.width is None else (self.part_rows, self.width)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return int(np.prod(self.chunk_shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def is_plain(self) -> bool:
        """Whether the file of a chunk is just the bytes of the array and a checksum."""
        return self.compressor == "none"

    def can_take(self, size: int) -> bool:
        """Return whether the file of a chunk can have a size; compressors add a little."""
        full = self.chunk_bytes + CHECKSUM_BYTES
        return size == full if self.is_plain else size <= 2 * full + MORE_BYTES

    def chunk_key(self, part: int) -> str:
        """Return the key of the chunk of a part below the store."""
        return f"{self.name}/c/{part}" + ("" if self.width is None else "/0")


def column_metadata(column: Column) -> bytes:
    """Return the ``zarr.json`` of ``column``."""
    files: dict[str, Buffer] = {}
    _create(files, column)
    return bytes(files["zarr.json"].to_bytes())


def same_metadata(stored: bytes, expected: bytes) -> bool:
    """Return whether two ``zarr.json`` describe the same array, though perhaps in other words."""
    try:
        with quiet():
            one, other = (
                zarr.open_array(
                    MemoryStore({"zarr.json": cpu.Buffer.from_bytes(text)}), mode="r"
                ).metadata
                for text in (stored, expected)
            )
    except Exception:  # noqa: BLE001 - whatever Zarr raises on bytes that are no metadata of an array
        return False
    return bool(one == other)


def encode_chunk(column: Column, part: int, values: NDArray[Any]) -> bytes:
    """Return the chunk of a part as Zarr encodes it; equal values always give equal bytes.

    Parameters
    ----------
    values : dtype[rows of the part(, width)]
    """
    if column.is_plain:
        return _plain_chunk(column, values)
    files: dict[str, Buffer] = {}
    array = _create(files, column)
    start = part * column.part_rows
    array[start : start + len(values)] = values
    data = bytes(files[_local_key(column, part)].to_bytes())
    return _untimed(data) if column.compressor.startswith("gzip") else data


def decode_chunk(column: Column, part: int, data: bytes | memoryview) -> NDArray[Any]:
    """Decode the checked bytes of a chunk: dtype[rows of the part(, width)].

    Raises
    ------
    ValueError
        If they are no chunk of the column; no more than its bytes are taken to see that.
    """
    plain: bytes | memoryview = memoryview(data)[:-CHECKSUM_BYTES]
    if not column.is_plain:
        plain = decompress(column.compressor.partition(":")[0], plain, column.chunk_bytes)
    little = np.dtype(column.dtype).newbyteorder("<")
    values = np.frombuffer(plain, little).reshape(column.chunk_shape)
    return values[: column.rows - part * column.part_rows].astype(column.dtype)


def payload_checksum(data: bytes | NDArray[np.uint8]) -> int | None:
    """Return the crc32c of the payload of a chunk, or None if the chunk ends in another."""
    view = np.frombuffer(data, np.uint8)
    if view.size < CHECKSUM_BYTES:
        return None
    view.flags.writeable = False  # google_crc32c copies a buffer that is not read-only
    checksum = int(google_crc32c.value(view[:-CHECKSUM_BYTES]))
    (stored,) = struct.unpack("<I", view[-CHECKSUM_BYTES:].tobytes())
    return checksum if checksum == stored else None


def _plain_chunk(column: Column, values: NDArray[Any]) -> bytes:
    """Return a chunk that is not compressed: the values, zeros up to its size, and the crc32c."""
    little = np.dtype(column.dtype).newbyteorder("<")
    rows = np.ascontiguousarray(values, little).reshape(-1).view(np.uint8).view()
    rows.flags.writeable = False  # google_crc32c copies a buffer that is not read-only
    padding = bytes(column.chunk_bytes - rows.nbytes)
    checksum = google_crc32c.extend(google_crc32c.value(rows), padding)
    return b"".join((rows.data, padding, struct.pack("<I", checksum)))


def _untimed(chunk: bytes) -> bytes:
    """Return a gzip chunk with no time in its header, and with a new checksum."""
    payload = chunk[:4] + bytes(4) + chunk[8:-CHECKSUM_BYTES]
    return payload + struct.pack("<I", google_crc32c.value(payload))


def _local_key(column: Column, part: int) -> str:
    """Return the key of the chunk of a part below the column."""
    return column.chunk_key(part).removeprefix(f"{column.name}/")


def _create(files: dict[str, Buffer], column: Column) -> "zarr.Array[Any]":
    """Return an empty array with the metadata of the column, which keeps its files in ``files``."""
    with quiet():
        return zarr.create_array(
            MemoryStore(files),
            shape=column.shape,
            chunks=column.chunk_shape,
            dtype=column.dtype,
            compressors=chunk_codecs(column.compressor),
            filters=None,
            fill_value=0,
            config={
                "write_empty_chunks": True
            },  # else a part of zeros would look like a missing one
        )

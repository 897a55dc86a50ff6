"""Columns of a store: Zarr arrays of one chunk per part, encoded and decoded chunk by chunk."""

import json
import struct
import warnings
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import google_crc32c
import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from mercore.stores.decompress import decompress
from mercore.stores.part_store.compressors import codec_metadata, compress

CHECKSUM_BYTES = 4
DIGEST = "blake3"  # nobody finds two chunks with the same one; of crc32c that takes minutes
COMPRESSOR_BYTES = 1 << 10  # headers of compressors
_FILTERS = Lock()  # warning filters belong to the process: threads change them one by one


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column, dtype[rows] or dtype[rows, width], in chunks of ``part_rows`` rows.

    Blocks of at most ``block_bytes`` have checksums of their own (see ``blocks.py``); 0 for none.
    ``digest`` names the cryptographic digest of a chunk that its receipt states, or is "none".
    """

    name: str
    dtype: str
    width: int | None
    rows: int
    part_rows: int
    compressor: str = "none"
    digest: str = "none"
    block_bytes: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the column."""
        return (self.rows,) if self.width is None else (self.rows, self.width)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of every chunk; Zarr pads the last, ragged one."""
        return (self.part_rows,) if self.width is None else (self.part_rows, self.width)

    @cached_property
    def chunk_bytes(self) -> int:
        """Bytes of one decoded chunk."""
        return int(np.prod(self.chunk_shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return (1 if self.width is None else self.width) * np.dtype(self.dtype).itemsize

    @cached_property
    def block_rows(self) -> int:
        """Rows of a block: as many as its bytes can hold, and at least one."""
        return min(self.part_rows, max(1, self.block_bytes // self.row_bytes))

    @property
    def blocks(self) -> int:
        """Number of blocks of a chunk; 0 if its blocks have no checksums of their own."""
        return -(-self.part_rows // self.block_rows) if self.block_bytes and self.is_plain else 0

    @property
    def is_plain(self) -> bool:
        """Whether the file of a chunk is just the bytes of the array and a checksum."""
        return self.compressor == "none"

    def can_take(self, size: int) -> bool:
        """Return whether the file of a chunk can have this size; compressors may add a little."""
        full = self.chunk_bytes + CHECKSUM_BYTES
        return size == full if self.is_plain else size <= 2 * full + COMPRESSOR_BYTES

    def chunk_key(self, part: int) -> str:
        """Return the key of the chunk of a part below the store."""
        return f"{self.name}/c/{part}" + ("" if self.width is None else "/0")


def column_metadata(column: Column) -> bytes:
    """Return the ``zarr.json`` of a column, byte by byte as Zarr writes it."""
    dtype = np.dtype(column.dtype)
    endian = {"configuration": {"endian": "little"}} if dtype.itemsize > 1 else {}
    array = {
        "shape": column.shape,
        "data_type": column.dtype,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": column.chunk_shape},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": np.zeros((), dtype).item(),
        "codecs": [
            {"name": "bytes", **endian},
            *codec_metadata(column.compressor, dtype.itemsize),
            {"name": "crc32c"},
        ],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    return json.dumps(array, indent=2).encode()


def same_metadata(stored: bytes, expected: bytes) -> bool:
    """Return whether two ``zarr.json`` describe the same array, though perhaps in other words."""
    import zarr  # takes a while to load
    from zarr.buffer import cpu
    from zarr.storage import MemoryStore

    try:
        with _FILTERS, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # others may lack numcodecs' compressors
            one, other = (
                zarr.open_array(
                    MemoryStore({"zarr.json": cpu.Buffer.from_bytes(text)}), mode="r"
                ).metadata
                for text in (stored, expected)
            )
    except Exception:  # noqa: BLE001 - whatever Zarr raises on bytes that are no metadata of an array
        return False
    return bool(one == other)


def encode_chunk(column: Column, values: NDArray[Any]) -> bytes:
    """Return a chunk as Zarr encodes it; equal values always give equal bytes.

    A plain chunk is the values, zeros up to its size, and the crc32c of these.

    Parameters
    ----------
    values : dtype[rows of the part(, width)]
    """
    payload = chunk_payload(column, values)
    return b"".join((payload.data, checksum_bytes(google_crc32c.value(payload))))


def chunk_payload(column: Column, values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return a chunk without its checksum; of a plain chunk that is full, the values themselves."""
    little = np.dtype(column.dtype).newbyteorder("<")
    rows = np.ascontiguousarray(values, little).reshape(-1).view(np.uint8)
    missing = column.chunk_bytes - rows.nbytes
    payload = np.pad(rows, (0, missing)) if missing else rows
    if not column.is_plain:
        payload = np.frombuffer(
            compress(column.compressor, payload.data, little.itemsize), np.uint8
        )
    payload.flags.writeable = False  # google_crc32c copies a buffer that is not read-only
    return payload


def checksum_bytes(checksum: int) -> bytes:
    """Return a crc32c as it ends a chunk."""
    return struct.pack("<I", checksum)


def chunk_digest(payload: NDArray[np.uint8]) -> str:
    """Return the BLAKE3 of a chunk without its checksum, 64 hexadecimal digits."""
    digest: str = blake3(payload.data).hexdigest()
    return digest


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

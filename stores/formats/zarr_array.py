"""Zarr arrays of two dimensions, v2 or v3, written by any tool and opened read-only."""

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numcodecs.abc import Codec as Numcodec
from numpy.typing import NDArray
from zarr.abc.buffer import Buffer
from zarr.abc.codec import BytesBytesCodec, Codec
from zarr.codecs import ShardingCodec

from mercore.stores.decompress import NAMES, decompress
from mercore.stores.errors import FormatError
from mercore.stores.formats.damage import damage_refused
from mercore.stores.formats.dtypes import convert
from mercore.stores.formats.source import StoredSource
from mercore.stores.location.local_file import check_regular
from mercore.stores.location.publish import storage_errors

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec

METADATA = ("zarr.json", ".zarray", ".zgroup")
MORE_BYTES = 1 << 10  # checksums, and headers of a compressor within another
FILTERED_BYTES = 8  # the most of a number that a filter has changed


class ZarrSource(StoredSource):
    """A ``Source`` over a Zarr array; a missing chunk holds the fill value."""

    kind = "zarr"

    # In quotes: in older supported releases of zarr the class takes no parameter.
    def __init__(self, name: str, array: "zarr.Array[Any]") -> None:
        n, d = array.shape
        super().__init__(name, (n, d), np.dtype(array.dtype))
        self._array = array

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        wrong = f"rows [{start}, {stop}) cannot be decoded"
        with damage_refused(self.name, wrong, "copy the store anew"):
            block = np.asarray(self._array[start:stop])
        return np.ascontiguousarray(convert(block, self.dtype, name=self.name, first=start))


def open_zarr(path: str) -> ZarrSource:
    """Open a folder that is a Zarr array.

    Raises
    ------
    FormatError
        If the folder is no Zarr, is a group, or its array is not two-dimensional or not of numbers.
    StorageError
        If it cannot be read.
    """
    node = _open_node(path)
    if isinstance(node, zarr.Group):
        names = ", ".join(sorted(node.array_keys())) or "none"
        raise FormatError(
            f"{path}: a Zarr group, expected an array; arrays in it: {names}. Fix: name "
            f"one, as {path}/ARRAY."
        )
    if len(node.shape) != 2:
        raise FormatError(
            f"{path}: a Zarr array of shape {node.shape}, expected two dimensions, (n, "
            "d). Fix: reshape it."
        )
    return ZarrSource(path, node)


def _open_node(path: str) -> "zarr.Array[Any] | zarr.Group":
    """Open the array or group at ``path``."""
    with storage_errors("read", path):
        files = [str(Path(path) / name) for name in METADATA if (Path(path) / name).exists()]
    if not files:
        raise FormatError(
            f"{path}: a folder without Zarr metadata, expected a Zarr array. Fix: "
            "name a file or the array."
        )
    for file in files:
        check_regular(file)
    wrong = "the Zarr metadata cannot be read"
    with damage_refused(path, wrong, "copy or write the store again"):
        node = zarr.open(path, mode="r")
        return _bounded(node) if isinstance(node, zarr.Array) else node


def _bounded(array: "zarr.Array[Any]") -> "zarr.Array[Any]":
    """Return the array with compressors that refuse a chunk of more bytes than it may hold.

    Codecs that are not among ``NAMES`` stay as they are.
    """
    metadata: Any = array.metadata
    if metadata.zarr_format == 3:
        metadata = replace(metadata, codecs=_bounded_v3(metadata.codecs))
    else:
        filters = metadata.filters or ()
        number_bytes = FILTERED_BYTES if filters else array.dtype.itemsize
        limit = _most_bytes(metadata.chunks, number_bytes)
        *filters, compressor = (
            _bounded_v2(each, limit) for each in (*filters, metadata.compressor)
        )
        metadata = replace(metadata, filters=filters or None, compressor=compressor)
    return zarr.Array(zarr.AsyncArray(metadata, array.store_path))


class BoundedCodec(BytesBytesCodec):
    """A compressor of Zarr v3, for reading."""

    is_fixed_size = False

    def __init__(self, name: str, filters: Sequence[Any] | None) -> None:
        self.name, self.filters = name, filters

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: "ArraySpec") -> int:
        """Refuse: no size is known beforehand."""
        raise NotImplementedError

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: "ArraySpec") -> Buffer:
        limit = _most_bytes(chunk_spec.shape, chunk_spec.dtype.to_native_dtype().itemsize)
        data = await asyncio.to_thread(
            decompress, self.name, chunk_data.to_bytes(), limit, filters=self.filters
        )
        return chunk_spec.prototype.buffer.from_bytes(data)


class BoundedNumcodec(Numcodec):  # type: ignore[misc]
    """A compressor of Zarr v2, for reading."""

    codec_id = "bounded"

    def __init__(self, name: str, filters: Sequence[Any] | None, limit: int) -> None:
        self.name, self.filters, self.limit = name, filters, limit

    def encode(self, buf: object) -> bytes:
        """Refuse: the array is read-only."""
        raise NotImplementedError

    def decode(self, buf: memoryview, out: None = None) -> bytes:
        """Return the decompressed ``buf``; see ``decompress``."""
        return decompress(self.name, bytes(buf), self.limit, filters=self.filters)


def _bounded_v3(codecs: Iterable[Codec]) -> tuple[Codec, ...]:
    """Return codecs of Zarr v3 with bounded compressors, also those within shards."""
    return tuple(
        replace(codec, codecs=_bounded_v3(codec.codecs))
        if isinstance(codec, ShardingCodec)
        else _bounded_codec(codec)
        for codec in codecs
    )


def _bounded_codec(codec: Codec) -> Codec:
    stated: dict[str, Any] = codec.to_dict()
    name = stated["name"].removeprefix("numcodecs.")
    if name not in NAMES:
        return codec
    return BoundedCodec(name, stated.get("configuration", {}).get("filters"))


def _bounded_v2(codec: Numcodec | None, limit: int) -> Numcodec | None:
    """Return a codec of Zarr v2, bounded if it is a compressor."""
    if codec is None or codec.codec_id not in NAMES:
        return codec
    return BoundedNumcodec(codec.codec_id, getattr(codec, "filters", None), limit)


def _most_bytes(shape: tuple[int, ...], number_bytes: int) -> int:
    """Return the most bytes that a chunk may take between two of its codecs."""
    return 2 * math.prod(shape) * number_bytes + MORE_BYTES

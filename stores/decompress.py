"""Decompression that takes no more memory than the data may take."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any

NAMES = ("zstd", "blosc", "gzip", "zlib", "lz4", "bz2", "lzma")
_STATED_SIZE = {"blosc": slice(4, 8), "lz4": slice(0, 4)}  # where the data state their full size
_DAMAGED = (OSError, EOFError, RuntimeError, ValueError, zlib.error, lzma.LZMAError)


def decompress(
    name: str, data: bytes | memoryview, limit: int, *, filters: Sequence[Any] | None = None
) -> bytes:
    """Return data as they were before compression, if they take at most ``limit`` bytes.

    Parameters
    ----------
    name : one of ``NAMES``
    filters : of lzma without a header

    Raises
    ------
    ValueError
        If they take more, which costs no more memory than the limit, or are damaged.
    """
    try:
        if name in _STATED_SIZE:
            size = int.from_bytes(data[_STATED_SIZE[name]], "little")
            found = b"" if size > limit else _decoded(name, data)
        else:
            found = _read(name, data, limit + 1, filters)
            size = len(found)
    except _DAMAGED as error:
        raise ValueError(f"the {name} data are damaged: {error}") from error
    if size > limit:
        raise ValueError(
            f"{len(data)} bytes of {name} expand to more than {limit} bytes, the most expected"
        )
    return found


def _decoded(name: str, data: bytes | memoryview) -> bytes:
    """Decompress data of a size that is known."""
    from numcodecs.registry import get_codec  # takes a while to load

    return bytes(get_codec({"id": name}).decode(data))


def _read(name: str, data: bytes | memoryview, count: int, filters: Sequence[Any] | None) -> bytes:
    """Return the first ``count`` bytes, or fewer if the data end."""
    if name == "zstd":
        import zstandard  # takes a while to load

        plain = zstandard.ZstdDecompressor()
        try:
            return plain.stream_reader(data, read_across_frames=True).read(count)
        except zstandard.ZstdError as error:
            raise ValueError(error) from None
    if name == "zlib":
        decoder = zlib.decompressobj()
        found = decoder.decompress(data, count)
        if len(found) < count and not decoder.eof:
            raise EOFError("they are cut off")
        return found
    file = BytesIO(data)
    if name == "gzip":
        return gzip.GzipFile(fileobj=file).read(count)
    if name == "bz2":
        return bz2.BZ2File(file).read(count)
    form = lzma.FORMAT_AUTO if filters is None else lzma.FORMAT_RAW
    return lzma.LZMAFile(file, format=form, filters=filters).read(count)

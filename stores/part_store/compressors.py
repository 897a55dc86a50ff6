"""Compressors by name, those of Zarr and of numcodecs; every chunk ends in a crc32c."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from typing import Any

from zarr.abc.codec import BytesBytesCodec
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

from mercore.stores.errors import InputError

NAMES = ("none", "zstd", "blosc", "gzip", "lz4", "bz2", "lzma")
_LEVELS = {
    "zstd": range(-7, 23),
    "blosc": range(10),
    "gzip": range(10),
    "bz2": range(1, 10),
    "lzma": range(10),
}
_NUMCODECS = {"lz4": ("LZ4", None), "bz2": ("BZ2", "level"), "lzma": ("LZMA", "preset")}
_FILTERS = RLock()  # warning filters belong to the process: threads change them one by one


def check_compressor(text: str) -> str:
    """Return ``text`` (``NAME`` or ``NAME:LEVEL``) if it names a compressor.

    Raises
    ------
    InputError
        If the name is unknown or the level is out of its range.
    """
    name, colon, level = text.partition(":")
    if name not in NAMES:
        raise InputError(
            f"unknown compressor: found {name!r}, expected one of {', '.join(NAMES)}. Fix: "
            "--compressor zstd"
        )
    if colon:
        levels = _LEVELS.get(name, range(0))
        if level not in map(str, levels):
            span = f"a level from {levels[0]} to {levels[-1]}" if levels else "no level"
            raise InputError(
                f"compressor {name} takes {span}: found {level!r}. Fix: --compressor {name}"
            )
    return text


def chunk_codecs(text: str) -> list[BytesBytesCodec]:
    """Return the bytes-to-bytes codecs of a column: the compressor, if any, then the checksum."""
    name, _, level = check_compressor(text).partition(":")
    return [*_codec(name, int(level) if level else None), Crc32cCodec()]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence zarr's warning that other Zarr libraries may lack the codecs of numcodecs."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _codec(name: str, level: int | None) -> list[BytesBytesCodec]:
    """Return the codec of a compressor at a level; None is the default level of the compressor."""
    if name == "none":
        return []
    if name == "zstd":
        return [ZstdCodec(level=3 if level is None else level)]
    if name == "gzip":
        return [GzipCodec(level=5 if level is None else level)]
    if name == "blosc":
        return [BloscCodec(cname="zstd", clevel=5 if level is None else level, shuffle="shuffle")]
    kind, parameter = _NUMCODECS[name]
    configuration: dict[str, Any] = {} if level is None or parameter is None else {parameter: level}
    with quiet():
        codec: BytesBytesCodec = getattr(import_module("zarr.codecs.numcodecs"), kind)(
            **configuration
        )
    return [codec]

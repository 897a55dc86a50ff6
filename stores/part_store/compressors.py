"""Compressors by name: their codecs as Zarr's metadata name them, and compression by numcodecs."""

from typing import Any

from mercore.stores.errors import InputError
from mercore.stores.wording import setting

_LEVELS = {  # the parameter that is the level, and its values
    "none": ("", range(0)),
    "zstd": ("level", range(-7, 23)),
    "blosc": ("clevel", range(10)),
    "gzip": ("level", range(10)),
    "lz4": ("", range(0)),
    "bz2": ("level", range(1, 10)),
    "lzma": ("preset", range(10)),
}
NAMES = tuple(_LEVELS)
_DEFAULTS: dict[
    str, dict[str, Any]
] = {  # configurations; one without a level has that of its library
    "zstd": {"level": 3, "checksum": False},
    "blosc": {"typesize": 1, "cname": "zstd", "clevel": 5, "shuffle": "shuffle", "blocksize": 0},
    "gzip": {"level": 5},
}


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
            f"{setting(compressor='zstd')}"
        )
    levels = _LEVELS[name][1]
    if colon and level not in map(str, levels):
        span = f"a level from {levels[0]} to {levels[-1]}" if levels else "no level"
        raise InputError(
            f"compressor {name} takes {span}: found {level!r}. Fix: {setting(compressor=name)}"
        )
    return text


def codec_metadata(text: str, item_bytes: int) -> list[dict[str, Any]]:
    """Return the codec of a compressor as Zarr's metadata name it, or nothing for ``none``."""
    name, _, level = check_compressor(text).partition(":")
    if name == "none":
        return []
    configuration = dict(_DEFAULTS.get(name, {}))
    if level:
        configuration[_LEVELS[name][0]] = int(level)
    if name == "blosc":
        configuration["typesize"] = item_bytes
    known = name in _DEFAULTS  # to Zarr itself; the others are those of numcodecs
    return [{"name": name if known else f"numcodecs.{name}", "configuration": configuration}]


def compress(text: str, data: bytes | memoryview, item_bytes: int) -> bytes:
    """Compress bytes as Zarr does; equal bytes always give equal bytes."""
    from numcodecs import blosc  # takes a while to load
    from numcodecs.registry import get_codec

    blosc.use_threads = False  # threads would change the order of the blocks
    (codec,) = codec_metadata(text, item_bytes)
    name = codec["name"].removeprefix("numcodecs.")
    configuration = {"id": name, **codec["configuration"]}
    if name == "blosc":
        configuration["shuffle"] = blosc.SHUFFLE
    packed = bytes(get_codec(configuration).encode(data))
    return packed[:4] + bytes(4) + packed[8:] if name == "gzip" else packed  # no time in its header

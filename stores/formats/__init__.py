"""Foreign vector files: one module per format; each file opens as a ``Source``."""

import stat
from collections.abc import Callable
from pathlib import PurePath

from mercore.stores.errors import FormatError, NotFoundError
from mercore.stores.formats import bigann, texmex
from mercore.stores.formats.array import ArraySource, Sliced
from mercore.stores.formats.bigann import open_bigann
from mercore.stores.formats.npy import open_npy
from mercore.stores.formats.source import Source
from mercore.stores.formats.texmex import open_texmex
from mercore.stores.formats.zarr_array import open_zarr
from mercore.stores.location.local_file import path_status
from mercore.stores.location.resolve import location_of, refuse_url, scheme_of

OPENERS: dict[str, Callable[[str], Source]] = {
    **dict.fromkeys(texmex.STORED, open_texmex),
    **dict.fromkeys(bigann.STORED, open_bigann),
    ".npy": open_npy,
}

__all__ = ["OPENERS", "Sliced", "Source", "open_source"]


def open_source(path: str | Sliced) -> Source:
    """Open a vector file by its suffix, the folder of a Zarr array, or an array in memory.

    Raises
    ------
    NotFoundError
        If there is nothing at ``path``.
    FormatError
        If the suffix is unknown, the header does not fit the format or the file's size, or an array
        is not 2-D.
    StorageError
        If the operating system refuses.
    """
    if not isinstance(path, str):
        return ArraySource(path)
    if scheme_of(path):
        _check_object(path)
    elif stat.S_ISDIR(path_status(path).st_mode):
        return open_zarr(path)
    suffix = PurePath(path).suffix
    opener = OPENERS.get(suffix.lower())
    if opener is None:
        message = (
            f"{path}: unknown suffix {suffix!r}, expected {' '.join(OPENERS)}, or a Zarr "
            "array's folder. "
            f"Fix: rename the file by its true format, or convert it."
        )
        raise FormatError(message)
    return opener(path)


def _check_object(path: str) -> None:
    """Refuse a URL that names no object."""
    location = location_of(path)
    if location.is_folder():
        refuse_url(path, "a Zarr array of another tool")
    if not location.exists():
        raise NotFoundError(f"{path}: no such file or folder. Fix: check the path.")

"""TEXMEX files, ``.fvecs .bvecs .ivecs``: each row is d (int32, little-endian), then d numbers."""

from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import BinarySource, RowLayout, open_binary
from mercore.stores.formats.source import check_shape

STORED: dict[str, np.dtype[Any]] = {
    ".fvecs": np.dtype("<f4"),
    ".bvecs": np.dtype("u1"),
    ".ivecs": np.dtype("<i4"),
}
HEAD_BYTES = 4


def open_texmex(path: str) -> BinarySource:
    """Open a TEXMEX file; every row must repeat the d of row 0, which is checked at reading.

    Raises
    ------
    FormatError
        If the file is empty, d is out of range, or the size is not a whole number of rows.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    file = open_binary(path)
    stored = STORED[PurePath(path).suffix.lower()]
    if file.size < HEAD_BYTES:
        message = (
            f"{path}: {file.size} bytes, expected at least the {HEAD_BYTES} that say d. "
            "Fix: fetch the file again."
        )
        raise FormatError(message)
    d = int.from_bytes(file.read_prefix(HEAD_BYTES), "little", signed=True)
    check_shape(path, 0, d)
    n, rest = divmod(file.size, HEAD_BYTES + d * stored.itemsize)
    if rest:
        message = (
            f"{path}: {file.size} bytes, expected a multiple of {HEAD_BYTES + d * stored.itemsize} "
            f"(d = {d} of {stored.itemsize} bytes, and {HEAD_BYTES} bytes before each row). "
            f"Fix: fetch the file again, it is cut off; or check that its suffix is right."
        )
        raise FormatError(message)
    return BinarySource(file, RowLayout(kind="texmex", n=n, d=d, stored=stored, head=HEAD_BYTES))


def texmex_bytes(rows: NDArray[Any]) -> bytes:
    """Return the TEXMEX file of ``rows``, int32 or float32 [n, d] with n, d ≥ 1."""
    n, d = rows.shape
    filed = np.empty((n, 1 + d), "<i4")
    filed[:, 0] = d
    filed[:, 1:] = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<")).view("<i4")
    return filed.tobytes()

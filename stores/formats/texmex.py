"""TEXMEX files, ``.fvecs .bvecs .ivecs``: each row is d (int32, little-endian), then d numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import BinarySource, RowLayout, open_binary
from mercore.stores.formats.source import check_shape

STORED: dict[str, np.dtype[Any]] = {
    "fvecs": np.dtype("<f4"),
    "bvecs": np.dtype("u1"),
    "ivecs": np.dtype("<i4"),
}
HEAD_BYTES = 4


def open_texmex(path: str, form: str) -> BinarySource:
    """Open a TEXMEX file of the format ``form``, whatever its suffix: see ``texmex_layout``."""
    file, stored = open_binary(path), STORED[form]
    return BinarySource(file, texmex_layout(stored, file.read_prefix(HEAD_BYTES), path, file.size))


def texmex_layout(stored: np.dtype[Any], prefix: bytes, name: str, size: int | None) -> RowLayout:
    """Return the layout of a TEXMEX file: see ``Layout``.

    Every row must repeat d, which is checked at reading.
    """
    if len(prefix) < HEAD_BYTES:
        raise FormatError(
            f"{name}: {len(prefix)} bytes, expected at least the {HEAD_BYTES} that say d. "
            "Fix: fetch the file again."
        )
    d = int.from_bytes(prefix[:HEAD_BYTES], "little", signed=True)
    check_shape(name, 0, d)
    n, rest = divmod(size or 0, HEAD_BYTES + d * stored.itemsize)
    if rest:
        raise FormatError(
            f"{name}: {size} bytes, expected a multiple of {HEAD_BYTES + d * stored.itemsize} "
            f"(d = {d} of {stored.itemsize} bytes, and {HEAD_BYTES} bytes before each row). "
            "Fix: fetch the file again, it is cut off; or check that its suffix is right."
        )
    return RowLayout(
        kind="texmex", n=n, d=d, stored=stored, head=HEAD_BYTES, open_ended=size is None
    )


def texmex_bytes(rows: NDArray[Any]) -> bytes:
    """Return the TEXMEX file of ``rows``, int32 or float32 [n, d] with n, d ≥ 1."""
    n, d = rows.shape
    filed = np.empty((n, 1 + d), "<i4")
    filed[:, 0] = d
    filed[:, 1:] = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<")).view("<i4")
    return filed.tobytes()

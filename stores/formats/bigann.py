"""Big-ann files, ``.fbin .u8bin .i8bin .ibin``: n and d (uint32, little-endian), then numbers."""

from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import BinarySource, RowLayout, open_binary
from mercore.stores.location.protocol import PositionalFile

STORED: dict[str, np.dtype[Any]] = {
    ".fbin": np.dtype("<f4"),
    ".u8bin": np.dtype("u1"),
    ".i8bin": np.dtype("i1"),
    ".ibin": np.dtype("<i4"),
}
HEADER_BYTES = 8


def open_bigann(path: str) -> BinarySource:
    """Open a big-ann vector file.

    Raises
    ------
    FormatError
        If d is out of range, or the size is not what the header says.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    file = open_binary(path)
    layout = _layout(file, STORED[PurePath(path).suffix.lower()], HEADER_BYTES)
    source = BinarySource(file, layout)
    if file.size != layout.end:
        _refuse_size(file, layout, str(layout.end))
    return source


def read_truth(path: str) -> tuple[NDArray[np.int32], NDArray[np.float32] | None]:
    """Return ids, int32[nq, k], and scores, float32[nq, k] or None, of a ground truth file.

    Raises
    ------
    FormatError
        If k is out of range, or the size is neither that of ids nor that of ids and scores.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    file = open_binary(path)
    layout = _layout(file, STORED[".ibin"], HEADER_BYTES)
    ids = BinarySource(file, layout)
    beyond = _layout(file, STORED[".fbin"], layout.end)
    if file.size not in (layout.end, beyond.end):
        _refuse_size(file, layout, f"{layout.end} (ids) or {beyond.end} (ids and scores)")
    scores = (
        None if file.size == layout.end else BinarySource(file, beyond).read_stored(0, beyond.n)
    )
    return ids.read_stored(0, layout.n), scores


def truth_bytes(ids: NDArray[np.int32], scores: NDArray[np.float32] | None) -> bytes:
    """Return the big-ann ground truth file of ``ids`` and ``scores``, both [nq, k]."""
    header = np.array(ids.shape, "<u4").tobytes()
    return (
        header
        + ids.astype("<i4").tobytes()
        + (b"" if scores is None else scores.astype("<f4").tobytes())
    )


def _layout(file: PositionalFile, stored: np.dtype[Any], offset: int) -> RowLayout:
    """Read the header; return the layout of its rows from byte ``offset`` on."""
    if file.size < HEADER_BYTES:
        message = (
            f"{file.name}: {file.size} bytes, expected a header of {HEADER_BYTES}. Fix: "
            "fetch the file again."
        )
        raise FormatError(message)
    n, d = (int(count) for count in np.frombuffer(file.read_prefix(HEADER_BYTES), "<u4"))
    return RowLayout(kind="bigann", n=n, d=d, stored=stored, offset=offset)


def _refuse_size(file: PositionalFile, layout: RowLayout, expected: str) -> None:
    """Raise the error that the size of the file is not that of its header."""
    message = (
        f"{file.name}: {file.size} bytes, expected {expected} for the header's n = {layout.n}, "
        f"d = {layout.d} "
        f"of {layout.stored.itemsize} bytes. Fix: fetch the file again, or check that its "
        "suffix is right."
    )
    raise FormatError(message)

"""Big-ann files: n and d (uint32, little-endian), then the numbers of all rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import BinarySource, RowLayout, open_binary
from mercore.stores.formats.source import check_shape

STORED: dict[str, np.dtype[Any]] = {
    "fbin": np.dtype("<f4"),
    "u8bin": np.dtype("u1"),
    "i8bin": np.dtype("i1"),
    "f16bin": np.dtype("<f2"),
    "ibin": np.dtype("<i4"),
}
HEADER_BYTES = 8


def bigann_layout(stored: np.dtype[Any], prefix: bytes, name: str, size: int | None) -> RowLayout:
    """Return the layout of a big-ann vector file: see ``Layout``."""
    layout = _layout(prefix, name, stored, HEADER_BYTES)
    check_shape(name, layout.n, layout.d)
    if size not in (None, layout.end):
        _refuse_size(name, size, layout, str(layout.end))
    return layout


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
    prefix = file.read_prefix(HEADER_BYTES)
    layout = _layout(prefix, file.name, STORED["ibin"], HEADER_BYTES)
    ids = BinarySource(file, layout)
    beyond = _layout(prefix, file.name, STORED["fbin"], layout.end)
    if file.size not in (layout.end, beyond.end):
        expected = f"{layout.end} (ids) or {beyond.end} (ids and scores)"
        _refuse_size(file.name, file.size, layout, expected)
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


def _layout(prefix: bytes, name: str, stored: np.dtype[Any], offset: int) -> RowLayout:
    """Return what the header says of the rows from byte ``offset`` on."""
    if len(prefix) < HEADER_BYTES:
        raise FormatError(
            f"{name}: {len(prefix)} bytes, expected a header of {HEADER_BYTES}. Fix: "
            "fetch the file again."
        )
    n, d = (int(count) for count in np.frombuffer(prefix, "<u4", 2))
    return RowLayout(kind="bigann", n=n, d=d, stored=stored, offset=offset)


def _refuse_size(name: str, size: int | None, layout: RowLayout, expected: str) -> None:
    """Raise the error that the size of the file is not that of its header."""
    raise FormatError(
        f"{name}: {size} bytes, expected {expected} for the header's n = {layout.n}, d = "
        f"{layout.d} of {layout.stored.itemsize} bytes. Fix: fetch the file again, or check that "
        "its suffix is right."
    )

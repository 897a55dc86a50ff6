"""NumPy's ``.npy`` files: a 2-D array in C or Fortran order; nothing is ever unpickled."""

import tokenize
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import BinarySource, RowLayout, open_binary
from mercore.stores.formats.dtypes import returned_dtype
from mercore.stores.formats.source import check_shape
from mercore.stores.location.publish import publish_output

PREFIX_BYTES = 16 << 10  # more than the longest header that NumPy itself accepts
MAX_HEADER = 1 << 10  # NumPy pads the header of an array of numbers to 112 bytes
# The errors of NumPy's parser, which evaluates a literal, for bytes that are no header.
BAD_HEADER = (
    ValueError,
    SyntaxError,
    TypeError,
    LookupError,
    OverflowError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)


@dataclass(frozen=True, kw_only=True)
class NpyHeader:
    """The header of a ``.npy``; ``offset`` is the byte at which the numbers begin."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    offset: int


def open_npy(path: str) -> BinarySource:
    """Open a ``.npy`` of two dimensions: see ``npy_layout``."""
    file = open_binary(path)
    return BinarySource(file, npy_layout(file.read_prefix(PREFIX_BYTES), path, file.size))


def npy_layout(prefix: bytes, name: str, size: int | None) -> RowLayout:
    """Return the layout of a ``.npy`` of two dimensions, in C or Fortran order.

    Parameters
    ----------
    prefix : the first 16 KiB of the file
    size : the size of the file, or None for a stream

    Raises
    ------
    FormatError
        If the header is damaged, the array is not 2-D, or the size is not that of the header.
    """
    header = parse_npy_header(prefix, name)
    if len(header.shape) != 2:
        message = (
            f"{name}: an array of shape {header.shape}, expected two dimensions, (n, d). "
            "Fix: reshape it."
        )
        raise FormatError(message)
    n, d = header.shape
    layout = RowLayout(
        kind="npy",
        n=n,
        d=d,
        stored=header.dtype,
        offset=header.offset,
        by_column=header.fortran_order,
    )
    check_shape(name, n, d)
    returned_dtype(header.dtype, name)
    if size not in (None, layout.end):
        message = (
            f"{name}: {size} bytes, expected {layout.end} for the header's {header.shape} "
            f"of {header.dtype}. "
            f"Fix: fetch or save the file again."
        )
        raise FormatError(message)
    return layout


def parse_npy_header(prefix: bytes, name: str) -> NpyHeader:
    """Parse the header of a ``.npy``; ``prefix`` is the first 16 KiB of the file.

    Raises
    ------
    FormatError
        If the bytes are no header of version 1.0 or 2.0, or the array holds Python objects.
    """
    stream = BytesIO(prefix)
    try:
        version = npy_format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            message = f"version {version[0]}.{version[1]}"
            raise ValueError(message)
        read = (
            npy_format.read_array_header_1_0
            if version == (1, 0)
            else npy_format.read_array_header_2_0
        )
        shape, fortran_order, dtype = read(stream, max_header_size=MAX_HEADER)
    except BAD_HEADER as error:
        message = (
            f"{name}: no .npy header of version 1.0 or 2.0 ({_short(error)}). Fix: save "
            "it with numpy.save."
        )
        raise FormatError(message) from error
    if dtype.hasobject or min(shape, default=0) < 0:
        what = "Python objects" if dtype.hasobject else f"shape {shape}"
        message = (
            f"{name}: the header says {what}, expected an array of numbers. Fix: save it "
            "again as float32."
        )
        raise FormatError(message)
    return NpyHeader(shape=shape, fortran_order=fortran_order, dtype=dtype, offset=stream.tell())


def write_npy(path: Path, values: NDArray[Any]) -> None:
    """Publish an array as a ``.npy``."""
    stream = BytesIO()
    np.save(stream, values, allow_pickle=False)
    publish_output(path, stream.getbuffer())


def _short(error: BaseException) -> str:
    """Return the first line of the text of an error, at most 100 characters."""
    return (str(error).splitlines() or [type(error).__name__])[0][:100].rstrip(".")

"""NumPy's ``.npy`` files: a 2-D array in C or Fortran order; nothing is ever unpickled."""

from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import BinarySource, RowLayout, open_binary
from mercore.stores.formats.damage import damage_refused
from mercore.stores.formats.dtypes import returned_dtype
from mercore.stores.formats.source import check_shape
from mercore.stores.location.protocol import PositionalFile
from mercore.stores.location.publish import publish_output

PREFIX_BYTES = 16 << 10  # more than the longest header that NumPy itself accepts
MAX_HEADER = 1 << 10  # NumPy pads the header of an array of numbers to 112 bytes


@dataclass(frozen=True, kw_only=True)
class NpyHeader:
    """The header of a ``.npy``; ``offset`` is the byte at which the numbers begin."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    offset: int

    def array(self, data: bytes) -> NDArray[Any]:
        """Return the array, read-only, of the bytes of the file."""
        flat = np.frombuffer(data, self.dtype, prod(self.shape), self.offset)
        return flat.reshape(self.shape, order="F" if self.fortran_order else "C")


def open_npy(path: str) -> BinarySource:
    """Open a ``.npy`` of two dimensions: see ``npy_layout``."""
    file = open_binary(path)
    return BinarySource(file, npy_layout(file.read_prefix(PREFIX_BYTES), path, file.size))


def npy_layout(prefix: bytes, name: str, size: int | None) -> RowLayout:
    """Return the layout of a ``.npy`` of two dimensions, in C or Fortran order: see ``Layout``."""
    header = parse_npy_header(prefix, name, size)
    if len(header.shape) != 2:
        raise FormatError(
            f"{name}: an array of shape {header.shape}, expected two dimensions, (n, d). "
            "Fix: reshape it."
        )
    n, d = header.shape
    check_shape(name, n, d)
    returned_dtype(header.dtype, name)
    return RowLayout(
        kind="npy",
        n=n,
        d=d,
        stored=header.dtype,
        offset=header.offset,
        by_column=header.fortran_order,
    )


def read_npy_header(file: PositionalFile) -> NpyHeader:
    """Return the header of a ``.npy``: see ``parse_npy_header``."""
    return parse_npy_header(file.read_prefix(PREFIX_BYTES), file.name, file.size)


def read_npy(file: PositionalFile) -> NDArray[Any]:
    """Return the array of a ``.npy``, read-only; raises as ``parse_npy_header`` does."""
    header = read_npy_header(file)
    return header.array(file.read_prefix(file.size))


def parse_npy_header(prefix: bytes, name: str, size: int | None) -> NpyHeader:
    """Parse the header of a ``.npy``, and check it against the size of the file.

    Parameters
    ----------
    prefix : the first 16 KiB of the file
    size : the size of the file, or None for a stream

    Raises
    ------
    FormatError
        If the bytes are no header of version 1.0 or 2.0, the array holds no numbers, or the size
        is not that of the header.
    """
    stream = BytesIO(prefix)
    with damage_refused(name, "no .npy header of version 1.0 or 2.0", "save it with numpy.save"):
        version = npy_format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version[0]}.{version[1]}")
        read = (
            npy_format.read_array_header_1_0
            if version == (1, 0)
            else npy_format.read_array_header_2_0
        )
        shape, fortran_order, dtype = read(stream, max_header_size=MAX_HEADER)
    if dtype.hasobject or not dtype.itemsize or min(shape, default=0) < 0:
        found = "Python objects" if dtype.hasobject else f"shape {shape} of {dtype}"
        raise FormatError(
            f"{name}: the header says {found}, expected an array of numbers. Fix: save it "
            "again as float32, or texts as str."
        )
    end = stream.tell() + prod(shape) * dtype.itemsize
    if size not in (None, end):
        raise FormatError(
            f"{name}: {size} bytes, expected {end} for the header's {shape} of {dtype}. "
            "Fix: fetch or save the file again."
        )
    return NpyHeader(shape=shape, fortran_order=fortran_order, dtype=dtype, offset=stream.tell())


def npy_bytes(values: NDArray[Any]) -> bytes:
    """Return the ``.npy`` of an array."""
    stream = BytesIO()
    np.save(stream, values, allow_pickle=False)
    return stream.getvalue()


def npy_header_bytes(dtype: np.dtype[Any], count: int) -> bytes:
    """Return the header of the ``.npy`` of an array of one dimension."""
    stream = BytesIO()
    header = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
    npy_format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def write_npy(path: Path, values: NDArray[Any]) -> None:
    """Publish an array as a ``.npy``."""
    publish_output(path, npy_bytes(values))

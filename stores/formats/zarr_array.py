"""Zarr arrays of two dimensions, v2 or v3, written by any tool and opened read-only."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.dtypes import convert, returned_dtype
from mercore.stores.formats.source import check_row_range, check_shape, digest_rows
from mercore.stores.location.local_file import check_regular
from mercore.stores.location.publish import storage_errors

METADATA = ("zarr.json", ".zarray", ".zgroup")


class ZarrSource:
    """A ``Source`` over a Zarr array; a missing chunk holds the fill value."""

    # In quotes: in older supported releases of zarr the class takes no parameter.
    def __init__(self, name: str, array: "zarr.Array[Any]") -> None:
        n, d = array.shape
        check_shape(name, n, d)
        self.name = name
        self.shape = (n, d)
        self.source_dtype = np.dtype(array.dtype)
        self.dtype = returned_dtype(self.source_dtype, name)
        self._array = array

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` as ``dtype``; see ``Source.read``."""
        check_row_range(self, start, stop)
        what = f"rows [{start}, {stop}) cannot be decoded"
        with _zarr_errors(self.name, what, "copy the store anew"):
            block = np.asarray(self._array[start:stop])
        return np.ascontiguousarray(convert(block, self.dtype, name=self.name, first=start))

    def fingerprint(self) -> str:
        """Return the digest of ``Source.fingerprint``, with the size of the uncompressed rows."""
        size = self.shape[0] * self.shape[1] * self._array.dtype.itemsize
        return digest_rows(self, kind="zarr", stored=self._array.dtype, size=size)


def open_zarr(path: str) -> ZarrSource:
    """Open a folder that is a Zarr array.

    Raises
    ------
    FormatError
        If the folder is no Zarr, is a group, or its array is not two-dimensional or not of numbers.
    StorageError
        If it cannot be read.
    """
    node = _open_node(path)
    if isinstance(node, zarr.Group):
        names = ", ".join(sorted(node.array_keys())) or "none"
        message = (
            f"{path}: a Zarr group, expected an array; arrays in it: {names}. Fix: name "
            f"one, as {path}/ARRAY."
        )
        raise FormatError(message)
    if len(node.shape) != 2:
        message = (
            f"{path}: a Zarr array of shape {node.shape}, expected two dimensions, (n, "
            "d). Fix: reshape it."
        )
        raise FormatError(message)
    return ZarrSource(path, node)


def _open_node(path: str) -> "zarr.Array[Any] | zarr.Group":
    """Open the array or group at ``path``."""
    with storage_errors("read", path):
        files = [str(Path(path) / name) for name in METADATA if (Path(path) / name).exists()]
    if not files:
        message = (
            f"{path}: a folder without Zarr metadata, expected a Zarr array. Fix: "
            "name a file or the array."
        )
        raise FormatError(message)
    for file in files:
        check_regular(file)
    with _zarr_errors(path, "the Zarr metadata cannot be read", "copy or write the store again"):
        return zarr.open(path, mode="r")


@contextmanager
def _zarr_errors(path: str, what: str, fix: str) -> Iterator[None]:
    """Turn an error of Zarr or of a codec into a ``FormatError``, one of the system into ours."""
    with storage_errors("read", path):
        try:
            yield
        except Exception as error:  # codecs of any library raise anything for damaged bytes
            if isinstance(error, OSError) and error.errno:  # codecs raise OSError without a number
                raise
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise FormatError(f"{path}: {what} ({text}). Fix: {fix}.") from error

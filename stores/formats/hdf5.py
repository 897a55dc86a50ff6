"""HDF5 files: a 2-D dataset of numbers, named as ``file.h5::train``."""

from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import FileReader, open_binary
from mercore.stores.formats.dtypes import convert, returned_dtype
from mercore.stores.formats.source import check_row_range, check_shape, digest_rows

CACHE_BYTES = 32 << 20  # of decoded chunks
MOST_CHUNK_BYTES = 1 << 30
# The errors that h5py raises for damaged files, unknown filters and types.
BAD_HDF5 = (OSError, ValueError, LookupError, TypeError, RuntimeError, AttributeError, MemoryError)


class Hdf5Source:
    """A ``Source`` over a dataset of two dimensions."""

    def __init__(self, name: str, dataset: h5py.Dataset) -> None:
        n, d = (int(size) for size in dataset.shape)
        self.name = name
        self.shape = (n, d)
        check_shape(name, n, d)
        self.source_dtype = np.dtype(dataset.dtype)
        self.dtype = returned_dtype(self.source_dtype, name)
        self._dataset = dataset

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` as ``dtype``; see ``Source.read``."""
        check_row_range(self, start, stop)
        try:
            block = np.asarray(self._dataset[start:stop])
        except BAD_HDF5 as error:
            raise _undecoded(self.name, f"rows [{start}, {stop})", error) from error
        return np.ascontiguousarray(convert(block, self.dtype, name=self.name, first=start))

    def fingerprint(self) -> str:
        """Return the digest of ``Source.fingerprint``, with the size of the uncompressed rows."""
        size = self.shape[0] * self.shape[1] * self.source_dtype.itemsize
        return digest_rows(self, kind="hdf5", stored=self.source_dtype, size=size)


def open_hdf5(path: str, member: str | None) -> Hdf5Source:
    """Open a dataset of an HDF5 file: ``member``, or the only one of two dimensions.

    Raises
    ------
    FormatError
        If the file is damaged, or it has no such dataset, or several without a ``member``.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    reader = FileReader(open_binary(path))
    try:
        file = h5py.File(reader, "r", rdcc_nbytes=CACHE_BYTES)
        name = member if member is not None else _only_matrix(path, file)
        dataset = file.get(name)
        _check(path, name, file, dataset)
        return Hdf5Source(f"{path}::{name}", dataset)
    except BAD_HDF5 as error:
        if isinstance(error, FormatError):
            raise
        raise _undecoded(path, "the file", error) from error


def _only_matrix(path: str, file: h5py.File) -> str:
    """Return the name of the only dataset of two dimensions."""
    names = [name for name, dims in _datasets(file) if dims == 2]
    if len(names) != 1:
        raise FormatError(
            f"{path}: {len(names)} datasets of two dimensions ({', '.join(names) or 'none'}), "
            f"expected one. Fix: name one, as {path}::{names[0] if names else 'train'}"
        )
    return names[0]


def _datasets(file: h5py.File) -> list[tuple[str, int]]:
    """Return the name and the count of dimensions of every dataset."""
    found: list[tuple[str, int]] = []

    def look(name: str, node: object) -> None:
        if isinstance(node, h5py.Dataset):
            found.append((name, len(node.shape or ())))

    file.visititems(look)
    return sorted(found)


def _check(path: str, name: str, file: h5py.File, dataset: object) -> None:
    """Refuse what is no dataset of two dimensions that can be read in blocks."""
    if not isinstance(dataset, h5py.Dataset):
        names = ", ".join(each for each, _ in _datasets(file)) or "none"
        raise FormatError(
            f"{path}: no dataset {name!r}, expected one of: {names}. Fix: {path}::DATASET"
        )
    if dataset.shape is None or len(dataset.shape) != 2:
        raise FormatError(
            f"{path}: dataset {name!r} has shape {dataset.shape}, expected two dimensions, "
            "(n, d). Fix: name another dataset, or reshape it."
        )
    if dataset.external or dataset.is_virtual:
        raise FormatError(
            f"{path}: the numbers of dataset {name!r} lie in other files, expected them in this "
            "one. Fix: copy it with h5repack."
        )
    chunk = int(np.prod(dataset.chunks or (0,), dtype=object)) * dataset.dtype.itemsize
    if chunk > MOST_CHUNK_BYTES:
        raise FormatError(
            f"{path}: a chunk of dataset {name!r} has {chunk} bytes, expected at most "
            f"{MOST_CHUNK_BYTES}. Fix: write it again with smaller chunks."
        )


def _undecoded(name: str, what: str, error: BaseException) -> FormatError:
    text = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return FormatError(
        f"{name}: {what} cannot be read ({text}). Fix: fetch or write the file again."
    )

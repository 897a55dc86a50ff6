"""Labels: one integer per row or query, of a one-dimensional ``.npy`` or an array in memory."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import open_binary
from mercore.stores.formats.npy import read_npy_header

AnyLabels: TypeAlias = str | NDArray[np.integer[Any]]


def open_labels(labels: AnyLabels, name: str) -> NDArray[np.int64]:
    """Return the labels of a ``.npy`` or an array as int64[n].

    ``name`` names an array in messages; a file is named by its path.

    Raises
    ------
    FormatError
        If the header is damaged, the array is not one-dimensional or not of integers within int64,
        or the size is not that of the header.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    if isinstance(labels, str):
        return _read_labels(labels)
    _check_kind(name, labels.shape, labels.dtype)
    return labels.astype(np.int64, copy=False)


def _read_labels(path: str) -> NDArray[np.int64]:
    """Read the labels of a ``.npy``."""
    file = open_binary(path)
    header = read_npy_header(file)
    _check_kind(path, header.shape, header.dtype)
    return header.array(file.read_prefix(file.size)).astype(np.int64)


def _check_kind(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse arrays that are no labels."""
    if len(shape) != 1 or dtype.kind not in "iu" or not np.can_cast(dtype, np.int64):
        raise FormatError(
            f"{name}: {dtype}{list(shape)}, expected labels, int64[n]. Fix: save one whole number "
            "per row as a one-dimensional array."
        )

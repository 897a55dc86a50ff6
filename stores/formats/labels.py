"""Numbers of rows: labels, ids or a mask, of a ``.npy``, a column of a table, or in memory."""

from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats import TABLES, split_member
from mercore.stores.formats.binary import open_binary
from mercore.stores.formats.npy import read_npy_header

AnyLabels: TypeAlias = str | NDArray[np.integer[Any]]
LABELS = "labels, int64[n]", "save one whole number per row as a one-dimensional array"
ROW_SET = "ids, int64[any], or a mask, bool[n]", "save one of these as a one-dimensional array"


def open_labels(labels: AnyLabels, name: str) -> NDArray[np.int64]:
    """Return the labels of a file or an array as int64[n].

    ``name`` names an array in messages; a file is named by its path.

    Raises
    ------
    FormatError
        If the file is damaged, or its array is not one-dimensional or not of integers within int64.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    return _checked(labels, name, "iu", LABELS).astype(np.int64, copy=False)


def open_row_set(rows: str | ArrayLike, name: str) -> NDArray[np.int64] | NDArray[np.bool_]:
    """Return the ids of a file or an array as int64[any], or its mask as bool[n].

    Raises
    ------
    MercoreError
        As of ``open_labels``.
    """
    found = _checked(rows, name, "iub", ROW_SET)
    return found if found.dtype == np.bool_ else found.astype(np.int64, copy=False)


def _checked(
    numbers: str | ArrayLike, name: str, kinds: str, wanted: tuple[str, str]
) -> NDArray[Any]:
    """Return an array of one dimension; refuse other shapes and kinds than those wanted."""
    if isinstance(numbers, str):
        name = numbers
    values = _read(numbers) if isinstance(numbers, str) else np.asarray(numbers)
    if values.shape == (0,):
        values = values.astype(np.int64)  # of an empty list
    wrong = values.dtype.kind not in kinds or not np.can_cast(values.dtype, np.int64)
    if values.ndim != 1 or wrong:
        expected, fix = wanted
        raise FormatError(
            f"{name}: {values.dtype}{list(values.shape)}, expected {expected}. Fix: {fix}."
        )
    return values


def _read(path: str) -> NDArray[Any]:
    """Read the array of a ``.npy``, or a column of a table."""
    file, column = split_member(path)
    if column is not None or PurePath(file).suffix.lower() in TABLES:
        from mercore.stores.formats.arrow import read_column  # pyarrow takes a while to load

        return read_column(file, column)
    binary = open_binary(path)
    return read_npy_header(binary).array(binary.read_prefix(binary.size))

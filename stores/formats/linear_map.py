"""The matrix of a linear map, from a ``.npy`` file in C or Fortran order."""

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError
from mercore.stores.formats.binary import open_binary
from mercore.stores.formats.npy import read_npy_header
from mercore.stores.formats.source import check_shape


def read_linear_map(path: str) -> NDArray[np.float32]:
    """Return the matrix of a linear map, float32[d', d]; float64 is rounded to float32.

    Raises
    ------
    FormatError
        If the file is no ``.npy``, or its array is not 2-D or not float32 or float64.
    InputError
        If a number is NaN or infinite, or beyond the range of float32.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    file = open_binary(path)
    header = read_npy_header(file)
    shape, dtype = header.shape, header.dtype
    if len(shape) != 2:
        raise FormatError(
            f"{path}: an array of shape {shape}, expected a matrix of two dimensions, (d', d). "
            "Fix: reshape it."
        )
    if dtype.kind != "f" or dtype.itemsize not in (4, 8):
        raise FormatError(
            f"{path}: the numbers are {dtype}, expected float32 or float64. "
            "Fix: numpy.save(path, matrix.astype(numpy.float32))."
        )
    check_shape(path, *shape)
    if shape[0] == 0:
        raise FormatError(
            f"{path}: a matrix of shape {shape}, expected at least one row. Fix: save it again."
        )
    stored = header.array(file.read_prefix(file.size))
    with np.errstate(over="ignore"):
        matrix = np.ascontiguousarray(stored, np.float32)
    if not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        raise InputError(
            f"{path}: row {row}, column {column} holds {stored[row, column]}, expected a finite "
            "float32. Fix: correct the matrix."
        )
    return matrix

"""Sources of arrays in memory: NumPy arrays, and others with a shape, a dtype and slices."""

from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.dtypes import convert, returned_dtype
from mercore.stores.formats.source import check_row_range, check_shape, digest_rows

NAME = "the array"


@runtime_checkable
class Sliced(Protocol):
    """An array of NumPy, Zarr, Dask or h5py: ``numpy.asarray`` accepts its slices."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""

    @property
    def dtype(self) -> Any:  # noqa: ANN401 - each library has its own
        """A value that ``numpy.dtype`` accepts."""

    def __getitem__(self, rows: Any, /) -> Any:  # noqa: ANN401 - each library has its own
        """Return a slice of rows."""


class ArraySource:
    """An array of two dimensions as a ``Source``.

    Raises
    ------
    FormatError
        If the array is not 2-D, or has a dtype that mercore does not read.
    """

    name = NAME

    def __init__(self, array: Sliced) -> None:
        if not isinstance(array, Sliced):
            kind = type(array).__name__
            raise FormatError(
                f"rows are of type {kind}, expected a path or a 2-D array. Fix: "
                "numpy.asarray(rows)."
            )
        if len(array.shape) != 2 or not all(isinstance(size, Integral) for size in array.shape):
            raise FormatError(
                f"{NAME} has shape {tuple(array.shape)}, expected two dimensions, (n, d). Fix: "
                "array.reshape(n, d)."
            )
        n, d = (int(size) for size in array.shape)
        check_shape(NAME, n, d)
        self._array, self._stored = array, np.dtype(array.dtype)
        self.shape, self.dtype = (n, d), returned_dtype(self._stored, NAME)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop), dtype[stop − start, d], a copy."""
        check_row_range(self, start, stop)
        rows = np.array(self._array[start:stop], self._stored, order="C")
        return convert(rows, self.dtype, name=NAME, first=start)

    def fingerprint(self) -> str:
        """Return a digest of the shape, stored dtype and 64 evenly spaced rows."""
        n, d = self.shape
        return digest_rows(
            self, kind="array", stored=self._stored, size=n * d * self._stored.itemsize
        )

"""Sources of rows in memory: arrays of any library, data frames, sparse matrices and lists."""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.dtypes import convert, returned_dtype
from mercore.stores.formats.source import check_row_range, check_shape, digest_rows

NAME = "the array"


@runtime_checkable
class SlicedArray(Protocol):
    """An array of NumPy, Zarr, Dask, xarray or h5py: ``numpy.asarray`` accepts its slices."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""

    @property
    def dtype(self) -> Any:  # noqa: ANN401 - each library has its own
        """A value that ``numpy.dtype`` accepts."""

    def __getitem__(self, rows: Any, /) -> Any:  # noqa: ANN401 - each library has its own
        """Return a slice of rows."""


@runtime_checkable
class Frame(Protocol):
    """A data frame of pandas or polars."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""

    @property
    def columns(self) -> Any:  # noqa: ANN401 - each library has its own
        """Names of the columns."""

    def to_numpy(self) -> NDArray[Any]:
        """Return the numbers."""


Sliced: TypeAlias = SlicedArray | Frame | Sequence[Any]  # rows in memory
AnyRows: TypeAlias = str | Sliced


class ArraySource:
    """An array of two dimensions as a ``Source``; blocks of rows become NumPy's when read.

    Parameters
    ----------
    block : returns the rows [start, stop) of ``array``; None: a slice

    Raises
    ------
    FormatError
        If the array is not 2-D, or has a dtype that mercore does not read.
    """

    name = NAME

    def __init__(
        self,
        array: SlicedArray,
        *,
        stored: np.dtype[Any] | None = None,
        block: Callable[[int, int], Any] | None = None,
    ) -> None:
        shape = tuple(array.shape)
        if len(shape) != 2 or not all(isinstance(size, Integral) for size in shape):
            raise FormatError(
                f"{NAME} has shape {shape}, expected two dimensions, (n, d). Fix: "
                "array.reshape(n, d)."
            )
        n, d = (int(size) for size in shape)
        check_shape(NAME, n, d)
        self._block = block or (lambda start, stop: array[start:stop])
        self.source_dtype = _dtype_of(array) if stored is None else stored
        self.shape, self.dtype = (n, d), returned_dtype(self.source_dtype, NAME)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop), dtype[stop − start, d], a copy."""
        check_row_range(self, start, stop)
        rows = np.array(self._block(start, stop), self.source_dtype, order="C")
        return convert(rows, self.dtype, name=self.name, first=start)

    def fingerprint(self) -> str:
        """Return a digest of the shape, stored dtype and 64 evenly spaced rows."""
        n, d = self.shape
        size = n * d * self.source_dtype.itemsize
        return digest_rows(self, kind="array", stored=self.source_dtype, size=size)


def open_array(rows: Any) -> ArraySource:  # noqa: ANN401 - what is no array is refused
    """Open an array, a data frame, a sparse matrix, or a list of lists of numbers.

    Raises
    ------
    FormatError
        If it is something else, is not 2-D, or holds no numbers.
    """
    if isinstance(rows, list | tuple):
        return ArraySource(_array_of_lists(rows))
    if hasattr(rows, "tocsr"):
        return _open_sparse(rows)
    if isinstance(rows, Frame):
        return _open_frame(rows)
    if not isinstance(rows, SlicedArray):
        kind = type(rows).__name__
        raise FormatError(
            f"rows are of type {kind}, expected a path or a 2-D array. Fix: numpy.asarray(rows)."
        )
    return ArraySource(rows)


def _dtype_of(array: SlicedArray) -> np.dtype[Any]:
    """Return the dtype of an array."""
    try:
        dtype: np.dtype[Any] = np.dtype(array.dtype)
    except TypeError as error:
        raise FormatError(
            f"{NAME} has dtype {array.dtype}, expected one of NumPy. Fix: numpy.asarray(rows)."
        ) from error
    return dtype


def _array_of_lists(rows: Sequence[Any]) -> NDArray[Any]:
    """Return lists of numbers as an array."""
    try:
        return np.asarray(rows)
    except (ValueError, TypeError) as error:
        raise FormatError(
            f"the list of rows is no matrix ({error}), expected lists of equal length of numbers. "
            "Fix: check the length of each row."
        ) from error


def _open_sparse(rows: Any) -> ArraySource:  # noqa: ANN401 - any class of scipy.sparse
    """Open CSR rows; only a block of them is dense at a time."""
    if getattr(rows, "format", None) != "csr":
        raise FormatError(
            f"rows are a sparse {type(rows).__name__}, expected CSR. Fix: rows.tocsr()."
        )

    def block(start: int, stop: int) -> NDArray[Any]:
        return np.asarray(rows[start:stop].toarray())

    return ArraySource(rows, block=block)


def _open_frame(frame: Any) -> ArraySource:  # noqa: ANN401 - a class of pandas or polars
    """Open a data frame whose columns are numbers."""
    rows = getattr(frame, "iloc", frame)  # the positions of pandas, whatever its index
    if not callable(getattr(frame, "to_numpy", None)) or not hasattr(rows, "__getitem__"):
        raise FormatError(
            f"rows are of type {type(frame).__name__}, expected a path or a 2-D array. Fix: "
            "numpy.asarray(rows)."
        )
    stored = np.asarray(rows[0:0].to_numpy()).dtype
    if stored.kind == "O":
        raise FormatError(
            f"the data frame has columns that are no numbers of NumPy ({_kinds(frame)}), expected "
            "numbers alone. Fix: choose its columns, or frame.astype('float32')."
        )
    return ArraySource(frame, stored=stored, block=lambda start, stop: rows[start:stop].to_numpy())


def _kinds(frame: Any) -> str:  # noqa: ANN401 - a class of pandas or polars
    """Return the first columns of a data frame with their types."""
    pairs = list(zip(frame.columns, frame.dtypes, strict=False))[:4]
    return ", ".join(f"{name}: {kind}" for name, kind in pairs)

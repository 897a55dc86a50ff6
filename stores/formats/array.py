"""Sources of rows in memory: arrays of any library, tables, sparse matrices and lists."""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.dtypes import convert
from mercore.stores.formats.source import Source, StoredSource

if TYPE_CHECKING:
    from mercore.stores.formats.arrow import ArrowSource

NAME = "the array"
HOST_DEVICES = (1, 3, 11, 13)  # of DLPack, whose memory NumPy reads
DEVICES = {2: "cuda", 8: "metal", 10: "rocm", 14: "oneapi"}


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


class ArrowStream(Protocol):
    """Tables, columns and streams of any library that gives them as a stream of Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of the stream."""


class ArrowArray(Protocol):
    """A record batch or a column of any library that gives it as an array of Arrow."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return capsules of the schema and of the array."""


class DlpackArray(Protocol):
    """An array or a tensor of any library that shares its memory by DLPack."""

    def __dlpack__(self, *, stream: None = None) -> object:
        """Return a capsule of the memory."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind and the number of the device."""


# Rows in memory, or from a stream.
Sliced: TypeAlias = SlicedArray | Frame | ArrowStream | ArrowArray | DlpackArray | Sequence[Any]
AnyRows: TypeAlias = str | Sliced


class ArraySource(StoredSource):
    """An array of two dimensions as a ``Source``; blocks of rows become NumPy's when read.

    Parameters
    ----------
    block : returns the rows [start, stop) of ``array``; None: a slice

    Raises
    ------
    FormatError
        If the array is not 2-D, or has a dtype that mercore does not read.
    """

    kind = "array"

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
        super().__init__(NAME, (n, d), _dtype_of(array) if stored is None else stored)
        self._block = block or (lambda start, stop: array[start:stop])

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Return a copy of rows."""
        rows = np.array(self._block(start, stop), self.source_dtype, order="C")
        return convert(rows, self.dtype, name=self.name, first=start)


def open_array(rows: Any, *, once: bool = False) -> Source:  # noqa: ANN401 - what is no array is refused
    """Open an array, a data frame, Arrow data, a column of lists, a sparse matrix, or lists.

    Parameters
    ----------
    once : whether the rows of an Arrow stream may be read forward once, by its batches; otherwise
        all of them are held in memory

    Raises
    ------
    FormatError
        If it is something else, is not 2-D, or holds no numbers.
    """
    if isinstance(rows, list | tuple):
        return ArraySource(_array_of_lists(rows))
    if hasattr(rows, "tocsr"):
        return _open_sparse(rows)
    if _is_arrow(rows):
        return _open_arrow(rows, once=once)
    if (
        isinstance(rows, Frame)
        and callable(rows.to_numpy)
        and hasattr(_by_position(rows), "__getitem__")
    ):
        return _open_frame(rows)
    if _is_tensor(rows):
        return ArraySource(_from_dlpack(rows))
    if not isinstance(rows, SlicedArray):
        kind = type(rows).__name__
        fix = "rows.collect()" if hasattr(rows, "collect") else "numpy.asarray(rows)"
        raise FormatError(f"rows are of type {kind}, expected a path or a 2-D array. Fix: {fix}.")
    return ArraySource(rows)


def matrix_of(rows: Any) -> Any:  # noqa: ANN401 - rows of any kind
    """Return Arrow data and tensors that NumPy cannot take as arrays [n, d], other rows unchanged.

    Raises
    ------
    FormatError
        If lists differ in length, or a tensor is not in the memory of the CPU.
    """
    if _is_tensor(rows):
        return _from_dlpack(rows)
    if not _is_arrow(rows):
        return rows
    source = _open_arrow(rows)
    as_array = source.holds_lists or not hasattr(rows, "__array__")
    return source.read(0, source.shape[0]) if as_array else rows


def _is_arrow(rows: Any) -> bool:  # noqa: ANN401 - rows of any kind
    """Return whether rows are read by way of Arrow: its data, columns, and frames of objects."""
    if hasattr(rows, "iloc") or isinstance(rows, Frame):  # whose numbers need no pyarrow
        return len(rows.shape) == 1 or _stored(rows).kind == "O"
    # An array of xarray gives a stream too, but of a table with one row per number.
    return is_arrow(rows) and not isinstance(getattr(rows, "dtype", None), np.dtype)


def is_arrow(rows: object) -> bool:
    """Return whether rows are given as a stream or as an array of Arrow."""
    return hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")


def _open_arrow(rows: Any, *, once: bool = False) -> "ArrowSource":  # noqa: ANN401 - rows of any kind
    """Open a table, a column or a stream of Arrow, or a data frame that becomes a table."""
    from mercore.stores.formats.arrow import open_stream, open_table

    return open_stream(rows) if once and not isinstance(rows, Frame) else open_table(rows)


def _is_tensor(rows: object) -> bool:
    """Return whether rows are shared by DLPack, and no array of NumPy."""
    return hasattr(rows, "__dlpack__") and not (isinstance(rows, np.ndarray) or is_arrow(rows))


def _from_dlpack(rows: Any) -> NDArray[Any]:  # noqa: ANN401 - an array of any library
    """Return an array that shares the memory of an array or a tensor of another library."""
    kind, number = map(int, rows.__dlpack_device__())
    if kind not in HOST_DEVICES:
        raise FormatError(
            f"{NAME} is on the device {DEVICES.get(kind, kind)}:{number}, expected the memory of "
            "the CPU. Fix: rows.cpu() of torch, rows.get() of cupy, numpy.asarray(rows) of jax."
        )
    try:
        return np.from_dlpack(rows)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise FormatError(
            f"{NAME} is of type {type(rows).__name__}, which NumPy cannot share ({error}). Fix: "
            "convert it to float32."
        ) from error


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
    return ArraySource(rows, block=lambda start, stop: rows[start:stop].toarray())


def _open_frame(frame: Any) -> ArraySource:  # noqa: ANN401 - a class of pandas or polars
    """Open a data frame whose columns are numbers of NumPy."""
    rows = _by_position(frame)
    return ArraySource(
        frame, stored=_stored(frame), block=lambda start, stop: rows[start:stop].to_numpy()
    )


def _by_position(frame: Any) -> Any:  # noqa: ANN401 - a class of pandas or polars
    """Return a data frame whose slices are of positions, whatever its index."""
    return getattr(frame, "iloc", frame)


def _stored(frame: Any) -> np.dtype[Any]:  # noqa: ANN401 - a class of pandas or polars
    """Return the dtype of a data frame as an array."""
    dtype: np.dtype[Any] = np.asarray(_by_position(frame)[0:0].to_numpy()).dtype
    return dtype

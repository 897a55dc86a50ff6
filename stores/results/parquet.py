"""Hits in Parquet files: one row per query, with lists of k ids and k scores."""

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.location.local_file import LocalFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

NAMES = ("ids", "scores")
GROUP_NUMBERS = 1 << 24  # numbers per row group, which a reader loads at once
FIX = "Fix: write the file again, k ids per query, -1 where there are fewer."


def parquet_bytes(ids: NDArray[np.int64], scores: NDArray[np.floating[Any]] | None) -> bytes:
    """Return the Parquet file of ``ids`` and ``scores``, both [nq, k], with checksums of pages."""
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"ids": _lists(ids)}
    if scores is not None:
        columns["scores"] = _lists(
            scores.astype(np.float64 if scores.dtype.itemsize > 4 else np.float32)
        )
    stream = BytesIO()
    group = max(1, GROUP_NUMBERS // max(1, ids.shape[1]))
    parquet.write_table(pa.table(columns), stream, row_group_size=group, write_page_checksum=True)
    return stream.getvalue()


def read_parquet_hits(path: str) -> dict[str, NDArray[Any]]:
    """Return the columns ``ids`` and, if the file has it, ``scores``, each [nq, k].

    Raises
    ------
    FormatError
        If the file is damaged, has no ``ids``, or a row of either is not a list of k numbers.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    file = LocalFile(path)
    table = _read_table(path, file.read_prefix(file.size))
    for name in table.column_names:
        if table.column_names.count(name) > 1:
            message = (
                f"{path}: more than one column is called {name}, expected one. Fix: "
                "rename the others."
            )
            raise FormatError(message)
    return {name: _matrix(table.column(name), path, name) for name in table.column_names}


def _read_table(path: str, data: bytes) -> "pa.Table":
    """Return the columns of hits as an Arrow table; checksums are verified if the file has any."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            columns = file.schema_arrow.names
            if "ids" in columns:
                return _read_columns(file, [name for name in NAMES if name in columns])
    # The bytes are in memory: Arrow raises OSError for damage.
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(". ")
        message = (
            f"{path}: the Parquet file is damaged ({reason}). Fix: fetch or write the file again."
        )
        raise FormatError(message) from error
    message = (
        f"{path}: the columns are {columns}, expected ids, a list of k per query. Fix: "
        "name a file of hits."
    )
    raise FormatError(message)


def _read_columns(file: "parquet.ParquetFile", names: list[str]) -> "pa.Table":
    """Read columns and check the number of rows, which Arrow does not."""
    table = file.read(names, use_threads=False)
    if len(table) != file.metadata.num_rows:
        message = f"{len(table)} rows in its row groups, expected {file.metadata.num_rows}"
        raise ValueError(message)
    return table


def _matrix(column: "pa.ChunkedArray", path: str, name: str) -> NDArray[Any]:
    """Return a column of lists as an array [nq, k]; refuse nulls and lists of different lengths."""
    import pyarrow as pa

    k = _width(column, path, name)
    none = pa.array([], column.type.value_type)  # gives a column without chunks a dtype
    chunks = [none, *(chunk.flatten() for chunk in column.chunks)]
    done = 0
    for chunk in chunks:
        if chunk.null_count:
            query = (done + int(np.flatnonzero(chunk.is_null())[0])) // k
            message = f"{path}: query {query} has a null among its {name}, expected numbers. {FIX}"
            raise FormatError(message)
        done += len(chunk)
    rows: NDArray[Any] = np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in chunks])
    return rows.reshape(len(column), k)


def _width(column: "pa.ChunkedArray", path: str, name: str) -> int:
    """Return the length of the lists of a column, or refuse different lengths."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not _holds_numbers(kind):
        message = (
            f"{path}: {name} are {kind}, expected one list of k numbers per query. Fix: "
            "name a file of hits."
        )
        raise FormatError(message)
    if column.null_count:
        query = int(np.flatnonzero(column.is_null())[0])
        message = (
            f"{path}: query {query} has a null for its {name}, expected a list of k numbers. {FIX}"
        )
        raise FormatError(message)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    lengths = pc.list_value_length(column).to_numpy()
    k = int(lengths[0]) if len(lengths) else 0
    other = np.flatnonzero(lengths != k)
    if other.size:
        query = int(other[0])
        message = (
            f"{path}: query {query} has {lengths[query]} {name}, expected {k} as query 0 has. {FIX}"
        )
        raise FormatError(message)
    return k


def _holds_numbers(kind: "pa.DataType") -> bool:
    """Return whether a type is lists of integers or floats."""
    import pyarrow as pa

    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    numbers = (pa.types.is_integer, pa.types.is_floating)
    return any(is_it(kind) for is_it in lists) and any(is_it(kind.value_type) for is_it in numbers)


def _lists(rows: NDArray[Any]) -> "pa.Array":
    """Return rows as Arrow lists of fixed size, or of variable size for k = 0, as Parquet needs."""
    import pyarrow as pa

    flat = pa.array(rows.ravel())
    k = rows.shape[1]
    if k:
        return pa.FixedSizeListArray.from_arrays(flat, k)
    return pa.ListArray.from_arrays(pa.array(np.zeros(len(rows) + 1, np.int32)), flat)

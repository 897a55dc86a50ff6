"""Hits in Parquet files: one row per query, with lists of k ids and k scores."""

from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from mercore.stores.errors import FormatError
from mercore.stores.formats.arrow import is_list, list_length, list_rows
from mercore.stores.formats.damage import damage_refused
from mercore.stores.location.local_file import LocalFile

NAMES = ("ids", "scores")
GROUP_NUMBERS = 1 << 24  # numbers per row group, which a reader loads at once
FIX = "write the file again, k ids per query, -1 where there are fewer"
DAMAGED = "the Parquet file is damaged"


def parquet_bytes(
    ids: NDArray[np.int64],
    scores: NDArray[np.floating[Any]] | None,
    names: NDArray[Any] | None = None,
) -> bytes:
    """Return the Parquet file of ids, scores and names, all [nq, k], with checksums of pages."""
    columns = {"ids": _lists(ids)}
    if names is not None:
        columns["names"] = _lists(names)
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
    table = _read_table(path)
    for name in table.column_names:
        if table.column_names.count(name) > 1:
            raise FormatError(
                f"{path}: more than one column is called {name}, expected one. Fix: "
                "rename the others."
            )
    return {name: _matrix(table.column(name), f"{path}::{name}") for name in table.column_names}


def column_names(path: str) -> list[str]:
    """Return the names of the columns of a Parquet file; raises as ``read_parquet_hits`` does."""
    LocalFile(path)  # which says why it cannot be read
    with damage_refused(path, DAMAGED):
        return list(parquet.read_schema(path).names)


def _read_table(path: str) -> pa.Table:
    """Return the columns of hits as an Arrow table; checksums are verified if the file has any."""
    stored = LocalFile(path)
    data = pa.BufferReader(stored.read_prefix(stored.size))
    with (
        damage_refused(path, DAMAGED),
        parquet.ParquetFile(data, page_checksum_verification=True) as file,
    ):
        columns = file.schema_arrow.names
        if "ids" not in columns:
            raise FormatError(
                f"{path}: the columns are {columns}, expected ids, a list of k per query. Fix: "
                "name a file of hits."
            )
        table = file.read([name for name in NAMES if name in columns], use_threads=False)
        if len(table) != file.metadata.num_rows:  # which Arrow does not check
            raise ValueError(
                f"{len(table)} rows in its row groups, expected {file.metadata.num_rows}"
            )
    return table


def _matrix(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Return a column of lists as an array [nq, k]."""
    if not is_list(column.type):
        raise FormatError(
            f"{name}: a column of {column.type}, expected one list of k numbers per query. Fix: "
            "name a file of hits."
        )
    chunks = [chunk for chunk in column.chunks if len(chunk)] or [pa.array([], column.type)]
    rows: list[NDArray[Any]] = []
    for chunk in chunks:
        rows.append(list_rows(chunk, list_length(chunks[0]), name, sum(map(len, rows)), FIX))
    return np.concatenate(rows)


def _lists(rows: NDArray[Any]) -> pa.Array:
    """Return rows as Arrow lists of fixed size, or of variable size for k = 0, as Parquet needs."""
    flat = pa.array(rows.ravel())
    k = rows.shape[1]
    if k:
        return pa.FixedSizeListArray.from_arrays(flat, k)
    return pa.ListArray.from_arrays(pa.array(np.zeros(len(rows) + 1, np.int32)), flat)

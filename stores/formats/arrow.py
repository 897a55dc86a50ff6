"""Parquet and Arrow (Feather) files, and tables in memory; lists or columns of numbers are rows."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError
from mercore.stores.formats.binary import FileReader, open_binary
from mercore.stores.formats.damage import damage_refused
from mercore.stores.formats.dtypes import convert
from mercore.stores.formats.source import StoredSource

TABLE, STREAM = "the table", "the stream"  # names of rows that are no file
BATCH_BYTES = 8 << 20
BUFFER_BYTES = 1 << 20
DROP = "drop that row, or name another column"


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Rows that are read together, and their number in the file ``path``."""

    path: str
    number: int
    rows: int


class ArrowSource(StoredSource):
    """A ``Source`` over files of one schema, in their order, or over a table in memory.

    ``columns`` names the numbers, and ``opened`` opens a path. It goes on where it stopped, so that
    blocks in order are decoded once. Other rows are decoded from the first of their piece on.

    Raises
    ------
    FormatError
        If a file is damaged, or its columns are no rows of numbers.
    NotFoundError, StorageError
        If a file does not exist, or cannot be read.
    """

    kind = "arrow"

    def __init__(
        self,
        name: str,
        paths: Sequence[str],
        columns: str | None,
        opened: "Callable[[str], Pieces] | None" = None,
    ) -> None:
        self.name, self._opened = name, opened or open_pieces
        first = self._opened(paths[0])
        self._columns = _chosen(first.schema, columns, name)
        self._fields = fields_of(first, self._columns, paths[0])
        self._pieces = [piece for path in paths for piece in self._pieces_of(path)]
        self._starts = np.cumsum([0, *(piece.rows for piece in self._pieces)]).tolist()
        self._lock, self._at = Lock(), -1
        self._blocks: Iterator[NDArray[Any]] = iter(())
        stored = _stored(self._fields, name)
        super().__init__(name, (self._starts[-1], self._dims()), stored)
        self._rest = np.empty((0, self.shape[1]), self.dtype)

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        with self._lock:
            if start != self._at:
                self._blocks, self._rest = self._from(start), self._rest[:0]
            self._at = -1  # after an error, the next call begins anew
            rows = self._next(stop - start)
            self._at = stop
        return rows

    def _next(self, count: int) -> NDArray[Any]:
        """Return the next rows, fewer than ``count`` only if there are no more."""
        rows, done = np.empty((count, self.shape[1]), self.dtype), 0
        while done < count:
            if not len(self._rest):
                block = next(self._blocks, None)
                if block is None:
                    break
                self._rest = block
            taken = min(len(self._rest), count - done)
            rows[done : done + taken] = self._rest[:taken]
            self._rest = self._rest[taken:]
            done += taken
        return rows[:done]

    @property
    def holds_lists(self) -> bool:
        """Whether the rows are those of a column of lists."""
        return is_list(self._fields[0].type)

    def _pieces_of(self, path: str) -> list[Piece]:
        """Return the pieces of a file, whose columns must be those of the first."""
        file = self._opened(path)
        found = fields_of(file, self._columns, path)
        if found != self._fields:
            raise FormatError(
                f"{path}: columns {_shown(found)}, expected {_shown(self._fields)} as in the "
                "first file. Fix: name files of one kind."
            )
        with damage_refused(path, "the file cannot be decoded"):
            counts = file.counts()
            if min(counts, default=0) < 0:
                raise ValueError("a negative number of rows")
        return [Piece(path=path, number=i, rows=rows) for i, rows in enumerate(counts) if rows]

    def _dims(self) -> int:
        """Return d: the count of columns, or of the numbers of row 0."""
        if not self.holds_lists:
            return len(self._fields)
        if not self._pieces:
            raise self._no_lists()
        return list_length(next(self._batches(0)).column(0))

    def _no_lists(self) -> FormatError:
        return FormatError(
            f"{self.name}: no rows, so the length of its lists is unknown. Fix: check the source."
        )

    def _from(self, start: int) -> Iterator[NDArray[Any]]:
        """Yield the rows from ``start`` on in blocks, dtype[any, d]."""
        for number in range(bisect_right(self._starts, start) - 1, len(self._pieces)):
            row = self._starts[number]
            for batch in self._batches(number):
                skipped = min(batch.num_rows, max(0, start - row))
                if skipped < batch.num_rows:
                    yield self._numbers(batch.slice(skipped), row + skipped)
                row += batch.num_rows

    def _batches(self, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a piece that have rows; their offsets are checked."""
        piece, row = self._pieces[number], self._starts[number]
        with damage_refused(piece.path, f"the rows from {row} on cannot be decoded"):
            for batch in self._opened(piece.path).batches(piece.number, self._columns):
                batch.validate(full=True)
                if batch.num_rows:
                    yield batch
                row += batch.num_rows
            if row != self._starts[number + 1]:
                raise ValueError(f"they end at row {row}, expected {self._starts[number + 1]}")

    def _numbers(self, batch: pa.RecordBatch, first: int) -> NDArray[Any]:
        """Return the numbers of a batch, dtype[rows, d]."""
        if not self.holds_lists:
            return np.column_stack(
                [self._converted(_plain(each, self.name, first)[:, None], first) for each in batch]
            )
        rows = list_rows(batch.column(0), self.shape[1], self.name, first)
        return self._converted(rows, first)

    def _converted(self, values: NDArray[Any], first: int) -> NDArray[Any]:
        """Return numbers as ``dtype``."""
        return convert(values, self.dtype, name=self.name, first=first)


class ArrowStreamSource(ArrowSource):
    """A ``Source`` whose record batches are read forward once, as a ``StreamSource`` of files.

    Raises
    ------
    FormatError
        If the stream cannot be read, or its columns are no rows of numbers.
    """

    open_ended = True

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self.name, schema = STREAM, reader.schema
        self._columns = _chosen(schema, None, STREAM)
        self._fields = [schema.field(name) for name in self._columns]
        self._reader = reader
        first = next(batches := self._stream(), None)
        if first is None and self.holds_lists:
            raise self._no_lists()
        dims = list_length(first.column(0)) if first and self.holds_lists else len(self._fields)
        StoredSource.__init__(self, STREAM, (0, dims), _stored(self._fields, STREAM))
        self._rest = np.empty((0, dims), self.dtype)
        self._blocks = self._numbered(chain([first] if first else [], batches))

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop), which must follow those that were read last.

        Raises
        ------
        InputError
            If they do not follow.
        FormatError
            If the stream cannot be read, or a row is not like the first.
        """
        if start != self.shape[0] or not self.open_ended:
            raise self._refusal(f"rows [{start}, {stop}) were asked for after row {self.shape[0]}")
        rows = self._next(stop - start)
        self.shape = (start + len(rows), self.shape[1])
        self.open_ended = len(rows) == stop - start
        return rows

    def fingerprint(self) -> str:
        """Refuse: a fingerprint needs rows from everywhere."""
        raise self._refusal("a fingerprint was asked for")

    def _refusal(self, what: str) -> InputError:
        return InputError(
            f"{self.name}: {what}, but a stream is read forward once. Fix: pass a table, or "
            "mercore.ingest the stream into a store."
        )

    def _stream(self) -> Iterator[pa.RecordBatch]:
        """Yield the columns of the batches that have rows; their offsets are checked."""
        wrong = "the library that makes the stream cannot go on"
        with damage_refused(STREAM, wrong, "check what it reads"):
            for batch in self._reader:
                batch.validate(full=True)
                if batch.num_rows:
                    yield batch.select(self._columns)

    def _numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[NDArray[Any]]:
        """Yield the numbers of batches, dtype[any, d]."""
        first = 0
        for batch in batches:
            yield self._numbers(batch, first)
            first += batch.num_rows


class ParquetPieces:
    """The row groups of a Parquet file."""

    def __init__(self, reader: pa.PythonFile) -> None:
        self._file = pq.ParquetFile(reader, buffer_size=BUFFER_BYTES, pre_buffer=False)
        self.schema = self._file.schema_arrow

    def counts(self) -> list[int]:
        """Return the rows of each row group."""
        metadata = self._file.metadata
        return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]

    def batches(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group in small batches."""
        group = self._file.metadata.row_group(number)
        size = max(1, group.total_byte_size // max(1, group.num_rows))
        rows = min(max(1, BATCH_BYTES // size), max(1, group.num_rows))
        return iter(
            self._file.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False)
        )


class BatchPieces:
    """The record batches of an Arrow file or of a table; ``get`` decodes the one of a number."""

    def __init__(self, schema: pa.Schema, count: int, get: Callable[[int], pa.RecordBatch]) -> None:
        self.schema, self._count, self._get = schema, count, get

    def counts(self) -> list[int]:
        """Return the rows of each batch; each is decoded to count them."""
        return [self._get(number).num_rows for number in range(self._count)]

    def batches(self, number: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the one batch of a number."""
        yield self._get(number).select(columns)


Pieces: TypeAlias = ParquetPieces | BatchPieces


def open_stream(rows: Any) -> ArrowSource:  # noqa: ANN401 - Arrow data of any library
    """Open a stream of record batches, which are read once; tables and columns are held in memory.

    Raises
    ------
    FormatError
        If its columns are no rows of numbers.
    """
    if isinstance(rows, pa.Table | pa.RecordBatch) or not hasattr(rows, "__arrow_c_stream__"):
        return open_table(rows)
    try:
        reader = pa.RecordBatchReader.from_stream(rows)
    except pa.ArrowInvalid:  # a column
        return open_table(rows)
    return ArrowStreamSource(reader)


def open_table(rows: Any) -> ArrowSource:  # noqa: ANN401 - Arrow data of any library
    """Open a table, a column of lists, or the rest of a stream of these, which is held in memory.

    Raises
    ------
    FormatError
        If its columns are no rows of numbers.
    """
    wrong = "it holds values that are no column of Arrow"
    with damage_refused(TABLE, wrong, "leave out columns that hold no numbers or lists of them"):
        table = _table_of(rows)
        size = max(1, table.nbytes // max(1, table.num_rows))
        batches = table.to_batches(max_chunksize=max(1, BATCH_BYTES // size))
    pieces = BatchPieces(table.schema, len(batches), batches.__getitem__)
    return ArrowSource(TABLE, [TABLE], None, lambda _: pieces)


def read_column(path: str, column: str | None) -> NDArray[Any]:
    """Return a column of numbers of a Parquet or Arrow file; without a name, its only column.

    Raises
    ------
    FormatError
        If the file is damaged, or the column does not exist or lacks a number.
    NotFoundError, StorageError
        If the file does not exist, or cannot be read.
    """
    file = open_pieces(path)
    names = file.schema.names if column is None else [column]
    if len(fields_of(file, names, path)) != 1:
        raise FormatError(
            f"{path}: columns {_shown(list(file.schema))}, expected one. Fix: name it, as "
            f"{path}::COLUMN."
        )
    with damage_refused(path, "the column cannot be decoded"):
        batches = [
            each for number in range(len(file.counts())) for each in file.batches(number, names)
        ]
        for batch in batches:
            batch.validate(full=True)
    firsts = np.cumsum([0, *(batch.num_rows for batch in batches)]).tolist()
    pieces = zip(batches, firsts, strict=False)
    return np.concatenate(
        [np.empty(0, np.int64)] * (not batches)
        + [_plain(batch.column(0), path, first) for batch, first in pieces]
    )


def _table_of(rows: Any) -> pa.Table:  # noqa: ANN401 - as open_table
    """Return rows as a table of Arrow, without a copy but for pandas; NaN stays NaN."""
    if hasattr(rows, "iloc") and len(rows.shape) > 1:
        columns = [pa.array(column, from_pandas=False) for _, column in rows.items()]
        return pa.Table.from_arrays(columns, [str(name) for name in rows.columns])
    if hasattr(rows, "iloc"):
        held = pa.chunked_array([pa.array(rows, from_pandas=False)])
    elif hasattr(rows, "__arrow_c_stream__"):
        held = pa.chunked_array(rows)
    else:
        held = pa.chunked_array([pa.array(rows)])
    if pa.types.is_struct(held.type):
        return pa.Table.from_struct_array(held)
    if not is_list(held.type):
        raise FormatError(
            f"rows are a column of {held.type}, expected two dimensions: a column of lists, or a "
            "table. Fix: name a table of columns."
        )
    return pa.table({"rows": held})


def open_pieces(path: str) -> "Pieces":
    """Open a file by its first bytes."""
    file = open_binary(path)
    reader = pa.PythonFile(FileReader(file), mode="r")
    with damage_refused(path, "the header cannot be decoded"):
        pieces: Pieces
        if file.read_prefix(4) == b"PAR1":
            pieces = ParquetPieces(reader)
        else:
            batches = pa.ipc.open_file(reader)
            pieces = BatchPieces(batches.schema, batches.num_record_batches, batches.get_batch)
        _decode_names(pieces.schema)
    return pieces


def _decode_names(schema: pa.Schema) -> None:
    """Decode the names and types of a schema, which pyarrow leaves to their first use."""
    for field in schema:
        _ = field.name, str(field.type)


def fields_of(file: "Pieces", columns: list[str], path: str) -> list[pa.Field]:
    """Return the names and types of columns."""
    names = file.schema.names
    for name in columns:
        if names.count(name) != 1:
            fix = "give each column its name" if path == TABLE else f"{path}::COLUMN"
            raise FormatError(
                f"{path}: {names.count(name)} columns {name!r}, expected one of "
                f"{', '.join(names)}. Fix: {fix}"
            )
    return [pa.field(name, file.schema.field(name).type) for name in columns]


def _shown(fields: list[pa.Field]) -> str:
    """Return columns as messages name them."""
    return ", ".join(f"{field.name} ({field.type})" for field in fields) or "none"


def _chosen(schema: pa.Schema, columns: str | None, name: str) -> list[str]:
    """Return the columns that hold the numbers."""
    if columns is not None:
        return columns.split(",")
    lists = [field.name for field in schema if is_list(field.type)]
    if len(lists) == 1:
        return lists
    plain = [field.name for field in schema if _is_number(field.type)]
    if lists or len(plain) < len(schema.names) or not plain:
        fix = f"name the column, as {name}::COLUMN, or several as {name}::A,B,C"
        raise FormatError(
            f"{name}: columns {_shown(list(schema))}, expected one of lists, or numbers "
            f"alone. Fix: {'leave the others out' if name in (TABLE, STREAM) else fix}."
        )
    return plain


def _storage_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without its extension."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def is_list(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds lists of numbers."""
    kind, types = _storage_type(kind), pa.types
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(listed and _is_number(kind.value_type))


def _is_number(kind: pa.DataType) -> bool:
    """Return whether a type is of numbers or bools."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _stored(schema: list[pa.Field], name: str) -> np.dtype[Any]:
    """Return the dtype that holds the numbers of all columns."""
    wrong = [field for field in schema if not (is_list(field.type) or _is_number(field.type))]
    if wrong or (len(schema) > 1 and any(is_list(field.type) for field in schema)):
        field = (wrong or schema)[0]
        raise FormatError(
            f"{name}: column {field.name} is of {field.type}, expected numbers or one column of "
            "lists of numbers. Fix: name another column."
        )
    kinds = [
        _storage_type(field.type).value_type if is_list(field.type) else field.type
        for field in schema
    ]
    return np.dtype(np.result_type(*(kind.to_pandas_dtype() for kind in kinds)))


def list_length(column: pa.Array) -> int:
    """Return the length of the first list of a column, 0 if there is none."""
    column = _storage(column)
    if pa.types.is_fixed_size_list(column.type):
        return int(column.type.list_size)
    return int(column[:1].value_lengths().fill_null(0).to_numpy(zero_copy_only=False).sum())


def list_rows(column: pa.Array, d: int, name: str, first: int, fix: str = DROP) -> NDArray[Any]:
    """Return a column of lists of ``d`` numbers as an array [rows, d].

    Raises
    ------
    FormatError
        If a list or a number is missing, or a list has another length. The first row of the column
        is row ``first`` of ``name``.
    """
    column = _storage(column)
    if column.null_count or not pa.types.is_fixed_size_list(column.type):
        lengths = column.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != d)
        if wrong.size:
            row, found = first + int(wrong[0]), int(lengths[wrong[0]])
            raise FormatError(
                f"{name}: row {row} {'is missing' if found < 0 else f'has {found} numbers'}, "
                f"expected {d} as in row 0. Fix: {fix}."
            )
    return _plain(column.flatten(), name, first, d, fix).reshape(len(column), d)


def _storage(column: pa.Array) -> pa.Array:
    """Return a column without its extension."""
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _plain(
    values: pa.Array, name: str, first: int, width: int = 1, fix: str = DROP
) -> NDArray[Any]:
    """Return the numbers of an array without nulls; ``width`` of them are a row."""
    if values.null_count:
        missing = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise FormatError(
            f"{name}: a number is missing (null) in row {first + missing // width}, expected "
            f"numbers. Fix: {fix}."
        )
    return np.asarray(values.to_numpy(zero_copy_only=False))

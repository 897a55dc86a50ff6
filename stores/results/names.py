"""Names of ids: a column of texts or whole numbers, which is read where an id was found."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError, naming_extras
from mercore.stores.formats import table_files
from mercore.stores.formats.array import ArrowArray, ArrowStream, is_arrow
from mercore.stores.formats.binary import open_binary
from mercore.stores.formats.damage import damage_refused
from mercore.stores.formats.npy import read_npy_header
from mercore.stores.location.resolve import refuse_url

if TYPE_CHECKING:
    import pyarrow as pa

Ids = NDArray[np.int64]
EXPECTED = "one text or whole number per id"
FIX = "Fix: name a column of these"


class Names:
    """The names of ids 0, 1, 2 …; ``count`` of them.

    Parameters
    ----------
    where : what messages call them
    read : returns the names of ascending ids: integers, or objects that are texts, whole numbers,
        or None where a name is missing
    """

    def __init__(self, where: str, count: int, read: Callable[[Ids], NDArray[Any]]) -> None:
        self.where, self.count, self._read = where, count, read

    def of(self, ids: Ids) -> NDArray[Any]:
        """Return the names of ids ≥ 0; each is read once."""
        found, places = np.unique(ids, return_inverse=True)
        return self._read(found)[places]

    def check_count(self, expected: int, store: str) -> None:
        """Refuse another number of names than ids of a store."""
        if self.count != expected:
            raise InputError(
                f"{self.where} has {self.count:,} names: expected {expected:,}, one per id of "
                f"{store}. Fix: name the column of the rows that were ingested."
            )

    def check_ids(self, ids: Ids) -> None:
        """Refuse ids beyond the names."""
        greatest = int(ids.max(initial=-1))
        if greatest >= self.count:
            raise InputError(
                f"{self.where} has {self.count:,} names: found the id {greatest}, expected ids "
                "below that. Fix: name the column of the rows that were ingested."
            )


AnyNames: TypeAlias = (
    str | NDArray[Any] | ArrowStream | ArrowArray | Sequence[str] | Sequence[int] | Names
)


def open_names(names: Any, where: str = "names") -> Names:  # noqa: ANN401 - what is no names is refused
    """Open the names in a file, an array, a list, or a column of a data frame or of Arrow.

    A path is that of a ``.npy``, or of a column, as ``FILE.parquet::COLUMN``; of a table, only the
    row groups with the names that are asked for are read.

    Raises
    ------
    FormatError
        If they are no column of texts or whole numbers.
    NotFoundError, StorageError
        If a file does not exist, or cannot be read.
    """
    if isinstance(names, Names):
        return names
    if isinstance(names, str):
        refuse_url(names, "names")
        paths, column = table_files(names)
        return _of_tables(names, paths, column) if paths else _of_npy(names)
    if hasattr(names, "iloc"):
        return _of_pandas(names, where)
    if is_arrow(names):
        with naming_extras():
            return _of_column(names, where)
    return _of_array(_as_array(names, where), where)


def _as_array(names: object, where: str) -> NDArray[Any]:
    """Return an array, or a list of texts or of whole numbers, as an array."""
    if isinstance(names, np.ndarray):
        return names
    if not isinstance(names, Sequence):
        raise FormatError(f"{where}: a {type(names).__name__}, expected {EXPECTED}. {FIX}.")
    objects = np.empty(len(names), object)
    objects[:] = names
    return objects


def _of_array(values: NDArray[Any], where: str) -> Names:
    """Return the names in an array of integers, of texts, or of objects that are one of these."""
    if values.ndim != 1 or values.dtype.kind not in "iuUTO":
        found = f"{values.dtype}{list(values.shape)}"
        raise FormatError(f"{where}: {found}, expected {EXPECTED}. {FIX}.")
    if values.dtype.kind == "O":
        kinds = {*map(type, values)} - {type(None)}
        allowed = (
            all(issubclass(kind, str) for kind in kinds),
            all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds),
        )
        if not any(allowed):
            found = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise FormatError(f"{where}: values of {found}, expected {EXPECTED}. {FIX}.")
    numbers = values.dtype.kind in "iu"
    return Names(
        where,
        len(values),
        lambda ids: values[ids] if numbers else values[ids].astype(object),
    )


def _of_npy(path: str) -> Names:
    """Return the names in a ``.npy``, which is mapped into memory, not read."""
    header = read_npy_header(open_binary(path))
    if not header.shape or not header.shape[0]:
        return _of_array(np.empty(header.shape, header.dtype), path)
    mapped = np.memmap(path, header.dtype, "r", header.offset, header.shape)
    return _of_array(mapped, path)


def _of_pandas(names: Any, where: str) -> Names:  # noqa: ANN401 - a Series of pandas
    """Return the names in a column of a data frame; NaN is a missing one."""
    if len(names.shape) != 1:
        raise FormatError(f"{where}: a table, expected {EXPECTED}. {FIX}, as frame['id'].")
    if getattr(names.dtype, "kind", "O") in "iu" and not names.hasnans:
        return _of_array(names.to_numpy(), where)
    values = names.to_numpy(object)
    values[names.isna().to_numpy()] = None
    return _of_array(values, where)


def _of_column(names: Any, where: str) -> Names:  # noqa: ANN401 - a column of Arrow
    """Return the names in a column of Arrow, or in a table of one column."""
    import pyarrow as pa

    stream = hasattr(names, "__arrow_c_stream__")
    held = pa.chunked_array(names) if stream else pa.chunked_array([pa.array(names)])
    if pa.types.is_struct(held.type) and held.type.num_fields == 1:
        held = pa.Table.from_struct_array(held).column(0)
    _check_type(held.type, where)
    return Names(where, len(held), lambda ids: _as_names(_taken(held, ids)))


def _of_tables(name: str, paths: Sequence[str], column: str | None) -> Names:
    """Return the names in a column of Parquet or Arrow files, in their order."""
    with naming_extras():
        from mercore.stores.formats.arrow import fields_of, open_pieces
    pieces, counts = [], [0]
    for path in paths:
        file = open_pieces(path)
        columns = file.schema.names if column is None else [column]
        fields = fields_of(file, columns, path)
        if len(fields) != 1:
            raise FormatError(
                f"{path}: columns {', '.join(columns)}, expected one. Fix: name it, as "
                f"{name}::COLUMN."
            )
        _check_type(fields[0].type, f"{path}::{columns[0]}")
        with damage_refused(path, "the file cannot be decoded"):
            found = file.counts()
        pieces += [(path, number, columns) for number in range(len(found))]
        counts += found
    ends = np.cumsum(counts)
    return Names(name, int(ends[-1]), partial(_read_pieces, pieces, ends))


def _read_pieces(pieces: Sequence[tuple[str, int, list[str]]], ends: Ids, ids: Ids) -> NDArray[Any]:
    """Return the names of ascending ids; piece i has those from ``ends[i]`` to ``ends[i + 1]``."""
    import pyarrow as pa

    from mercore.stores.formats.arrow import open_pieces

    found, opened = [], lru_cache(1)(open_pieces)
    for place in np.unique(np.searchsorted(ends, ids, side="right") - 1).tolist():
        path, number, columns = pieces[place]
        first = int(ends[place])
        with damage_refused(path, f"the rows from {first} on cannot be decoded"):
            for batch in opened(path).batches(number, columns):
                batch.validate(full=True)
                inside = ids[(ids >= first) & (ids < first + batch.num_rows)]
                found.append(_taken(batch.column(0), inside - first))
                first += batch.num_rows
    return _as_names(pa.chunked_array(found)) if found else np.empty(0, object)


def _taken(column: "pa.Array | pa.ChunkedArray", rows: Ids) -> "pa.Array | pa.ChunkedArray":
    """Return rows of a column of Arrow."""
    import pyarrow as pa

    if pa.types.is_string_view(column.type):  # which Arrow cannot take rows of
        column = column.cast(pa.large_string())
    return column.take(pa.array(rows))


def _check_type(kind: "pa.DataType", where: str) -> None:
    """Refuse a column of Arrow that holds neither texts nor integers."""
    import pyarrow as pa

    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = "is_string", "is_large_string", "is_string_view", "is_integer"
    if not any(getattr(pa.types, test)(value) for test in tests):
        raise FormatError(f"{where}: a column of {kind}, expected {EXPECTED}. {FIX}.")


def _as_names(column: "pa.ChunkedArray") -> NDArray[Any]:
    """Return a column of Arrow as integers, or as objects if they are texts or some are missing."""
    import pyarrow as pa

    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy())
    objects = np.empty(len(column), object)
    objects[:] = column.to_pylist()
    return objects

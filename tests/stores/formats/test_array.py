"""Arrays that are open already are sources too: NumPy's, Zarr's, Dask's, whatever is cut by
slices."""

from typing import Any

import dask.array
import numpy as np
import pandas
import polars
import pyarrow
import pytest
import scipy.sparse
import xarray
import zarr

from mercore.stores.errors import FormatError, InputError, ShapeError
from mercore.stores.formats import Sliced, open_source

ROWS = np.random.default_rng(0).integers(0, 256, (20, 5))
LISTS = pandas.Series(list(ROWS.astype(np.float32)), index=np.arange(20)[::-1])
COLUMN = pyarrow.array(ROWS.astype(np.float32).tolist(), pyarrow.list_(pyarrow.float32(), 5))
TABLE = pyarrow.table({f"x{i}": ROWS[:, i].astype(np.float32) for i in range(5)})
TABLES: dict[str, Any] = {
    "pandas": pandas.DataFrame({"id": list("abcdefghijklmnopqrst"), "rows": LISTS.to_numpy()}),
    "pandas column": LISTS,
    "polars arrays": polars.DataFrame({"rows": ROWS.astype(np.float32)}),
    "polars lists": polars.DataFrame({"id": range(20), "rows": ROWS.astype(np.float32).tolist()}),
    "polars column": polars.Series("rows", ROWS.astype(np.float32)),
    "table": TABLE,
    "table of lists": pyarrow.table({"rows": COLUMN}),
    "record batch": TABLE.to_batches()[0],
    "lists": COLUMN,
    "chunks": pyarrow.chunked_array([COLUMN[:7], COLUMN[7:7], COLUMN[7:]]),
}


@pytest.mark.parametrize(
    "dtype", ["u1", "<f2", ">f2", "<f4", ">f4", "<f8", "i1", ">i2", "<u2", "<i8", "bool"]
)
def test_numbers_are_those_of_the_array(dtype: str) -> None:
    array = (ROWS % 100).astype(dtype)
    source = open_source(array)
    read = source.read(3, 17)
    assert read.dtype == source.dtype
    assert read.dtype.isnative
    assert read.flags.c_contiguous
    assert np.array_equal(read, array[3:17])
    read[:] = 0
    assert np.array_equal(source.read(3, 17), array[3:17])  # what was read is nobody else's


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(ROWS.astype(np.float32)),
        ROWS.astype(np.float32)[::-1][::-1],
        dask.array.from_array(ROWS.astype(np.float32), chunks=(7, 2)),
        zarr.array(ROWS.astype(np.float32), chunks=(6, 5)),
    ],
    ids=["fortran", "strided", "dask", "zarr"],
)
def test_who_holds_the_array_does_not_matter(array: Sliced) -> None:
    source, plain = open_source(array), open_source(ROWS.astype(np.float32))
    assert source.fingerprint() == plain.fingerprint()
    assert source.read(0, 20).tobytes() == plain.read(0, 20).tobytes()


def test_a_fingerprint_tells_arrays_apart() -> None:
    other = ROWS.copy()
    other[7, 3] += 1
    prints = {
        open_source(array).fingerprint()
        for array in (ROWS, other, ROWS[:19], ROWS.astype(np.float64))
    }
    assert len(prints) == 4


def test_what_is_no_matrix_of_numbers_is_refused() -> None:
    unknown = dask.array.from_array(ROWS.astype(np.float32), chunks=(7, 5))
    for array in (ROWS[0], ROWS[None], unknown[unknown[:, 0] > 50]):
        with pytest.raises(FormatError, match="expected two dimensions"):
            open_source(array)
    with pytest.raises(FormatError, match="the numbers are complex128"):
        open_source(ROWS.astype(complex))
    with pytest.raises(FormatError, match="d = 0"):
        open_source(np.empty((3, 0)))


def test_a_number_that_float32_does_not_hold_is_refused_where_it_is() -> None:
    array = ROWS.astype(np.float64)
    array[11, 2] = 1e300
    source = open_source(array)
    assert source.read(0, 11).shape == (11, 5)
    with pytest.raises(InputError, match="row 11, column 2 holds 1e\\+300"):
        source.read(5, 20)


def test_rows_that_are_not_there_are_refused() -> None:
    with pytest.raises(ShapeError, match="asked for"):
        open_source(ROWS).read(15, 21)


def test_what_a_notebook_holds_is_read() -> None:
    rows = ROWS.astype(np.float32)
    frame = pandas.DataFrame(rows, index=np.arange(20)[::-1] + 0.5)
    for array in (
        rows.tolist(),
        tuple(map(tuple, rows.tolist())),
        frame,
        polars.DataFrame(rows),
        xarray.DataArray(rows, dims=("row", "column")),
        frame.convert_dtypes(),  # nullable
        frame.astype("Float32"),
        *TABLES.values(),
    ):
        source = open_source(array)
        assert source.shape == (20, 5)
        assert np.array_equal(source.read(3, 17), rows[3:17]), type(array)


def test_the_dtype_of_the_array_is_known() -> None:
    for dtype in ("float64", "float32", "int8", "int64", "bool"):
        assert open_source((ROWS % 2).astype(dtype)).source_dtype == dtype


def test_only_the_blocks_that_are_read_are_computed() -> None:
    computed: list[int] = []

    def count(block: np.ndarray) -> np.ndarray:
        computed.append(len(block))
        return block

    array = dask.array.from_array(ROWS.astype(np.float32), chunks=(5, 5)).map_blocks(
        count, dtype=np.float32, meta=np.empty((0, 0), np.float32)
    )
    open_source(array).read(6, 9)
    assert computed == [5]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([[1, 2], [3]], "the list of rows is no matrix"),
        ([1, 2, 3], "expected two dimensions"),
        ([["a", "b"]], "the numbers are <U1"),
        (
            pandas.DataFrame({"a": ["x"], "b": [1.0]}),
            r"the table: columns a \(.*string\), b \(double\), expected one of lists, or numbers alone. "
            "Fix: leave the others out.",
        ),
        (
            pandas.Series([[1.0, 2.0], [3.0, 4.0], [5.0]]),
            "the table: row 2 has 1 numbers, expected 2 as in row 0. Fix: drop that row",
        ),
        (
            pandas.DataFrame({"a": pandas.array([1, 2, None], "Int64"), "b": [1.0, 2.0, 3.0]}),
            r"the table: a number is missing \(null\) in row 2, expected numbers",
        ),
        (pandas.Series([np.eye(2)]), "the table: it holds values that are no column of Arrow"),
        (pyarrow.array([1.0, 2.0]), "rows are a column of double, expected two dimensions"),
        (scipy.sparse.csc_array(ROWS), "a sparse csc_array, expected CSR. Fix: rows.tocsr()"),
        ({"a": 1}, "rows are of type dict, expected a path"),
    ],
)
def test_what_is_no_rows_is_refused(rows: Any, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        open_source(rows).read(0, 3)

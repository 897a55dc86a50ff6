"""Files that hold several arrays or columns: each is written by its own library and read by ours."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import xarray
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import feather

from mercore.stores.errors import FormatError, MercoreError, NotFoundError
from mercore.stores.formats import open_source
from mercore.testing.cases import in_case
from mercore.testing.rows import steady
from tests.support.strategies import blocks

DTYPES = ["uint8", "int8", "float16", "float32", "float64", "int32", "int64", "uint16"]
KEPT = ("uint8", "int8", "float16", "float32")
ROWS = np.random.default_rng(0).random((100, 7), np.float32)
Write = Callable[[Path, NDArray[Any]], object]


def lists(rows: NDArray[Any]) -> pa.Table:
    """A table of one column of lists, and one of other numbers."""
    return pa.table({"row": pa.array(list(rows)), "text": ["x"] * len(rows)})


def fixed(rows: NDArray[Any]) -> pa.Table:
    """A table of one column of lists of one length."""
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.table({"row": pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])})


def columns(rows: NDArray[Any]) -> pa.Table:
    """A table of one column per dimension."""
    return pa.table({f"c{i}": column.copy() for i, column in enumerate(rows.T)})


def hdf5(**options: Any) -> Write:
    def write(path: Path, rows: NDArray[Any]) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("train", data=rows, **options)

    return write


WRITERS: dict[str, Write] = {
    "a.parquet": lambda path, rows: pq.write_table(lists(rows), path, row_group_size=4),
    "b.parquet": lambda path, rows: pq.write_table(fixed(rows), path, row_group_size=4),
    "c.parquet": lambda path, rows: pq.write_table(columns(rows), path, row_group_size=4),
    "a.feather": lambda path, rows: feather.write_feather(lists(rows), path, chunksize=4),
    "b.arrow": lambda path, rows: feather.write_feather(fixed(rows), path, chunksize=3),
    "a.npz": lambda path, rows: np.savez(path, rows=rows, other=rows[0]),
    "b.npz": lambda path, rows: np.savez(path, rows=np.asfortranarray(rows)),
    "c.npz": lambda path, rows: np.savez_compressed(path, rows=rows),
    "c.npy": np.save,
    "f.npy": lambda path, rows: np.save(path, np.asfortranarray(rows)),
    "csr.npz": lambda path, rows: scipy.sparse.save_npz(path, scipy.sparse.csr_array(rows)),
    "a.zarr": lambda path, rows: zarr.create_array(path, data=rows, chunks=(2, 3), overwrite=True),
}
NO_FLOAT16 = (".parquet", ".feather", ".arrow", "csr.npz")  # in lists of older Arrow, and in SciPy


def assert_read(path: str, rows: NDArray[Any], data: st.DataObject) -> None:
    """Check shape, dtypes, all rows, and any slices in any order."""
    source = open_source(path)
    kept = rows.dtype if rows.dtype.name in KEPT else np.dtype(np.float32)
    assert (source.shape, source.dtype, source.source_dtype) == (rows.shape, kept, rows.dtype)
    spans = st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))
    for span in [(0, len(rows)), *data.draw(st.lists(spans, max_size=4))]:
        start, stop = sorted(span)
        block = source.read(start, stop)
        assert block.flags.c_contiguous
        np.testing.assert_array_equal(block, rows[start:stop].astype(kept), strict=True)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.promise("Every format is read as its own library writes it")
def test_reads_what_its_library_wrote(tmp_path: Path, name: str) -> None:
    @steady(40)
    @given(data=st.data(), dtype=st.sampled_from(DTYPES))
    def check(data: st.DataObject, dtype: str) -> None:
        if dtype == "float16" and name.endswith(NO_FLOAT16):
            dtype = "float32"
        rows = data.draw(blocks(dtype))
        WRITERS[name](tmp_path / name, rows)
        assert_read(str(tmp_path / name), rows, data)

    check()


def test_rows_without_a_header_as_numpy_wrote_them(tmp_path: Path) -> None:
    @steady(20)
    @given(data=st.data(), dtype=st.sampled_from(DTYPES))
    def check(data: st.DataObject, dtype: str) -> None:
        rows = data.draw(blocks(dtype))
        rows.tofile(tmp_path / "rows.bin")
        source = open_source(str(tmp_path / "rows.bin"), form=f"raw:{dtype}:{rows.shape[1]}")
        np.testing.assert_array_equal(source.read(0, len(rows)), rows.astype(source.dtype))

    check()


def test_a_variable_that_xarray_wrote(tmp_path: Path) -> None:
    path = str(tmp_path / "set.zarr")
    xarray.Dataset({"rows": (("row", "bin"), ROWS)}).chunk(row=30).to_zarr(path, consolidated=False)
    np.testing.assert_array_equal(open_source(f"{path}/rows").read(0, 100), ROWS)


@pytest.mark.parametrize("options", [{}, {"chunks": (2, 1), "compression": "gzip"}])
def test_hdf5_as_h5py_wrote_it(tmp_path: Path, options: dict[str, Any]) -> None:
    @steady(4)
    @given(data=st.data(), dtype=st.sampled_from([*DTYPES, ">f4"]))
    def check(data: st.DataObject, dtype: str) -> None:
        rows = data.draw(blocks(dtype, st.tuples(st.integers(2, 9), st.integers(1, 5))))
        hdf5(**options)(tmp_path / "a.h5", rows)
        source = open_source(str(tmp_path / "a.h5::train"))
        np.testing.assert_array_equal(source.read(0, len(rows)), rows.astype(source.dtype))
        np.testing.assert_array_equal(source.read(1, 2), rows[1:2].astype(source.dtype))

    check()


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
def test_csr_as_scipy_saved_it(tmp_path: Path, dtype: str, compressed: bool) -> None:
    rng = np.random.default_rng(0)
    rows = (rng.integers(0, 100, (300, 40)) * (rng.random((300, 40)) < 0.1)).astype(dtype)
    path = str(tmp_path / "a.npz")
    scipy.sparse.save_npz(path, scipy.sparse.csr_matrix(rows), compressed=compressed)
    for source in (open_source(path), open_source(scipy.sparse.csr_array(rows))):
        for start, stop in [(0, 300), (17, 18), (200, 290), (5, 5), (0, 10)]:
            block = source.read(start, stop)
            np.testing.assert_array_equal(block, rows[start:stop].astype(source.dtype), strict=True)
    assert len(open_source(path).fingerprint()) == 32


def test_csr_is_never_dense(tmp_path: Path) -> None:
    n, d, path = 200_000, 500_000, str(tmp_path / "a.npz")  # 400 GB if it were dense
    columns_of = np.random.default_rng(0).integers(0, d, n)
    parts = np.arange(n, dtype=np.float32), columns_of, np.arange(n + 1)
    rows = scipy.sparse.csr_array(parts, shape=(n, d))
    scipy.sparse.save_npz(path, rows, compressed=False)
    for source in (open_source(path), open_source(rows)):
        block = source.read(n - 9, n)
        np.testing.assert_array_equal(block, rows[n - 9 :].toarray())


def damaged_csr(path: Path, **changed: Any) -> str:
    """Save a CSR matrix with some of its arrays changed."""
    good = scipy.sparse.csr_array(np.array([[1, 0, 2], [0, 0, 3]], np.float32))
    arrays = {"data": good.data, "indices": good.indices, "indptr": good.indptr}
    np.savez(path, **{**arrays, "format": b"csr", "shape": (2, 3), **changed})
    return str(path)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"indices": np.array([0, 3, 1])},
            r"rows \[0, 2\), one has a column that is not in \[0, 3\)",
        ),
        (
            {"indices": np.array([0, -1, 1])},
            r"rows \[0, 2\), one has a column that is not in \[0, 3\)",
        ),
        ({"indptr": np.array([0, 3, 2])}, r"indptr of rows \[0, 2\) is out of order"),
        ({"indptr": np.array([0, 2, 9])}, r"indptr of rows \[0, 2\) is out of order"),
        ({"indptr": np.array([0, 3])}, "expected 3 indptr"),
        ({"indices": np.array([0.0, 1, 2])}, "indices are no whole numbers"),
        ({"format": b"csc"}, "a sparse matrix of format 'csc', expected csr"),
        ({"shape": (2, 3, 4)}, "expected two whole numbers"),
        ({"shape": np.zeros(10_000)}, "80128 bytes, expected a few. Fix: save it again"),
        ({"data": np.zeros((3, 1))}, r"an array of shape \(3, 1\), expected one dimension"),
        (
            {"data": np.ones(5), "indices": np.arange(5) % 3, "indptr": np.array([0, 4, 5])},
            r"rows \[0, 2\), one has over 3 numbers",
        ),
    ],
)
def test_a_damaged_csr_is_refused(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    with pytest.raises(FormatError, match=told):
        open_source(damaged_csr(tmp_path / "a.npz", **changed)).read(0, 2)


def test_many_tables_are_one_source(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(5):
        pq.write_table(lists(ROWS[20 * i : 20 * i + 20]), folder / f"part-{i}.parquet")
    (folder / "_SUCCESS").touch()
    for path in (str(folder), f"{folder}::row", f"{folder}/part-*.parquet"):
        np.testing.assert_array_equal(open_source(path).read(13, 71), ROWS[13:71])
    pq.write_table(columns(ROWS), folder / "part-9.parquet")
    with pytest.raises(FormatError, match=r"part-9\.parquet: 0 columns 'row', expected one of c0"):
        open_source(str(folder))
    pq.write_table(lists(ROWS.astype(np.float64)), folder / "part-9.parquet")
    with pytest.raises(FormatError, match=r"part-9\.parquet: columns .* as in the first file"):
        open_source(str(folder))
    with pytest.raises(NotFoundError, match="no file has such a name"):
        open_source(f"{folder}/none-*.parquet")
    with pytest.raises(FormatError, match=r"_SUCCESS: a pattern may name \.parquet"):
        open_source(f"{folder}/_*")


def test_a_member_is_named(tmp_path: Path) -> None:
    table = columns(ROWS).append_column("id", pa.array(["a"] * 100))
    pq.write_table(table, tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", one=ROWS, two=ROWS[:3])
    np.savez(tmp_path / "none.npz")
    np.savez_compressed(tmp_path / "packed.npz", rows=np.asfortranarray(ROWS))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["train"], file["deep/test"], file["names"] = ROWS, ROWS[:4], np.zeros(3)
    for member, expected in [
        ("a.parquet::c2,c0", ROWS[:, [2, 0]]),
        ("a.npz::two", ROWS[:3]),
        ("a.h5::train", ROWS),
        ("a.h5::deep/test", ROWS[:4]),
    ]:
        source = open_source(str(tmp_path / member))
        np.testing.assert_array_equal(source.read(0, len(expected)), expected)
    for member, told in [
        ("a.parquet", "expected one of lists, or numbers alone. Fix: name the column"),
        ("a.parquet::c9", "0 columns 'c9', expected one of c0, c1"),
        ("a.parquet::c0,id", "column id is of string, expected numbers"),
        ("a.npz", "expected one of two dimensions. Fix: name one, as "),
        ("packed.npz", "a compressed array in Fortran order, expected C order. Fix: numpy.savez("),
        ("none.npz", "arrays none, expected one of two dimensions"),
        ("a.npz::three", "no array 'three', expected one of one, two"),
        ("a.h5", "2 datasets of two dimensions (deep/test, train), expected one"),
        ("a.h5::nothing", "no dataset 'nothing', expected one of: deep/test, names, train"),
        ("a.h5::names", "dataset 'names' has shape (3,), expected two dimensions"),
        ("a.fvecs::x", "no such file or folder"),
    ]:
        with in_case(member=member), pytest.raises(MercoreError) as raised:
            open_source(str(tmp_path / member))
        assert told in str(raised.value), raised.value


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ([1.0, 2.0], "row 2 has 2 numbers, expected 3 as in row 0"),
        (None, "row 2 is missing, expected 3 as in row 0"),
        ([1.0, None, 2.0], r"a number is missing \(null\) in row 2,"),
    ],
)
@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_lists_that_are_no_matrix_are_refused(
    tmp_path: Path, name: str, row: list[float] | None, told: str
) -> None:
    table = pa.table({"row": [[1.0, 2, 3], [4.0, 5, 6], row]})
    write = pq.write_table if name == "a.parquet" else feather.write_feather
    write(table, tmp_path / name)
    with pytest.raises(FormatError, match=told):
        open_source(str(tmp_path / name)).read(0, 3)


def test_a_damaged_page_is_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(fixed(ROWS), path)
    path.write_bytes(path.read_bytes()[:4] + bytes(40) + path.read_bytes()[44:])
    with pytest.raises(FormatError, match=r"the rows from 0 on cannot be decoded .* Fix: fetch or"):
        open_source(str(path)).read(0, 3)


def test_the_process_of_hdf5_ends_with_its_source(tmp_path: Path) -> None:
    hdf5()(tmp_path / "a.h5", ROWS)
    source = open_source(str(tmp_path / "a.h5"))
    process: subprocess.Popen[bytes] = source._dataset._process  # type: ignore[attr-defined]
    assert process.poll() is None
    process.kill()
    process.wait()
    with pytest.raises(
        FormatError, match=r"the HDF5 library crashed on this file \(exit code -9\)"
    ):
        source.read(0, 3)
    other = open_source(str(tmp_path / "a.h5"))
    number = other._dataset._process.pid  # type: ignore[attr-defined]
    del other
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)

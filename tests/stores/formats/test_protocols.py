"""Rows of any library that shares them by Arrow's PyCapsules or by DLPack, known by these alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
import xarray
from numpy.typing import NDArray

import mercore
from mercore.stores.errors import FormatError, InputError, MercoreError
from mercore.stores.formats import Sliced, open_source
from mercore.stores.formats.streams import row_blocks

ROWS = np.random.default_rng(0).integers(1, 256, (20, 5)).astype(np.float32)
LISTS = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 5)
TABLE = pa.table({"id": [f"row {i}" for i in range(20)], "rows": LISTS})
COLUMNS = pa.table({f"x{i}": ROWS[:, i] for i in range(5)})
CPU, CUDA, METAL = (1, 0), (2, 1), (8, 0)


class StreamOnly:
    """A stream of Arrow, which may be taken ``once``."""

    def __init__(self, held: Any, *, once: bool = False) -> None:
        self.held, self.once = held, once

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        if self.held is None:
            raise ValueError("the stream has been read")
        held, self.held = self.held, None if self.once else self.held
        return held.__arrow_c_stream__(requested_schema)


class ArrayOnly:
    """A record batch or a column of Arrow."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        found: tuple[object, object] = self.held.__arrow_c_array__(requested_schema)
        return found


class TensorOnly:
    """A tensor on a device, which is no array of NumPy."""

    def __init__(self, held: NDArray[Any], device: tuple[int, int] = CPU) -> None:
        self.held, self.device = held, device

    def __dlpack__(self, **options: Any) -> object:
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def of_nanoarrow(make: Callable[[Any], Any]) -> Any:
    """Arrow data of nanoarrow; the test is left out where it is not installed."""
    return make(pytest.importorskip("nanoarrow"))


KINDS: dict[str, Callable[[], Sliced]] = {
    "stream of a table": lambda: StreamOnly(TABLE),
    "stream of batches": lambda: StreamOnly(pa.Table.from_batches(TABLE.to_batches(7))),
    "stream of columns": lambda: StreamOnly(COLUMNS),
    "stream of a column": lambda: StreamOnly(pa.chunked_array([LISTS[:7], LISTS[7:]])),
    "stream that can be taken once": lambda: StreamOnly(TABLE, once=True),
    "record batch": lambda: ArrayOnly(TABLE.to_batches()[0]),
    "column": lambda: ArrayOnly(LISTS),
    "reader of pyarrow": TABLE.to_reader,
    "frame of polars": lambda: polars.DataFrame(TABLE),
    "column of polars": lambda: polars.DataFrame(TABLE)["rows"],
    "array of nanoarrow": lambda: of_nanoarrow(lambda na: na.Array(TABLE)),
    "stream of nanoarrow": lambda: of_nanoarrow(lambda na: na.ArrayStream(TABLE)),
    "column of nanoarrow": lambda: of_nanoarrow(lambda na: na.Array(LISTS)),
    "relation of duckdb": lambda: pytest.importorskip("duckdb").from_arrow(TABLE).select("rows"),
    "tensor": lambda: TensorOnly(ROWS),
    "read-only tensor": lambda: TensorOnly(np.frombuffer(ROWS.tobytes(), "f4").reshape(20, 5)),
    "strided tensor": lambda: TensorOnly(np.asfortranarray(ROWS)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_library(kind: str) -> None:
    source = open_source(KINDS[kind]())
    assert source.shape == (20, 5)
    np.testing.assert_array_equal(source.read(3, 17), ROWS[3:17])
    np.testing.assert_array_equal(source.read(0, 20), ROWS)


@pytest.mark.parametrize("kind", KINDS)
def test_ingest_stores_the_rows(kind: str, tmp_path: Path) -> None:
    report = mercore.ingest(KINDS[kind](), tmp_path / "base.zarr")
    assert (report["rows"], report["dims"]) == (20, 5)
    with mercore.open(tmp_path / "base.zarr", kernel="euclidean") as store:
        hits = store.search(KINDS[kind](), k=1)  # each row finds itself
    assert hits.ids[:, 0].tolist() == list(range(20))


def test_memory_is_shared_not_copied() -> None:
    shared = ROWS.copy()
    sources = [
        open_source(TensorOnly(shared)),
        open_source(ArrayOnly(pa.FixedSizeListArray.from_arrays(pa.array(shared.ravel()), 5))),
    ]
    shared[:] = 7
    for source in sources:
        assert (source.read(0, 20) == 7).all()


def test_a_stream_is_read_batch_by_batch() -> None:
    alive, most = 0, 0  # batches that exist now, and the most that did at once

    class Watched(bytearray):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal alive, most
        for _ in range(50):
            alive += 1
            most = max(most, alive)
            buffer = pa.py_buffer(Watched(ROWS.tobytes()))
            values = pa.Array.from_buffers(pa.float32(), ROWS.size, [None, buffer])
            yield pa.record_batch({"rows": pa.FixedSizeListArray.from_arrays(values, 5)})

    reader = pa.RecordBatchReader.from_batches(pa.schema({"rows": LISTS.type}), batches())
    source = open_source(StreamOnly(reader), once=True)
    seen = [rows for _, rows in row_blocks(source, 30)]
    np.testing.assert_array_equal(np.concatenate(seen), np.tile(ROWS, (50, 1)))
    assert most <= 3


def test_an_array_that_also_gives_a_stream_is_an_array() -> None:
    array: Any = xarray.DataArray(ROWS, dims=("row", "column"))  # whose stream has 100 rows
    assert open_source(array).shape == (20, 5)
    with pytest.raises(FormatError, match="expected two dimensions"):
        open_source(array[0])


def test_what_reads_rows_twice_holds_a_stream_in_memory(tmp_path: Path) -> None:
    store = tmp_path / "base.zarr"
    mercore.ingest([StreamOnly(TABLE), ROWS], store)
    assert mercore.append(TABLE.to_reader(), store)["rows"] == 60
    assert mercore.append(TABLE.to_reader(), store)["rows_appended"] == 0  # it has them already
    assert mercore.ingest(TABLE.to_reader(), tmp_path / "few.zarr", rows="3:7")["rows"] == 4


def test_an_estimator_is_fitted_to_them() -> None:
    kinds: list[Any] = [StreamOnly(TABLE), StreamOnly(COLUMNS), TensorOnly(ROWS), LISTS]
    for rows in kinds:
        nearest = mercore.KernelNeighbors(n_neighbors=1).fit(rows)
        assert nearest.kneighbors(rows, return_distance=False)[:, 0].tolist() == list(range(20))


def failing() -> Iterator[pa.RecordBatch]:
    """A batch, and then an error of the library that makes them."""
    yield TABLE.to_batches()[0]
    raise ValueError("the query was interrupted")


NUMBERS = pa.schema({"id": pa.string(), "rows": LISTS.type})


@pytest.mark.parametrize(
    ("rows", "error", "told"),
    [
        (
            TensorOnly(ROWS, CUDA),
            FormatError,
            r"the array is on the device cuda:1, expected the memory of the CPU. Fix: rows.cpu\(\)",
        ),
        (TensorOnly(ROWS, METAL), FormatError, "on the device metal:0, expected"),
        (TensorOnly(ROWS, (99, 0)), FormatError, "on the device 99:0, expected"),
        (TensorOnly(ROWS[0]), FormatError, "expected two dimensions"),
        (TensorOnly(ROWS.astype("M8[s]")), FormatError, "which NumPy cannot share"),
        (StreamOnly(pa.chunked_array([[1.0, 2.0]])), FormatError, "rows are a column of double"),
        (
            StreamOnly(pa.table({"a": ["x"], "b": [1.0]})),
            FormatError,
            r"the stream: columns a \(string\), b \(double\), expected one of lists, or numbers "
            "alone. Fix: leave the others out.",
        ),
        (
            StreamOnly(pa.table({"rows": [[1.0, 2.0], [3.0], None]})),
            FormatError,
            "the stream: row 1 has 1 numbers, expected 2 as in row 0",
        ),
        (StreamOnly(NUMBERS.empty_table()), FormatError, "the length of its lists is unknown"),
        (StreamOnly(COLUMNS.slice(0, 0)), InputError, "the stream has no row to store"),
        (
            StreamOnly(pa.RecordBatchReader.from_batches(NUMBERS, failing())),
            FormatError,
            "the library that makes the stream cannot go on .*the query was interrupted",
        ),
        (polars.LazyFrame({"a": [1.0]}), FormatError, r"of type LazyFrame, .* Fix: rows.collect"),
    ],
)
@pytest.mark.filterwarnings("ignore:Determining the column names of a LazyFrame")
def test_what_is_no_rows_is_refused(
    rows: Sliced, error: type[MercoreError], told: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=told):
        mercore.ingest(rows, tmp_path / "base.zarr")
    assert not (tmp_path / "base.zarr").exists()


def test_a_stream_is_read_forward_once() -> None:
    source = open_source(StreamOnly(TABLE), once=True)
    np.testing.assert_array_equal(source.read(0, 8), ROWS[:8])
    for action in (lambda: source.read(0, 8), lambda: source.read(9, 12), source.fingerprint):
        with pytest.raises(InputError, match=r"a stream is read forward once\. Fix: pass a table"):
            action()
    np.testing.assert_array_equal(source.read(8, 100), ROWS[8:])
    assert source.shape == (20, 5)

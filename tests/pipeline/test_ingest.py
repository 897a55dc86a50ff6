"""Ingest keeps every row and says exactly what it saw."""

import gzip
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import mercore
from mercore.pipeline import ingest as ingesting
from mercore.pipeline.ingest import Drop, RowReport, ingest
from mercore.stores import vector_writer
from mercore.stores.distinct import DistinctCounter
from mercore.stores.errors import InputError
from mercore.stores.vector_writer import VectorWriter
from mercore.stores.vectors import VectorStore, original_ids
from mercore.testing.rows import steady
from mercore.testing.stores import Rows, make_vectors


@st.composite
def odd_rows(draw: st.DrawFn) -> NDArray[Any]:
    """Rows of few values, so that some are zero and many are twins; floats with NaN, ±inf and −0.0
    among them."""
    dtype = draw(st.sampled_from(["uint8", "float16", "float32"]))
    values = (
        [0, 0, 0, 1, 2]
        if dtype == "uint8"
        else [0, 0, 0, 0, 0, -0.0, 1, 1.5, -0.5, np.nan, np.inf, -np.inf]
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.integers(1, 60)), draw(st.integers(1, 4))
    return rng.choice(np.array(values, dtype), shape)


def facts(rows: NDArray[Any]) -> dict[str, Any]:
    """What NumPy sees in the rows."""
    finite = rows[np.isfinite(rows)].astype(float)
    return {
        "zero_rows": int((rows == 0).all(axis=1).sum()),
        "nan_rows": int(np.isnan(rows).any(axis=1).sum()),
        "infinite_rows": int(np.isinf(rows).any(axis=1).sum()),
        "negative_rows": int((rows < 0).any(axis=1).sum()),
        "value_min": float(finite.min()) if finite.size else None,
        "value_max": float(finite.max()) if finite.size else None,
        "duplicate_rows": len(rows) - len({row.tobytes() for row in rows}),
        "source_rows": len(rows),
        "source_dtype": rows.dtype.name,
    }


def stored(vectors: VectorStore) -> NDArray[Any]:
    return np.concatenate([vectors.read_part(part) for part in range(vectors.parts)])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has the rows of one part."""
    monkeypatch.setattr(ingesting, "BLOCK_BYTES", 1)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part has at most 24 bytes."""
    monkeypatch.setattr(vector_writer, "CHUNK_BYTES", 24)


@given(rows=odd_rows(), drop=st.booleans())
@steady(60)
def test_every_row_is_stored_and_counted(
    rows: NDArray[Any], drop: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    zero = (rows == 0).all(axis=1)
    path = tmp_path_factory.mktemp("ingest") / "vectors"
    if drop and zero.all():
        with pytest.raises(InputError):
            make_vectors(path, rows, drop_zero_rows=True)
        return
    vectors = make_vectors(path, rows, part_rows=8, drop_zero_rows=drop)
    kept = rows[~zero] if drop else rows
    np.testing.assert_array_equal(stored(vectors).view(np.uint8), kept.view(np.uint8), strict=True)
    said = {key: getattr(vectors.spec, key) for key in facts(rows)}
    assert said == facts(rows)
    assert vectors.spec.dropped_rows == (zero.sum() if drop else 0)
    np.testing.assert_array_equal(vectors.dropped, np.flatnonzero(zero) if drop else [])
    np.testing.assert_array_equal(
        original_ids(np.arange(len(kept)), vectors.dropped),
        np.flatnonzero(~zero) if drop else np.arange(len(rows)),
    )


@given(rows=odd_rows(), split=st.integers(0, 60))
@steady(60)
def test_a_report_does_not_depend_on_the_blocks(rows: NDArray[Any], split: int) -> None:
    whole, halves = RowReport(drop=Drop(zero=True)), RowReport(drop=Drop(zero=True))
    zero = whole.add(rows)
    np.testing.assert_array_equal(zero, (rows == 0).all(axis=1))
    np.testing.assert_array_equal(
        np.concatenate([halves.add(rows[:split]), halves.add(rows[split:])]), zero
    )
    assert halves == whole


def test_a_store_without_a_finite_value_has_no_range(tmp_path: Path) -> None:
    spec = make_vectors(tmp_path / "vectors", np.full((3, 2), np.nan, np.float32)).spec
    assert (spec.value_min, spec.value_max, spec.nan_rows, spec.duplicate_rows) == (
        None,
        None,
        3,
        2,
    )


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (3, "rows has no row to store: found 3 rows, 3 of them all zero. Fix: check the source."),
        (0, "rows has no row to store: found 0 rows, 0 of them all zero. Fix: check the source."),
    ],
)
def test_a_source_of_nothing_is_refused_and_leaves_nothing_behind(
    n: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refusal:
        make_vectors(tmp_path / "vectors", np.zeros((n, 4), np.uint8), drop_zero_rows=True)
    assert str(refusal.value) == message
    assert list(tmp_path.iterdir()) == []


def test_duplicates_are_counted_in_bounded_memory(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 3, (80, 3)).astype(np.uint8)
    assert make_vectors(tmp_path / "vectors", rows, held=5).spec.duplicate_rows == 80 - len(
        np.unique(rows, axis=0)
    )


def test_zero_rows_are_kept_unless_they_are_to_be_dropped(tmp_path: Path) -> None:
    vectors = make_vectors(tmp_path / "vectors", np.zeros((3, 4), np.uint8))
    assert (vectors.rows, vectors.spec.zero_rows, vectors.spec.dropped_rows) == (3, 3, 0)


@pytest.mark.usefixtures("small_parts")
def test_a_source_that_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    class Failing(Rows):
        def read(self, start: int, stop: int) -> NDArray[Any]:
            if start >= 12:
                raise InputError("row 12 is beyond float32's range")
            return super().read(start, stop)

    def run() -> None:
        with (
            VectorWriter(
                tmp_path / "vectors", dims=1, dtype=np.dtype(np.float32), compressor="none"
            ) as writer,
            closing(DistinctCounter(tmp_path, capacity=3)) as counter,
        ):
            ingest(Failing(np.ones((20, 1), np.float32)), writer, counter)

    with pytest.raises(InputError, match="row 12"):
        run()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small_parts")
def test_progress_adds_up_to_the_rows(tmp_path: Path) -> None:
    told: list[int] = []
    rows = np.ones((19, 2), np.float32)
    with (
        VectorWriter(tmp_path / "vectors", dims=2, dtype=rows.dtype, compressor="none") as writer,
        closing(DistinctCounter(tmp_path)) as counter,
    ):
        ingest(Rows(rows), writer, counter, advance=told.append)
    assert told == [2] * 9 + [1]


def test_a_stream_is_stored_as_its_file_is(tmp_path: Path) -> None:
    """The rows of a stream are counted at its end; its chunks are no smaller for that."""
    for name, count in (("few", 40), ("many", 5000)):
        rows = np.random.default_rng(count).integers(0, 9, (count, 64), np.uint8)
        np.save(tmp_path / f"{name}.npy", rows)
        vecs = np.column_stack([np.full((count, 1), 64, "<i4").view(np.uint8), rows])
        (tmp_path / f"{name}.bvecs.gz").write_bytes(gzip.compress(vecs.tobytes(), 1))
        made = [
            mercore.ingest(tmp_path / f"{name}{suffix}", tmp_path / f"{name}{suffix}.zarr")
            for suffix in (".npy", ".bvecs.gz")
        ]
        assert [each["parts"] for each in made] == [1, 1]
        assert made[0]["fingerprint"] == made[1]["fingerprint"]


# Distinct digests

digests = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 12),
    st.sampled_from([bucket << 56 for bucket in range(256)]),
)


@given(
    blocks=st.lists(st.lists(digests, max_size=40), max_size=12),
    held=st.sampled_from([0, 1, 7, 50, 10_000]),
)
@steady(25)
def test_a_counter_counts_what_numpy_finds_distinct_however_little_it_holds(
    blocks: list[list[int]], held: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("distinct")
    with closing(DistinctCounter(folder, capacity=held)) as counter:
        for block in blocks:
            counter.add(np.array(block, np.uint64))
        assert counter.count() == len(
            np.unique(np.array([one for block in blocks for one in block], np.uint64))
        )
        assert counter.count() == 0
        counter.add(np.array([3, 3], np.uint64))
        assert counter.count() == 1
    assert list(folder.iterdir()) == []


def test_a_counter_does_not_keep_what_its_caller_goes_on_to_change(tmp_path: Path) -> None:
    with closing(DistinctCounter(tmp_path)) as counter:
        block = np.array([1, 2, 3], np.uint64)
        counter.add(block)
        block[:] = 9
        counter.add(block)
        assert counter.count() == 4


def test_a_counter_that_is_closed_early_leaves_nothing_behind(tmp_path: Path) -> None:
    counter = DistinctCounter(tmp_path, capacity=2)
    counter.add(np.arange(9, dtype=np.uint64) << np.uint64(57))
    counter.close()
    assert list(tmp_path.iterdir()) == []


def test_int8_stays_int8_and_its_negative_rows_are_counted(tmp_path: Path) -> None:
    rows = np.array([[1, -2], [0, 0], [3, 127], [-128, 5]], np.int8)
    made = make_vectors(tmp_path / "vectors", rows)
    spec = made.spec
    assert (made.dtype.name, spec.source_dtype, spec.negative_rows) == ("int8", "int8", 2)
    assert (spec.zero_rows, spec.value_min, spec.value_max) == (1, -128, 127)
    np.testing.assert_array_equal(made.read_part(0), rows, strict=True)

"""Rows come out of a vector store as they went in, by parts, by blocks and by number."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, NotFoundError
from mercore.stores.part_store.column import CHECKSUM_BYTES
from mercore.stores.rows import (
    SourceVectors,
    StoredRows,
    foreign_source,
    is_store,
    open_rows,
    open_vectors,
)
from mercore.stores.vector_views import VectorCache
from mercore.stores.vector_writer import CHUNK_BYTES, chunk_rows
from mercore.stores.vectors import Vectors, VectorStore, blocks, gather, open_vector_store
from mercore.testing.rows import steady
from mercore.testing.stores import Rows, histograms, make_vectors


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    return histograms(100, 4, seed=1)


@pytest.fixture(scope="module")
def vectors(rows: NDArray[Any], tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
    return make_vectors(tmp_path_factory.mktemp("stores") / "vectors", rows, part_rows=16)


def test_parts_hold_the_rows_in_order(vectors: Vectors, rows: NDArray[Any]) -> None:
    assert (vectors.rows, vectors.dims, vectors.dtype.name, vectors.parts) == (100, 4, "float32", 7)
    assert [vectors.bounds(part) for part in (0, 5, 6)] == [(0, 16), (80, 96), (96, 100)]
    read = np.concatenate([vectors.read_part(part) for part in range(7)])
    np.testing.assert_array_equal(read, rows, strict=True)


@given(start=st.integers(0, 99), length=st.integers(1, 100), block_rows=st.integers(1, 40))
@steady(60)
def test_blocks_cover_the_rows_and_cross_neither_parts_nor_multiples(
    vectors: VectorStore, rows: NDArray[Any], start: int, length: int, block_rows: int
) -> None:
    stop = min(100, start + length)
    at = start
    for row, block in blocks(vectors, start, stop, block_rows):
        assert row == at
        at += len(block)
        assert len(block) > 0
        np.testing.assert_array_equal(block, rows[row:at])
        assert row // 16 == (at - 1) // 16
        assert row // block_rows == (at - 1) // block_rows
    assert at == stop


@given(chosen=st.lists(st.integers(0, 99), max_size=30))
@steady(60)
def test_gather_takes_rows_in_any_order_and_more_than_once(
    vectors: VectorStore, rows: NDArray[Any], chosen: list[int]
) -> None:
    found = gather(vectors, np.array(chosen, np.int64))
    np.testing.assert_array_equal(found, rows[chosen], strict=True)


def test_the_fingerprint_names_the_rows_and_not_the_place(
    rows: NDArray[Any], tmp_path: Path
) -> None:
    made = [make_vectors(tmp_path / name, rows, part_rows=16) for name in ("one", "other")]
    assert (
        made[0].fingerprint
        == made[1].fingerprint
        == open_vector_store(tmp_path / "one").fingerprint
    )
    renamed = make_vectors(tmp_path / "renamed", rows, part_rows=16, name="renamed")
    assert (renamed.fingerprint, renamed.source, made[0].source) == (
        made[0].fingerprint,
        "renamed",
        "rows",
    )
    changed = rows.copy()
    changed[99, 3] = np.nextafter(changed[99, 3], np.float32(9))
    assert (
        make_vectors(tmp_path / "changed", changed, part_rows=16).fingerprint != made[0].fingerprint
    )


def test_a_foreign_source_is_read_in_parts_of_its_own() -> None:
    rows = histograms(70_000, 32, dtype="uint8")
    vectors = SourceVectors(Rows(rows, "foreign"))
    assert (vectors.part_rows, vectors.parts, vectors.fingerprint, vectors.where) == (
        131_072,
        1,
        "foreign",
        "foreign",
    )
    np.testing.assert_array_equal(vectors.read_part(0), rows, strict=True)
    assert vectors.dropped.size == 0


@given(dims=st.integers(1, 2_000_000), dtype=st.sampled_from(["uint8", "float16", "float32"]))
@steady(100)
def test_chunks_are_powers_of_two_rows_and_as_near_to_their_size_as_rows_allow(
    dims: int, dtype: str
) -> None:
    rows = chunk_rows(dims, np.dtype(dtype))
    row_bytes = dims * np.dtype(dtype).itemsize
    assert rows.bit_count() == 1
    assert rows * row_bytes <= CHUNK_BYTES or rows == 1
    assert 2 * rows * row_bytes > CHUNK_BYTES
    assert chunk_rows(dims, np.dtype(dtype), rows) == rows
    few = chunk_rows(dims, np.dtype(dtype), 10)
    assert few.bit_count() == 1
    assert min(rows, 10) <= few <= rows
    assert few * row_bytes <= max(64 << 10, 16 * row_bytes)


def test_a_store_of_few_rows_has_a_small_chunk(rows: NDArray[Any], tmp_path: Path) -> None:
    stored = make_vectors(tmp_path / "few", rows, part_rows=1 << 18)
    assert stored.part_rows == chunk_rows(4, rows.dtype, len(rows)) < 1 << 15
    chunk = tmp_path / "few" / "vectors" / "c" / "0" / "0"
    assert chunk.stat().st_size == stored.part_rows * 4 * rows.itemsize + CHECKSUM_BYTES


def test_the_first_parts_to_be_read_stay_in_memory_while_there_is_room(
    vectors: VectorStore, rows: NDArray[Any]
) -> None:
    with patch.object(
        VectorStore, "read_part", autospec=True, side_effect=VectorStore.read_part
    ) as reading:
        held = VectorCache(vectors, cache_bytes=2 * 16 * 4 * 4 + 1)  # two parts of sixteen rows
        for part in (3, 0, 6, 3, 0, 6, 3):
            np.testing.assert_array_equal(
                held.read_part(part), rows[slice(*held.bounds(part))], strict=True
            )
    assert [each.args[1] for each in reading.call_args_list] == [3, 0, 6, 6]
    assert (held.rows, held.dims, held.dtype, held.parts) == (100, 4, vectors.dtype, 7)


def test_a_store_of_queries_is_a_source_of_rows(
    vectors: VectorStore, rows: NDArray[Any], tmp_path: Path
) -> None:
    source = open_rows(vectors.where)
    assert isinstance(source, StoredRows)
    assert (source.name, source.shape, source.dtype.name) == (vectors.where, (100, 4), "float32")
    assert source.fingerprint() == vectors.fingerprint
    np.testing.assert_array_equal(source.read(9, 58), rows[9:58], strict=True)
    np.save(tmp_path / "rows.npy", rows)
    np.testing.assert_array_equal(
        open_rows(str(tmp_path / "rows.npy")).read(0, 100), rows, strict=True
    )


def test_a_path_that_is_no_vector_store_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "absent"
    with pytest.raises(NotFoundError) as absent:
        open_vectors(str(path))
    assert str(absent.value) == (
        f"{path} does not exist: expected a vector store. Fix: check the path, or mercore "
        f"ingest SOURCE {path}"
    )
    path.write_bytes(b"rows")
    assert not is_store(path)
    with pytest.raises(FormatError) as file:
        open_vectors(str(path))
    assert (
        str(file.value)
        == f"{path} is a file: expected a vector store. Fix: mercore ingest {path} STORE"
    )
    with pytest.raises(FormatError) as other:
        open_vector_store(path)
    assert str(other.value) == (
        f"{path} is not a store of mercore: expected a Zarr group with a 'mercore' attribute. "
        "Fix: ingest the vectors, or name the store that encode wrote."
    )


def test_rows_of_a_file_that_change_between_two_reads_are_refused(
    rows: NDArray[Any], tmp_path: Path
) -> None:
    path = str(tmp_path / "rows.npy")
    np.save(path, rows)
    source = open_rows(path)
    source.read(0, 100)
    np.lib.format.open_memmap(path, mode="r+")[70] += 1
    np.testing.assert_array_equal(source.read(3, 64), rows[3:64], strict=True)
    words = (
        r"rows \[64, 100\) have changed since they were first read: found blake3 [0-9a-f]{16}, "
        r"expected [0-9a-f]{16}. Fix: change no file while it is read, and run the same command "
        r"again\.$"
    )
    with pytest.raises(FormatError, match=f"^{path}: {words}"):
        source.read(60, 65)


def test_parts_of_an_array_that_change_are_refused_by_whoever_knows_their_digests() -> None:
    rows = histograms(40, 32)
    first = SourceVectors(Rows(rows.copy(), "foreign"))
    first.read_part(0)
    rows[39] += 1
    source = foreign_source(VectorCache(first, 0))
    assert source is first
    later = SourceVectors(Rows(rows, "foreign"), source.source.digests)
    with pytest.raises(FormatError, match=r"^foreign: rows \[0, 40\) have changed since they were"):
        later.read_part(0)

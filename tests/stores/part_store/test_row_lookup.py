"""Rows looked up by number: the right ones, from the blocks that hold them, each of them checked."""

import base64
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, IntegrityError
from mercore.stores.location.local import LocalLocation
from mercore.stores.part_store.add_blocks import add_blocks
from mercore.stores.part_store.blocks import BLOCK_BYTES, table_text, text_bytes
from mercore.stores.part_store.column import CHECKSUM_BYTES, Column
from mercore.stores.part_store.group_metadata import columns_metadata, root_metadata
from mercore.stores.part_store.header import Header, Layout, open_header
from mercore.stores.part_store.part_files import Reads
from mercore.stores.part_store.part_store import PartStore, create
from mercore.stores.part_store.receipts import receipt_bytes, stated
from mercore.stores.part_store.row_lookup import read_ranges
from mercore.stores.vector_views import VectorCache
from mercore.stores.vectors import Vectors, VectorStore, open_vector_store
from mercore.testing.cases import loop_over
from mercore.testing.stores import make_vectors

ROWS = 20_000
RNG = np.random.default_rng(38)


def random_rows(dims: int, dtype: str, rows: int = ROWS) -> NDArray[Any]:
    values = RNG.integers(0, 255, (rows, dims)).astype(dtype)
    values[:, 0] += 1  # no row is all zero
    return values


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lookup")


@pytest.fixture(scope="module")
def stored(folder: Path) -> tuple[NDArray[Any], VectorStore]:
    """A store of several parts of 4 MiB, of 51 rows per block: the last block of each is shorter."""
    rows = random_rows(80, "float32", 60_000)
    return rows, make_vectors(folder / "stored", rows, part_rows=8192)


@contextmanager
def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the bytes that are read in blocks and in whole files."""
    counts = [0, 0]
    ranges, whole = LocalLocation.read_ranges, LocalLocation.read_into

    def read_ranges(self: LocalLocation, asked: Any, buffer: Any, *, wait: bool) -> int:
        count = ranges(self, asked, buffer, wait=wait)
        counts[0] += count
        return count

    def read_into(self: LocalLocation, buffer: Any) -> int:
        counts[1] += len(buffer)
        return whole(self, buffer)

    with monkeypatch.context() as patch:
        patch.setattr(LocalLocation, "read_ranges", read_ranges)
        patch.setattr(LocalLocation, "read_into", read_into)
        yield counts


def looked_up(vectors: Vectors, rows: NDArray[np.int64]) -> NDArray[Any]:
    lookup = vectors.look_up(rows)
    found = [lookup.read(step) for step in lookup.steps]
    assert sum(map(len, found)) == len(rows)
    return np.concatenate([np.empty((0, vectors.dims), vectors.dtype), *found])


@loop_over(
    ("dims", "dtype", "part_rows", "compressor"),
    [
        (1, "uint8", 16384, "none"),
        (3, "float32", 8192, "none"),
        (128, "uint8", 4096, "none"),
        (200, "float16", 1024, "none"),
        (5000, "float32", 64, "none"),  # a row is longer than a block
        (128, "uint8", 4096, "zstd"),
        (8, "uint8", 16, "none"),  # a part is shorter than a block
    ],
)
@pytest.mark.promise("A row that is looked up is the one that was written, or is refused")
def test_rows_are_the_ones_that_were_written(
    dims: int, dtype: str, part_rows: int, compressor: str, tmp_path: Path
) -> None:
    rows = random_rows(dims, dtype, 5 * part_rows // 2)
    vectors = make_vectors(tmp_path / "v", rows, part_rows=part_rows, compressor=compressor)
    for count in (0, 1, 2, 40, 2000):
        chosen = np.sort(RNG.integers(0, len(rows), count))  # with repeats
        np.testing.assert_array_equal(looked_up(vectors, chosen), rows[chosen], strict=True)
    ends = np.array([0, 1, part_rows - 1, part_rows, len(rows) - 1])
    np.testing.assert_array_equal(looked_up(vectors, ends), rows[ends])


@loop_over("dims", [3, None])
@loop_over("compressor", ["none", "zstd"])
def test_ranges_are_the_rows_that_were_written(
    dims: int | None, compressor: str, tmp_path: Path
) -> None:
    """Parts of 100 rows, in blocks of 7. A part that is missing is refused if it is read."""
    column = {"name": "x", "dtype": "float32", "width": dims}
    columns = [{**column, "compressor": compressor}]
    layout = Layout(rows=950, part_rows=100, columns=columns, model={})
    block_bytes = 7 * 4 * (dims or 1)
    path = tmp_path / f"{dims}-{compressor}"
    header = Header(kind="codes", spec={}, layout=layout, block_bytes=block_bytes)
    store = create(path, header, {})
    rows = RNG.random((950, dims) if dims else 950, np.float32)
    receipts = [
        store.write_part(part, {"x": rows[slice(*store.bounds(part))]}) for part in range(10)
    ]
    for count in (2, 3, 9, 80):
        for _ in range(20):
            touching = [*pairwise(np.sort(RNG.choice(951, count, replace=False)).tolist())]
            for ranges in (touching, touching[::2]):
                found = read_ranges(store, receipts, "x", ranges)
                expected = np.concatenate([rows[start:stop] for start, stop in ranges])
                np.testing.assert_array_equal(found, expected, strict=True)
    store.reads = Reads()
    read_ranges(store, receipts, "x", [(101, 103), (105, 106), (113, 115)])
    if compressor == "none":
        assert (store.reads.bytes, store.reads.blocks) == (3 * block_bytes, 3)
    store.chunk_file(store.columns["x"], 1).remove()
    np.testing.assert_array_equal(read_ranges(store, receipts, "x", [(0, 100)]), rows[:100])
    with pytest.raises(IntegrityError, match="part 1: column x is missing"):
        read_ranges(store, receipts, "x", [(99, 101)])


def test_few_rows_read_few_blocks_and_many_read_whole_parts(
    stored: tuple[NDArray[Any], VectorStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, vectors = stored
    assert vectors.parts > 3
    chosen = np.array([5, 6, 700, 8000, 50_000])  # 5 and 6 share a block
    looked_up(vectors, chosen)  # reads the receipts
    with counted_reads(monkeypatch) as read:
        looked_up(vectors, chosen)
        assert read == [4 * 51 * 320, 0]
    with counted_reads(monkeypatch) as read:
        every = np.arange(0, 7 * 8192, 40)
        np.testing.assert_array_equal(looked_up(vectors, every), rows[every])
        assert read[0] == 0
        assert read[1] >= 7 * 8192 * 320


def test_parts_that_a_cache_holds_are_not_read_again(
    stored: tuple[NDArray[Any], VectorStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, vectors = stored
    cache = VectorCache(vectors, 1 << 30)
    cache.read_part(0)
    chosen = np.array([3, vectors.part_rows + 3])
    with counted_reads(monkeypatch) as read:
        np.testing.assert_array_equal(looked_up(cache, chosen), rows[chosen])
        assert read == [51 * 320, 0]


# What is wrong


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def swap_blocks(data: bytes) -> bytes:
    size = 51 * 320
    return data[size : 2 * size] + data[:size] + data[2 * size :]


@loop_over(
    ("change", "wrong", "right"),
    [
        (flip(100 * 320), 60, 5000),
        (swap_blocks, 60, 5000),
        (lambda data: data[: 20 * 51 * 320], 20 * 51, 3),
    ],
)
@pytest.mark.promise("A row that is looked up is the one that was written, or is refused")
def test_a_wrong_block_is_refused_if_it_is_read_and_only_then(
    change: Callable[[bytes], bytes],
    wrong: int,
    right: int,
    stored: tuple[NDArray[Any], VectorStore],
    tmp_path: Path,
) -> None:
    rows, vectors = stored
    first = vectors.part_rows
    shutil.copytree(vectors.where, tmp_path / "store")
    path = tmp_path / "store/vectors/c/1/0"
    path.write_bytes(change(path.read_bytes()))
    store = open_vector_store(tmp_path / "store")
    with pytest.raises(IntegrityError, match=rf"^{store.where}: part 1: column vectors has "):
        looked_up(store, np.array([2, first + wrong]))
    chosen = np.array([2, first + right])
    np.testing.assert_array_equal(looked_up(store, chosen), rows[chosen])
    (fault,) = store.store.check()
    assert "part 1: column vectors has " in fault


@loop_over("kind", ["truncated", "of another chunk", "no numbers"])
@pytest.mark.promise("A row that is looked up is the one that was written, or is refused")
def test_a_table_that_is_not_that_of_its_chunk_is_refused(
    kind: str, stored: tuple[NDArray[Any], VectorStore], tmp_path: Path
) -> None:
    _, vectors = stored
    shutil.copytree(vectors.where, tmp_path / "store")
    copy = open_vector_store(tmp_path / "store").store
    receipt, other = vectors.store.done_receipt(0), vectors.store.done_receipt(1)
    entry = receipt.chunks["vectors"]
    table = base64.b64decode(entry["blocks"])
    texts = {
        "truncated": base64.b64encode(table[:-4]).decode(),
        "of another chunk": other.chunks["vectors"]["blocks"],
        "no numbers": "%%",
    }
    chunks = {"vectors": {**entry, "blocks": texts[kind]}}
    data = receipt_bytes(replace(receipt, chunks=chunks), copy.receipts_column)
    Path(str(copy.receipt_file(0))).write_bytes(data)
    with pytest.raises(FormatError, match="column vectors has checksums of blocks that are"):
        copy.receipt(0)


def test_a_table_holds_the_checksum_of_all_bytes_up_to_the_end_of_each_block(
    stored: tuple[NDArray[Any], VectorStore],
) -> None:
    _, vectors = stored
    for part in (0, vectors.parts - 1):  # the last is ragged, and padded with zeros
        receipt = vectors.store.done_receipt(part)
        chunk = Path(vectors.where, f"vectors/c/{part}/0").read_bytes()[:-CHECKSUM_BYTES]
        table = receipt.table(vectors.store.columns["vectors"])
        assert table is not None
        ends = [*range(51 * 320, len(chunk), 51 * 320), len(chunk)]
        assert table.tolist() == [google_crc32c.value(chunk[:end]) for end in ends]
        assert f"{table[-1]:08x}" == receipt.chunks["vectors"]["crc32c"]


def test_the_bytes_of_a_table_are_known_without_making_it() -> None:
    for rows in range(1, 40):
        column = Column(name="c", dtype="uint8", width=4, rows=rows, part_rows=rows, block_bytes=4)
        assert column.blocks == rows
        assert text_bytes(column) == len(table_text(np.zeros(rows, np.uint32)))
    hostile = Column(
        name="c", dtype="uint8", width=1, rows=1 << 48, part_rows=1 << 48, block_bytes=1024
    )
    assert text_bytes(hostile) > 1 << 40  # no memory could hold it


# Stores of earlier versions


def test_receipts_that_were_not_read_are_asked_for_at_once(
    stored: tuple[NDArray[Any], VectorStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, vectors = stored
    opened = open_vector_store(vectors.where)
    asked: list[Path] = []
    monkeypatch.setattr("mercore.stores.vectors.read_soon", asked.extend)
    chosen = np.array([3, 9, 20_000, 59_999])
    np.testing.assert_array_equal(looked_up(opened, chosen), rows[chosen])
    parts = sorted({int(part) for part in opened.parts_of(chosen)})
    files = [Path(vectors.where) / opened.store.receipt_key(part) for part in parts]
    assert [path for path in asked if "receipts" in path.parts] == files
    asked.clear()
    looked_up(opened, chosen)
    assert asked == []


def without_blocks(stored: VectorStore, target: Path) -> VectorStore:
    """Return a copy of a store as an earlier version wrote it."""
    shutil.copytree(stored.where, target)
    old = PartStore(target, replace(open_header(target), block_bytes=0, text=None))
    for part in range(old.layout.parts):
        receipt = stored.store.done_receipt(part)
        chunks = {"vectors": stated(receipt.chunks["vectors"])}
        old.publish_receipt(replace(receipt, chunks=chunks))
    for key, data in columns_metadata(old.header):
        (target / key).write_bytes(data)
    (target / "zarr.json").write_bytes(root_metadata(old.header))
    return open_vector_store(target)


@pytest.mark.promise("Stores of earlier versions get checksums of blocks in place")
def test_blocks_are_added_to_a_store_of_an_earlier_version(
    stored: tuple[NDArray[Any], VectorStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, vectors = stored
    old = without_blocks(vectors, tmp_path / "old")
    written = json.loads((tmp_path / "old/zarr.json").read_text())["attributes"]["mercore"]
    assert "block_bytes" not in written
    assert old.fingerprint == vectors.fingerprint
    assert old.store.check() == []
    chosen = np.array([7, 20_000])
    with counted_reads(monkeypatch) as read:
        np.testing.assert_array_equal(looked_up(old, chosen), rows[chosen])
        assert read[0] == 0
    chunks = {path: path.stat().st_mtime_ns for path in (tmp_path / "old/vectors").rglob("*")}

    with pytest.raises(KeyboardInterrupt):  # killed in the middle
        add_blocks(old.store, interrupt_at(2))
    again = open_vector_store(tmp_path / "old")
    assert again.store.header.block_bytes == 0
    np.testing.assert_array_equal(looked_up(again, chosen), rows[chosen])
    assert again.store.check() == []

    assert add_blocks(again.store, lambda parts: None) == []
    new = open_vector_store(tmp_path / "old")
    assert new.store.header.block_bytes == BLOCK_BYTES
    assert new.fingerprint == vectors.fingerprint
    assert new.store.receipts() == vectors.store.receipts()
    assert {path: path.stat().st_mtime_ns for path in chunks} == chunks
    with counted_reads(monkeypatch) as read:
        np.testing.assert_array_equal(looked_up(new, chosen), rows[chosen])
        assert read[0] == 2 * 51 * 320
    for path in (tmp_path / "old").rglob("*"):
        if path.is_file():
            assert (
                path.read_bytes()
                == Path(vectors.where, path.relative_to(tmp_path / "old")).read_bytes()
            )


def interrupt_at(parts: int) -> Callable[[int], None]:
    calls = iter(range(parts))

    def advance(count: int) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    return advance


def test_a_damaged_store_gets_no_blocks(
    stored: tuple[NDArray[Any], VectorStore], tmp_path: Path
) -> None:
    old = without_blocks(stored[1], tmp_path / "old")
    path = tmp_path / "old/vectors/c/1/0"
    path.write_bytes(flip(5)(path.read_bytes()))
    (fault,) = add_blocks(old.store, lambda parts: None)
    assert "part 1: column vectors has " in fault
    assert open_header(tmp_path / "old").block_bytes == 0

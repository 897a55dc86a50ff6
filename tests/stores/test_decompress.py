"""A chunk of any compressor takes the memory that it may hold, whatever it expands to."""

import gzip
import re
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zarr
from google_crc32c import value as crc32c
from numcodecs.registry import get_codec

from mercore.stores.decompress import NAMES, decompress
from mercore.stores.errors import FormatError, IntegrityError, MercoreError
from mercore.stores.formats import open_source
from mercore.stores.formats.npz import read_npz
from mercore.stores.part_store.header import Header, Layout, column_fields, open_header
from mercore.stores.part_store.part_store import PartStore, create
from mercore.stores.part_store.receipts import chunk_entry
from mercore.testing.cases import in_case, loop_over

ROWS = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
CHUNK = ROWS.nbytes  # 64 kB
FOREIGN = 2 * CHUNK + 1024  # what a chunk of another tool may take between two codecs
SMALL, LARGE = 1 << 20, 64 << 20
COLUMN_FIX = "Fix: run the same mercore encode again: it redoes what is wrong, and only that."
ZARR_FIX = "Fix: copy the store anew."
V3 = {name: name for name in ("zstd", "gzip", "blosc")}  # of the others Zarr warns
OURS = [name for name in NAMES if name != "zlib"]
RAW_LZMA: dict[str, Any] = {"id": "lzma", "format": 3, "filters": [{"id": 33, "preset": 1}]}


def bomb(name: str, size: int) -> bytes:
    """A few bytes that expand to ``size``; those of lz4 only say so, since it packs 1 : 255."""
    if name == "lz4":
        return struct.pack("<I", size) + bytes(get_codec({"id": name}).encode(b"few"))[4:]
    options = {"cname": "zstd"} if name == "blosc" else {}
    return bytes(get_codec({"id": name, **options}).encode(bytes(size)))


def unsized(data: bytes) -> bytes:
    """A frame of zstd that does not state its size."""
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return bytes(out.getvalue())


# Places: each writes a chunk with other bytes, and returns the path


def store_with(folder: Path, name: str, data: bytes) -> Path:
    """A store of one part, whose receipt vouches for the chunk."""
    chunk = data + struct.pack("<I", crc32c(data))
    columns = [column_fields("c", "float32", 128, name)]
    header = Header(
        kind="codes", spec={}, layout=Layout(rows=128, part_rows=128, columns=columns, model={})
    )
    store = PartStore(folder / f"{name}.store", header)
    create(folder / f"{name}.store", header, {})
    store.chunk_file(header.layout.column("c"), 0).publish(chunk)
    store.publish_receipt(store.new_receipt(0, {"c": chunk_entry(store.columns["c"], chunk)}))
    return folder / f"{name}.store"


def zarr_v2_with(folder: Path, name: str, data: bytes, *, filters: bool = False) -> Path:
    path = folder / f"{name}.{'filter' if filters else 'v2'}"
    options: Any = {"filters": [], "compressors": None}
    options["filters" if filters else "compressors"] = [get_codec({"id": name})]
    shape = ROWS.shape
    zarr.create_array(str(path), shape=shape, chunks=shape, dtype="f4", zarr_format=2, **options)
    (path / "0.0").write_bytes(data)
    return path


def zarr_v2_filter_with(folder: Path, name: str, data: bytes) -> Path:
    return zarr_v2_with(folder, name, data, filters=True)


def zarr_v3_with(folder: Path, name: str, data: bytes, *, shards: bool = False) -> Path:
    path = folder / f"{name}.{'shards' if shards else 'v3'}"
    codec: Any = {"name": V3.get(name, f"numcodecs.{name}"), "configuration": {}}
    with warnings.catch_warnings(action="ignore"):
        zarr.create_array(
            str(path),
            shape=ROWS.shape,
            chunks=ROWS.shape,
            shards=ROWS.shape if shards else None,
            dtype="f4",
            compressors=codec,
        )
    if shards:
        index = struct.pack("<QQ", 0, len(data))
        data += index + struct.pack("<I", crc32c(index))
    (path / "c" / "0").mkdir(parents=True)
    (path / "c" / "0" / "0").write_bytes(data)
    return path


def zarr_shards_with(folder: Path, name: str, data: bytes) -> Path:
    return zarr_v3_with(folder, name, data, shards=True)


PLACES: dict[Callable[[Path, str, bytes], Path], list[str]] = {
    store_with: OURS,
    zarr_v2_with: list(NAMES),
    zarr_v2_filter_with: ["zstd"],
    zarr_v3_with: list(NAMES),
    zarr_shards_with: list(V3),
}
CASES = [(place, name) for place, names in PLACES.items() for name in names]


def read(path: Path) -> Any:
    """Read the rows at a path."""
    if path.suffix == ".store":
        store = PartStore(path, open_header(path))
        return store.read_chunk(store.receipts()[0], "c")
    with warnings.catch_warnings(action="ignore"):  # of codecs that other libraries may lack
        return open_source(str(path), ingesting=path.suffix == ".gz").read(0, 128)


def told_of(path: Path, what: str) -> tuple[type[MercoreError], str]:
    """The error of a chunk at a path, and its message."""
    if path.suffix == ".store":
        return (IntegrityError, f"{path}: part 0: column c cannot be decoded: {what}. {COLUMN_FIX}")
    return FormatError, f"{path}: rows [0, 128) cannot be decoded ({what}). {ZARR_FIX}"


@loop_over(("place", "name"), CASES)
@pytest.mark.promise("A few compressed bytes take no more memory than their chunk may")
def test_a_chunk_that_expands_beyond_what_it_may_hold_is_refused(
    place: Callable[[Path, str, bytes], Path], name: str, tmp_path: Path
) -> None:
    data = bomb(name, SMALL)
    path = place(tmp_path, name, data)
    limit = CHUNK if place is store_with else FOREIGN
    if place is zarr_v2_filter_with:
        limit = 2 * 8 * ROWS.size + 1024
    error, message = told_of(
        path, f"{len(data)} bytes of {name} expand to more than {limit} bytes, the most expected"
    )
    with pytest.raises(error) as raised:
        read(path)
    assert str(raised.value) == message


@loop_over(("place", "name"), CASES)
def test_a_chunk_of_another_size_or_of_no_compressor_is_refused(
    place: Callable[[Path, str, bytes], Path], name: str, tmp_path: Path
) -> None:
    for data, what in [
        (b"\xff" + bytes(35), f"the {name} data are damaged: .+"),
        (bomb(name, 400), ".+"),
    ]:
        folder = tmp_path / str(len(data))
        folder.mkdir()
        error, message = told_of(place(folder, name, data), "…")
        with pytest.raises(error) as raised:
            read(next(folder.iterdir()))
        assert re.fullmatch(re.escape(message).replace("…", what), str(raised.value))


@loop_over(("place", "name"), CASES)
def test_a_chunk_of_its_size_is_read(
    place: Callable[[Path, str, bytes], Path], name: str, tmp_path: Path
) -> None:
    data = bytes(get_codec({"id": name}).encode(ROWS))
    np.testing.assert_array_equal(read(place(tmp_path, name, data)), ROWS, strict=True)


ODD = {"zstd": unsized(ROWS.tobytes()), "lzma": bytes(get_codec(RAW_LZMA).encode(ROWS))}


@loop_over(("name", "filters"), [("zstd", None), ("lzma", RAW_LZMA["filters"])])
def test_zstd_that_states_no_size_and_lzma_without_a_header(
    name: str, filters: list[Any] | None
) -> None:
    assert decompress(name, ODD[name], CHUNK, filters=filters) == ROWS.tobytes()
    with pytest.raises(ValueError, match=f"of {name} expand to more than {CHUNK - 1} bytes"):
        decompress(name, ODD[name], CHUNK - 1, filters=filters)


@loop_over("name", ["zstd", "gzip", "bz2", "lzma"])
def test_a_bomb_behind_a_small_piece_is_refused(name: str) -> None:
    small = bytes(get_codec({"id": name}).encode(b"few"))
    assert decompress(name, small + small, 6) == b"fewfew"
    with pytest.raises(ValueError, match=f"of {name} expand to more than {CHUNK} bytes"):
        decompress(name, small + bomb(name, SMALL), CHUNK)


@loop_over("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_npz_of_another_compression_than_deflate_is_refused(method: int, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("rows.npy", npy_of(ROWS))
    for call in (read_npz, open_source):
        with pytest.raises(FormatError) as raised:
            call(str(path))
        assert str(raised.value) == (
            f"{path}::rows: compressed by method {method} of zip, expected 8, deflate. Fix: save it "
            "again with numpy.savez_compressed."
        )


# Memory


def npy_of(rows: Any) -> bytes:
    file = BytesIO()
    np.save(file, rows)
    return file.getvalue()


def npz_with(folder: Path, size: int) -> Path:
    """A member that holds more than its zip states."""
    path = folder / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.npy", npy_of(ROWS) + bytes(size))
    stated, true = (struct.pack("<I", len(npy_of(ROWS)) + more) for more in (0, size))
    path.write_bytes(path.read_bytes().replace(true, stated))
    return path


def gz_with(folder: Path, size: int) -> Path:
    path = folder / "a.npy.gz"
    path.write_bytes(gzip.compress(npy_of(ROWS) + bytes(size)))
    return path


def read_refused(folder: Path) -> None:
    """Read every file of a folder; each must be refused."""
    for path in folder.iterdir():
        for call in (read, lambda path: read_npz(str(path)))[: 1 + (path.suffix == ".npz")]:
            with in_case(path=path), pytest.raises((FormatError, IntegrityError)):
                call(path)


def peak_memory() -> int:
    """The most bytes that this process has had resident."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


CHILD = """
import sys
from pathlib import Path
from tests.stores.test_decompress import peak_memory, read_refused
read_refused(Path(sys.argv[1]))
before = peak_memory()
read_refused(Path(sys.argv[2]))
print(peak_memory() - before)
"""


@pytest.mark.slow
@pytest.mark.promise("A few compressed bytes take no more memory than their chunk may")
def test_bombs_take_no_memory(tmp_path: Path) -> None:
    folders = {tmp_path / "small": SMALL, tmp_path / "large": LARGE}
    for folder, size in folders.items():
        folder.mkdir()
        for place, name in CASES:
            place(folder, name, bomb(name, size))
        npz_with(folder, size)
        gz_with(folder, size)
    words = [sys.executable, "-c", CHILD, *map(str, folders)]
    grown = int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    assert grown < LARGE // 4

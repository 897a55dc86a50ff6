"""A column is a Zarr array like any other: its files have the bytes that Zarr writes, under every
compressor."""

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import zarr
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from zarr.abc.buffer import Buffer
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec, numcodecs
from zarr.storage import MemoryStore

from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.errors import InputError
from mercore.stores.part_store.column import (
    Column,
    column_metadata,
    decode_chunk,
    encode_chunk,
    payload_checksum,
    same_metadata,
)
from mercore.stores.part_store.compressors import NAMES, check_compressor, codec_metadata
from mercore.testing.cases import in_case
from mercore.testing.rows import steady
from mercore.testing.stores import histograms, make_codes, make_vectors

LEVELS = {
    "none": [],
    "lz4": [],
    "zstd": [-7, 1, 22],
    "blosc": [0, 9],
    "gzip": [0, 9],
    "bz2": [1, 9],
    "lzma": [0, 9],
}
COMPRESSORS = [*NAMES, *(f"{name}:{level}" for name, levels in LEVELS.items() for level in levels)]
DTYPES = ["bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))]
DTYPES += ["float16", "float32", "float64"]
WRITTEN = [("uint8", None), ("float32", 3)]  # of these the chunks are compared as well
EVERYBODY_READS = ("none", "zstd", "blosc", "gzip")  # zarr's own codecs: of the others it warns
every_compressor = pytest.mark.parametrize("compressor", COMPRESSORS)


@st.composite
def columns(draw: st.DrawFn) -> tuple[Column, int, NDArray[Any]]:
    """A column, one of its parts, and the values of that part, zeros alone among them."""
    rows, part_rows = draw(st.integers(1, 40)), draw(st.integers(1, 20))
    width = draw(st.none() | st.integers(1, 5))
    dtype = draw(st.sampled_from(["uint8", "int8", "uint16", "float16", "float32", "int64"]))
    column = Column(name="c", dtype=dtype, width=width, rows=rows, part_rows=part_rows)
    part = draw(st.integers(0, (rows - 1) // part_rows))
    count = min(part_rows, rows - part * part_rows)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(0, draw(st.sampled_from([1, 5, 100])), (count, *column.shape[1:]))
    return column, part, values.astype(dtype)


@given(case=columns(), compressor=st.sampled_from(COMPRESSORS))
@steady(120)
def test_a_chunk_decodes_to_what_was_encoded(
    case: tuple[Column, int, NDArray[Any]], compressor: str
) -> None:
    plain, part, values = case
    column = Column(**{**vars(plain), "compressor": compressor})
    data = encode_chunk(column, values)
    np.testing.assert_array_equal(decode_chunk(column, part, data), values, strict=True)
    assert payload_checksum(data) == crc32c(data[:-4])
    assert int.from_bytes(data[-4:], "little") == crc32c(data[:-4])
    assert encode_chunk(column, values) == data


@given(case=columns())
@steady(60)
def test_a_plain_chunk_is_the_bytes_of_its_rows_zeros_up_to_a_whole_part_and_a_checksum(
    case: tuple[Column, int, NDArray[Any]],
) -> None:
    column, _, values = case
    data = encode_chunk(column, values)
    assert column.is_plain
    assert len(data) == column.chunk_bytes + 4
    assert data[:-4] == values.tobytes().ljust(column.chunk_bytes, b"\0")


def test_a_checksum_tells_any_byte_that_changed_and_what_is_too_short_for_one() -> None:
    column = Column(name="c", dtype="uint16", width=3, rows=4, part_rows=4)
    data = encode_chunk(column, np.arange(12, dtype=np.uint16).reshape(4, 3))
    assert payload_checksum(np.frombuffer(data, np.uint8)) == payload_checksum(data) is not None
    for at in range(len(data)):
        assert payload_checksum(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]) is None
    assert [payload_checksum(data[:size]) for size in range(4)] == [None] * 4
    writable = np.frombuffer(data, np.uint8).copy()
    payload_checksum(writable)
    assert writable.flags.writeable


def test_keys_are_those_of_zarr() -> None:
    column = Column(name="atoms", dtype="uint16", width=8, rows=9, part_rows=4)
    assert column.chunk_key(2) == "atoms/c/2/0"
    assert (
        Column(name="residual", dtype="float16", width=None, rows=9, part_rows=4).chunk_key(0)
        == "residual/c/0"
    )


@every_compressor
def test_the_same_values_are_the_same_bytes_at_any_time(compressor: str) -> None:
    column = Column(name="c", dtype="uint16", width=3, rows=40, part_rows=40, compressor=compressor)
    values = np.arange(120, dtype=np.uint16).reshape(40, 3)
    chunks = set()
    for now in (0.0, 1e9, 1.7e9):
        with patch("time.time", return_value=now):
            chunks.add(encode_chunk(column, values))
    assert len(chunks) == 1
    np.testing.assert_array_equal(decode_chunk(column, 0, chunks.pop()), values, strict=True)


# Zarr itself


def zarr_codecs(compressor: str) -> list[Any]:
    """The codecs of Zarr that a column of a compressor has."""
    name, _, level = compressor.partition(":")
    given: dict[str, Any] = {"preset" if name == "lzma" else "level": int(level)} if level else {}
    make: dict[str, Callable[[], Any]] = {
        "zstd": lambda: ZstdCodec(level=int(level or 3)),
        "blosc": lambda: BloscCodec(cname="zstd", clevel=int(level or 5), shuffle="shuffle"),
        "gzip": lambda: GzipCodec(level=int(level or 5)),
        "lz4": numcodecs.LZ4,
        "bz2": lambda: numcodecs.BZ2(**given),
        "lzma": lambda: numcodecs.LZMA(**given),
    }
    return [*([] if name == "none" else [make[name]()]), Crc32cCodec()]


@every_compressor
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")
@pytest.mark.promise("Any Zarr library reads the stores")
def test_metadata_and_chunks_have_the_bytes_that_zarr_writes(compressor: str) -> None:
    for dtype, width in product(DTYPES, (None, 3)):
        column = Column(
            name="c", dtype=dtype, width=width, rows=7, part_rows=4, compressor=compressor
        )
        files: dict[str, Buffer] = {}
        array = zarr.create_array(
            MemoryStore(files),
            shape=column.shape,
            chunks=column.chunk_shape,
            dtype=dtype,
            compressors=zarr_codecs(compressor),
            filters=None,
            fill_value=0,
            config={"write_empty_chunks": True},  # else a part of zeros would be no file
        )
        with in_case(dtype=dtype, width=width):
            assert column_metadata(column) == files["zarr.json"].to_bytes()
        if (dtype, width) not in WRITTEN:
            continue
        values = np.arange(np.prod(column.shape)).reshape(column.shape).astype(dtype)
        values[:4] = 0
        array[:] = values
        for part in (0, 1):
            ours = encode_chunk(column, values[4 * part : 4 * part + 4])
            theirs = files[column.chunk_key(part).removeprefix("c/")].to_bytes()
            if compressor.startswith("gzip"):  # Zarr states the time of writing
                theirs = theirs[:4] + bytes(4) + theirs[8:-4] + ours[-4:]
            assert ours == theirs


@pytest.mark.parametrize("compressor", EVERYBODY_READS)
@pytest.mark.promise("Any Zarr library reads the stores")
def test_a_store_is_a_zarr_group_that_opens_without_a_warning(
    compressor: str, tmp_path: Path
) -> None:
    rows = histograms(50, 6)
    rows[7] = 0
    vectors = make_vectors(tmp_path / "vectors", rows, drop_zero_rows=True, compressor=compressor)
    spec = AskaSpec(n_atoms=9, n_nonzero_coefs=3)
    codes = make_codes(
        tmp_path / "codes", vectors, make_kernel("chi2"), spec, part_rows=20, compressor=compressor
    )
    group: Any = zarr.open_group(tmp_path / "vectors", mode="r")
    np.testing.assert_array_equal(group["vectors"][:], rows[rows.any(axis=1)], strict=True)
    group = zarr.open_group(tmp_path / "codes", mode="r")
    for name in ("atoms", "weights", "scale", "residual"):
        ours = np.concatenate([codes.store.read_chunk(receipt, name) for receipt in codes.receipts])
        np.testing.assert_array_equal(group[name][:], ours, strict=True)
    for name, values in codes.model.items():
        np.testing.assert_array_equal(group[f"model/{name}"][:], values, strict=True)
    assert group["receipts"][0].tobytes().startswith(b'{"chunks":{"atoms":{"b')
    tree = str(group.tree())
    for name in (
        "atoms",
        "dictionary",
        "dictionary_rows",
        "dropped",
        "model",
        "receipts",
        "residual",
        "scale",
    ):
        assert name in tree
    assert group.attrs["mercore"]["kind"] == "codes"


@every_compressor
def test_metadata_says_the_same_in_other_words(compressor: str) -> None:
    column = Column(name="c", dtype="int8", width=2, rows=9, part_rows=4, compressor=compressor)
    text = column_metadata(column)
    assert same_metadata(text, text)
    assert same_metadata(text.replace(b"\n", b" ").replace(b"  ", b""), text)
    for other in (
        column_metadata(Column(**{**vars(column), "rows": 10})),
        column_metadata(Column(**{**vars(column), "dtype": "uint8"})),
        column_metadata(Column(**{**vars(column), "compressor": "gzip:3"})),
        text[:-9],
        b"",
        b"[]",
    ):
        assert not same_metadata(other, text)


# Compressors


@pytest.mark.parametrize("name", ["zstd", "gzip", "bz2", "lzma"])
def test_a_level_is_taken_at_its_word(name: str) -> None:
    column: dict[str, Any] = {
        "name": "c",
        "dtype": "uint8",
        "width": None,
        "rows": 20_000,
        "part_rows": 20_000,
    }
    values = np.random.default_rng(0).integers(0, 4, 20_000).cumsum().astype(np.uint8)
    ends = [
        len(encode_chunk(Column(**column, compressor=f"{name}:{level}"), values))
        for level in LEVELS[name]
    ]
    assert ends[-1] < ends[0] or name == "bz2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "snappy",
            "unknown compressor: found 'snappy', expected one of none, zstd, blosc, gzip, lz4, "
            "bz2, lzma. "
            'Fix: compressor="zstd"',
        ),
        (
            "",
            "unknown compressor: found '', expected one of none, zstd, blosc, gzip, lz4, bz2, "
            "lzma. "
            'Fix: compressor="zstd"',
        ),
        (
            "zstd:23",
            "compressor zstd takes a level from -7 to 22: found '23'. Fix: compressor=\"zstd\"",
        ),
        (
            "zstd:--3",
            "compressor zstd takes a level from -7 to 22: found '--3'. Fix: compressor=\"zstd\"",
        ),
        (
            "zstd:",
            "compressor zstd takes a level from -7 to 22: found ''. Fix: compressor=\"zstd\"",
        ),
        (
            "gzip:fast",
            "compressor gzip takes a level from 0 to 9: found 'fast'. Fix: compressor=\"gzip\"",
        ),
        ("bz2:0", "compressor bz2 takes a level from 1 to 9: found '0'. Fix: compressor=\"bz2\""),
        (
            "lzma:1:2",
            "compressor lzma takes a level from 0 to 9: found '1:2'. Fix: compressor=\"lzma\"",
        ),
        ("none:0", "compressor none takes no level: found '0'. Fix: compressor=\"none\""),
        ("lz4:1", "compressor lz4 takes no level: found '1'. Fix: compressor=\"lz4\""),
    ],
)
def test_what_is_no_compressor_is_refused(text: str, message: str) -> None:
    for call in (check_compressor, lambda text: codec_metadata(text, 1)):
        with pytest.raises(InputError) as refusal:
            call(text)
        assert str(refusal.value) == message


def test_threads_that_compare_metadata_at_once_leave_the_warnings_of_the_process() -> None:
    column = Column(name="c", dtype="int8", width=None, rows=9, part_rows=9, compressor="lz4")
    text, before = column_metadata(column), list(warnings.filters)
    with ThreadPoolExecutor(6) as pool:
        same = list(pool.map(lambda _: same_metadata(text + b" ", text), range(60)))
    assert all(same)
    assert list(warnings.filters) == before

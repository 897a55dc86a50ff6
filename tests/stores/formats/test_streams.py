"""Gzip files and stdin are read forward once, and say so when they cannot."""

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.stores.errors import FormatError, InputError
from mercore.stores.formats import Source, open_source
from mercore.stores.formats.streams import row_blocks
from mercore.testing.rows import steady
from tests.stores.formats.test_formats import bigann, npy, texmex, written
from tests.support.strategies import blocks

ROWS = np.random.default_rng(0).random((500, 7), np.float32)
LAYOUTS = {"a.fvecs": texmex, "a.fbin": bigann, "a.npy": npy}


def all_of(source: Source, block_rows: int = 64) -> NDArray[Any]:
    """All rows, in blocks."""
    starts, found = [], []
    for start, rows in row_blocks(source, block_rows):
        starts.append(start)
        found.append(rows)
    assert starts == list(range(0, source.shape[0], block_rows))
    return np.concatenate(found)


def compressed(folder: Path, name: str, data: bytes) -> str:
    return written(folder, f"{name}.gz", gzip.compress(data, 1))


@pytest.mark.parametrize("name", LAYOUTS)
def test_gzip_of_every_layout(tmp_path: Path, name: str) -> None:
    @steady(30)
    @given(rows=blocks("<f4"), step=st.integers(1, 10))
    def check(rows: NDArray[Any], step: int) -> None:
        path = compressed(tmp_path, name, LAYOUTS[name](rows))
        source = open_source(path, ingesting=True)
        np.testing.assert_array_equal(all_of(source, step), rows, strict=True)
        assert source.shape == rows.shape

    check()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_range_of_a_stream(tmp_path: Path, name: str) -> None:
    data = LAYOUTS[name](ROWS)
    paths = [compressed(tmp_path, name, data), written(tmp_path, name, data)]
    for span, expected in [("10:40", ROWS[10:40]), ("499:", ROWS[499:]), (":3", ROWS[:3])]:
        for path in paths:
            source = open_source(path, rows=span, ingesting=True)
            np.testing.assert_array_equal(all_of(source), expected)
    for path in paths:
        with pytest.raises((FormatError, InputError), match="Fix: "):
            all_of(open_source(path, rows="10:501", ingesting=True))


@pytest.mark.parametrize("span", ["5", "5:5", "9:2", "-3:", "a:b", "1:2:3", "²:"])
def test_a_range_that_is_none(tmp_path: Path, span: str) -> None:
    with pytest.raises(InputError, match=r'expected first:last.* Fix: rows="0:1000"'):
        open_source(written(tmp_path, "a.fbin", bigann(ROWS)), rows=span)


@pytest.mark.parametrize("members", [1, 3])
def test_stdin(monkeypatch: pytest.MonkeyPatch, members: int) -> None:
    data = texmex(ROWS)
    cut = [data[i * len(data) // members : (i + 1) * len(data) // members] for i in range(members)]
    for form, sent in (("fvecs", data), ("fvecs.gz", b"".join(map(gzip.compress, cut)))):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sent)))
        np.testing.assert_array_equal(all_of(open_source("-", form=form, ingesting=True)), ROWS)
    with pytest.raises(InputError, match=r'stdin has no suffix.* Fix: format="fvecs"'):
        open_source("-", ingesting=True)
    with pytest.raises(FormatError, match="parquet cannot be read as a stream"):
        open_source("-", form="parquet", ingesting=True)


def test_rows_are_read_in_order_only(tmp_path: Path) -> None:
    path = compressed(tmp_path, "a.fbin", bigann(ROWS))
    with pytest.raises(InputError, match=r"a stream is read forward once. Fix: mercore\.ingest\("):
        open_source(path)
    source = open_source(path, ingesting=True)
    source.read(0, 10)
    for span in [(0, 10), (20, 30), (490, 501)]:
        with pytest.raises(InputError, match="read forward once"):
            source.read(*span)
    np.testing.assert_array_equal(source.read(10, 20), ROWS[10:20])
    with pytest.raises(InputError, match="a fingerprint was asked for"):
        source.fingerprint()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_damaged_stream_is_refused(tmp_path: Path, name: str) -> None:
    data, whole = LAYOUTS[name](ROWS), gzip.compress(LAYOUTS[name](ROWS))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 16
    for bad in (whole[: len(whole) // 2], bytes(flipped), b"no gzip", gzip.compress(data[:-3])):
        path = written(tmp_path, f"{name}.gz", bad)
        with pytest.raises(FormatError, match="Fix: fetch the file again"):
            all_of(open_source(path, ingesting=True))
    if name != "a.fvecs":
        path = compressed(tmp_path, name, data + b"x")
        with pytest.raises(FormatError, match="goes on after the header's 500 rows"):
            all_of(open_source(path, ingesting=True))


def test_fortran_order_is_no_stream(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.asfortranarray(ROWS))
    with pytest.raises(FormatError, match="in Fortran order cannot be read as a stream"):
        open_source(compressed(tmp_path, "a.npy", stream.getvalue()), ingesting=True)


def test_a_format_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "gist.bin", ROWS.tobytes())
    np.testing.assert_array_equal(open_source(path, form="raw:float32:7").read(0, 500), ROWS)
    wide = np.random.default_rng(0).random((3, 384), np.float32)
    tiny = written(tmp_path, "tinygist80million.bin", wide.tobytes())
    np.testing.assert_array_equal(open_source(tiny, form="tinygist").read(0, 3), wide)
    np.testing.assert_array_equal(
        open_source(written(tmp_path, "sift.dat", bigann(ROWS)), form=".FBIN").read(0, 500), ROWS
    )
    for form, error in [("bogus", InputError), ("raw:x:3", InputError), ("raw:f4:9", FormatError)]:
        with pytest.raises(error, match="Fix: "):
            open_source(path, form=form)
    with pytest.raises(InputError, match="an array states its own"):
        open_source(ROWS, form="fvecs")

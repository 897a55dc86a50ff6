"""Every format is read as its own documentation lays it out, and no header is believed."""

import json
import os
import pickle
import re
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.codecs
from faiss.contrib import vecs_io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.stores.errors import (
    FormatError,
    InputError,
    MercoreError,
    NotFoundError,
    ShapeError,
    StorageError,
)
from mercore.stores.formats import open_source
from mercore.testing.cases import in_case, loop_over
from tests.support.strategies import blocks

FAISS: Any = vecs_io  # which has no types
Bytes = Callable[[NDArray[Any]], bytes]
in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)


def texmex(rows: NDArray[Any]) -> bytes:
    return b"".join(struct.pack("<i", rows.shape[1]) + row.tobytes() for row in rows)


def bigann(rows: NDArray[Any]) -> bytes:
    return struct.pack("<II", *rows.shape) + rows.tobytes()


def npy(rows: NDArray[Any]) -> bytes:
    return npy_of(rows.dtype.str, rows.shape, rows.tobytes())


def npy_of(descr: str, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    return npy_bytes(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}", data)


def npy_bytes(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode("latin1") + b"\n"
    return (
        b"\x93NUMPY"
        + version
        + struct.pack("<H" if version[0] == 1 else "<I", len(text))
        + text
        + data
    )


LAYOUTS: list[tuple[str, str, Bytes]] = [
    (".fvecs", "<f4", texmex),
    (".bvecs", "|u1", texmex),
    (".ivecs", "<i4", texmex),
    (".fbin", "<f4", bigann),
    (".u8bin", "|u1", bigann),
    (".i8bin", "|i1", bigann),
    (".f16bin", "<f2", bigann),
    (".ibin", "<i4", bigann),
    *((".npy", f"{order}{kind}", npy) for order in "<>" for kind in ("f2", "f4", "f8", "i2", "u4")),
    *((".npy", dtype, npy) for dtype in ("|u1", "|i1", "<i8")),
]


def written(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def kept_dtype(dtype: str) -> np.dtype[Any]:
    """The dtype in which numbers of another are read."""
    kept = dtype[1:] in ("u1", "i1", "f2", "f4")
    return np.dtype(dtype).newbyteorder("=") if kept else np.dtype(np.float32)


def read_all(path: str) -> NDArray[Any]:
    source = open_source(path)
    return source.read(0, source.shape[0])


def refused(error: type[MercoreError], path: str) -> str:
    """The message of the error that opening or reading ``path`` raises, without its folder."""
    with pytest.raises(error) as raised:
        read_all(path)
    assert type(raised.value) is error
    return str(raised.value).replace(str(Path(path).parent) + "/", "")


@pytest.mark.parametrize(("suffix", "dtype", "layout"), LAYOUTS)
def test_reads_its_layout_in_any_slices(
    tmp_path: Path, suffix: str, dtype: str, layout: Bytes
) -> None:
    kept = kept_dtype(dtype)

    @in_one_folder
    @given(rows=blocks(dtype), data=st.data())
    def check(rows: NDArray[Any], data: st.DataObject) -> None:
        source = open_source(written(tmp_path, f"rows{suffix}", layout(rows)))
        assert (source.shape, source.dtype) == (rows.shape, kept)
        start = data.draw(st.integers(0, len(rows)))
        stop = data.draw(st.integers(start, len(rows)))
        block = source.read(start, stop)
        assert block.flags.c_contiguous
        np.testing.assert_array_equal(block, rows[start:stop].astype(kept), strict=True)

    check()


@pytest.mark.parametrize("suffix", ["fvecs", "ivecs", "bvecs"])
@pytest.mark.promise("Every format is read as its own library writes it")
def test_faiss_reads_and_writes_the_same_texmex_files(tmp_path: Path, suffix: str) -> None:
    readers = {"fvecs": FAISS.fvecs_read, "ivecs": FAISS.ivecs_read, "bvecs": FAISS.bvecs_mmap}
    writers = {"fvecs": FAISS.fvecs_write, "ivecs": FAISS.ivecs_write}
    dtype, path = {"fvecs": "<f4", "ivecs": "<i4", "bvecs": "|u1"}[suffix], tmp_path / f"a.{suffix}"

    @in_one_folder
    @given(rows=blocks(dtype))
    def check(rows: NDArray[Any]) -> None:
        path.write_bytes(texmex(rows))
        np.testing.assert_array_equal(readers[suffix](str(path)), rows)
        if suffix in writers:
            writers[suffix](str(path), rows)
        source = open_source(str(path))
        np.testing.assert_array_equal(source.read(0, len(rows)), rows.astype(source.dtype))

    check()


@pytest.mark.parametrize(
    ("suffix", "dtype", "layout"), [LAYOUTS[0], LAYOUTS[3], (".npy", ">f8", npy)]
)
def test_threads_read_windows_of_one_file(
    tmp_path: Path, suffix: str, dtype: str, layout: Bytes
) -> None:
    rows = (
        np.random.default_rng(0).normal(size=(20_000, 96)).astype(dtype)
    )  # more than one window of 4 MiB
    source = open_source(written(tmp_path, f"rows{suffix}", layout(rows)))
    spans = [(0, 20_000), *((first, first + 1_234) for first in range(0, 18_000, 700))]
    with ThreadPoolExecutor(8) as pool:
        for (start, stop), block in zip(
            spans, pool.map(lambda span: source.read(*span), spans), strict=True
        ):
            np.testing.assert_array_equal(block, rows[start:stop].astype(np.float32), strict=True)


@pytest.mark.parametrize("span", [(-1, 2), (2, 1), (0, 4), (4, 4)])
def test_refuses_rows_it_has_not(tmp_path: Path, span: tuple[int, int]) -> None:
    paths = [written(tmp_path, "a.fbin", bigann(np.zeros((3, 2), "<f4"))), str(tmp_path / "a.zarr")]
    zarr.create_array(paths[1], data=np.zeros((3, 2), "f4"))
    for path in paths:
        with pytest.raises(ShapeError) as raised:
            open_source(path).read(*span)
        found = f"rows [{span[0]}, {span[1]}) asked for, it has [0, 3)"
        assert str(raised.value) == f"{path}: {found}. Fix: ask for rows it has."


def test_a_set_of_no_rows_keeps_its_d(tmp_path: Path) -> None:
    for path in (
        written(tmp_path, "a.fbin", struct.pack("<II", 0, 7)),
        written(tmp_path, "a.npy", npy(np.empty((0, 7), "<f4"))),
    ):
        source = open_source(path)
        assert source.read(0, 0).shape == source.shape == (0, 7)
        assert len(source.fingerprint()) == 32


def test_suffixes_in_capitals_and_long_bools(tmp_path: Path) -> None:
    flags = np.array([[True, False], [False, True]])
    block = open_source(written(tmp_path, "A.NPY", npy(flags))).read(0, 2)
    np.testing.assert_array_equal(block, flags.astype(np.uint8), strict=True)


AGAIN = "Fix: fetch the file again"
D_RANGE = (
    "expected n ≥ 0 and 1 ≤ d ≤ 1000000. "
    "Fix: check that the suffix names the file's true format, or fetch the file again."
)
SIZE_MEND = f"{AGAIN}, or check that its suffix is right."
NO_HEADER = "no .npy header of version 1.0 or 2.0 ({}). Fix: save it with numpy.save."
NO_NUMBERS = "the header says {}, expected an array of numbers. Fix: save it again as float32, or texts as str."
ANOTHER_SIZE = "{} of float32. Fix: fetch or save the file again."
SQUARE = np.zeros((2, 2), "<f4")
BAD_FILES = {  # … stands for any text
    "a.fvecs": [
        (b"", f"0 bytes, expected at least the 4 that say d. {AGAIN}."),
        (b"\x01\x00", f"2 bytes, expected at least the 4 that say d. {AGAIN}."),
        (struct.pack("<i", 0), f"the header says n = 0 rows of d = 0, {D_RANGE}"),
        (struct.pack("<i", -3) * 9, f"the header says n = 0 rows of d = -3, {D_RANGE}"),
        (struct.pack(">i", 3), f"the header says n = 0 rows of d = 50331648, {D_RANGE}"),
        (
            texmex(np.zeros((2, 3), "<f4"))[:-1],
            "31 bytes, expected a multiple of 16 (d = 3 of 4 bytes, and 4 bytes before each row). "
            f"{AGAIN}, it is cut off; or check that its suffix is right.",
        ),
        (
            texmex(np.zeros((2, 3), "<f4")) + struct.pack("<i3f", 2, 0, 0, 0),
            "row 2 says d = 2, expected 3 as in row 0. "
            f"{AGAIN}; rows of different d cannot be one set of vectors.",
        ),
    ],
    "a.ivecs": [
        (
            struct.pack("<iii", 2, 16777216, -16777217),
            "row 0, column 1 holds -16777217, which is not exact in float32. "
            "Fix: rescale the vectors, or drop that row.",
        )
    ],
    "a.fbin": [
        (b"", f"0 bytes, expected a header of 8. {AGAIN}."),
        (bytes(7), f"7 bytes, expected a header of 8. {AGAIN}."),
        (struct.pack("<II", 3, 0), f"the header says n = 3 rows of d = 0, {D_RANGE}"),
        (struct.pack("<II", 3, 10**6 + 1), f"the header says n = 3 rows of d = 1000001, {D_RANGE}"),
        (
            struct.pack("<II", 2**32 - 1, 1_000_000),  # n * d * 4 does not fit 32 bits, nor 53
            f"8 bytes, expected {8 + 4 * (2**32 - 1) * 1_000_000} for the header's n = 4294967295, "
            f"d = 1000000 of 4 bytes. {SIZE_MEND}",
        ),
        (
            struct.pack("<II", 2**30, 4) + bytes(32),  # n * d * 4 is 0 modulo 2**32
            f"40 bytes, expected {8 + 2**34} for the header's n = 1073741824, d = 4 of 4 bytes. "
            f"{SIZE_MEND}",
        ),
        (
            bigann(SQUARE) + b"x",
            f"25 bytes, expected 24 for the header's n = 2, d = 2 of 4 bytes. {SIZE_MEND}",
        ),
    ],
    "a.npy": [
        (b"", NO_HEADER.format("…")),
        (b"not an array", NO_HEADER.format("…")),
        (npy(SQUARE)[:20], NO_HEADER.format("…")),
        (npy_bytes("{'descr': '<f4', ", bytes(8)), NO_HEADER.format("…")),
        (npy_bytes("__import__('os').getcwd()"), NO_HEADER.format("…")),
        (npy_bytes("(" * 9000), NO_HEADER.format("…")),
        (
            npy_bytes("-" * 6000 + "1"),  # Python's parser has no memory for it
            NO_HEADER.format(
                "Header info length (6002) is large and may not be safe to load securely"
            ),
        ),
        (npy_bytes("{}", version=b"\x03\x00"), NO_HEADER.format("version 3.0")),
        (
            npy(np.zeros(3, "<f4")),
            "an array of shape (3,), expected two dimensions, (n, d). Fix: reshape it.",
        ),
        (npy_of("|O", (1, 1), pickle.dumps([0])), NO_NUMBERS.format("Python objects")),
        (npy_of("<f4", (-2, 3)), NO_NUMBERS.format("shape (-2, 3) of float32")),
        (npy(np.zeros((2, 0), "<f4")), f"the header says n = 2 rows of d = 0, {D_RANGE}"),
        (
            npy_of("<f4", (2**62, 4)),
            ANOTHER_SIZE.format(f"88 bytes, expected {88 + 2**66} for the header's ({2**62}, 4)"),
        ),
        (npy(SQUARE)[:-1], ANOTHER_SIZE.format("… for the header's (2, 2)")),
        (npy(SQUARE) + b"x", ANOTHER_SIZE.format("… for the header's (2, 2)")),
        *(
            (
                npy(np.zeros((2, 2), dtype)),
                f"the numbers are {np.dtype(dtype)}, expected bool, integers, float16, float32 or "
                "float64. Fix: convert the file to float32.",
            )
            for dtype in ("<c8", "<U3", "|S2", "<M8[s]", np.longdouble)
        ),
    ],
}


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.promise("Headers of foreign files are checked against the file's size")
@pytest.mark.promise("No pickle is read")
def test_refuses_a_bad_file(tmp_path: Path, name: str) -> None:
    for data, told in BAD_FILES[name]:
        error = InputError if "not exact" in told else FormatError
        with in_case(told=told):
            message = refused(error, written(tmp_path, name, data))
            assert re.fullmatch(re.escape(f"{name}: {told}").replace("…", ".*"), message), message


@in_one_folder
@given(
    header=st.binary(max_size=80)
    | st.text("{}()[]'\",:0123456789 \\\n<fdescrshape", max_size=60).map(str.encode)
)
def test_any_npy_header_is_read_or_refused(tmp_path: Path, header: bytes) -> None:
    path = written(
        tmp_path, "a.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    )
    with pytest.raises(FormatError, match=r"a\.npy: .*Fix: "):
        open_source(path)


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        (np.array([[0, 2**24 + 2], [5, 2**24 + 1]], "<i8"), 1),
        (np.array([[0, 2**63 - 2**39], [2**63 - 1, 0]], "<i8"), 0),
        (np.array([[0, 2**64 - 2**40], [2**64 - 1, 0]], "<u8"), 0),
        (np.array([[-(2**31), 0], [0, 2**31 - 1]], ">i4"), 1),
    ],
)
def test_an_integer_is_exact_or_refused(tmp_path: Path, rows: NDArray[Any], column: int) -> None:
    assert refused(InputError, written(tmp_path, "a.npy", npy(rows))) == (
        f"a.npy: row 1, column {column} holds {rows[1, column]}, which is not exact in float32. "
        "Fix: rescale the vectors, or drop that row."
    )
    block = open_source(str(tmp_path / "a.npy")).read(0, 1)
    assert [int(value) for value in block[0]] == rows[0].tolist()


@given(value=st.integers(-(2**63), 2**64 - 1))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_exact_integers_are_those_that_python_finds_exact(tmp_path: Path, value: int) -> None:
    path = written(tmp_path, "a.npy", npy(np.array([[value]], "<i8" if value < 2**63 else "<u8")))
    try:
        exact = int(open_source(path).read(0, 1)[0, 0]) == value
    except InputError:
        exact = int(np.float32(value)) == value
        assert not exact
    else:
        assert exact


def test_float64_is_rounded_and_its_overflow_refused(tmp_path: Path) -> None:
    rows = np.array([[0.1, 1e-50], [np.inf, np.nan], [1.0, -1e39]], "<f8")
    path = written(tmp_path, "a.npy", npy(rows))
    np.testing.assert_array_equal(
        open_source(path).read(0, 2), np.array([[0.1, 0], [np.inf, np.nan]], np.float32)
    )
    assert refused(InputError, path) == (
        "a.npy: row 2, column 1 holds -1e+39, which is beyond float32's range. "
        "Fix: rescale the vectors, or drop that row."
    )


def test_missing_unknown_and_odd_paths(tmp_path: Path) -> None:
    for path in ("gone.fvecs", "gone.zarr", "a.npy/below.npy"):
        written(tmp_path, "a.npy", b"")
        with pytest.raises(NotFoundError) as raised:
            open_source(str(tmp_path / path))
        assert (
            str(raised.value) == f"{tmp_path / path}: no such file or folder. Fix: check the path."
        )
    assert refused(FormatError, written(tmp_path, "a.csv", b"")) == (
        "a.csv: unknown suffix '.csv', expected .fvecs .bvecs .ivecs .fbin .u8bin .i8bin .f16bin "
        ".ibin .npy (with .gz too), .npz .parquet .arrow .feather .h5 .hdf5, or a Zarr array's "
        "folder. Fix: name the true format with format, or convert the file."
    )
    os.mkfifo(tmp_path / "pipe.fbin")
    assert refused(FormatError, str(tmp_path / "pipe.fbin")) == (
        "pipe.fbin: not a regular file. Fix: name a file; copy a pipe or a device to one first."
    )


def test_the_operating_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "a.fbin", bigann(np.zeros((2, 2), "<f4")))
    source = open_source(path)

    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    for call, use in (("preadv", lambda: source.read(0, 1)), ("open", lambda: open_source(path))):
        monkeypatch.setattr(os, call, denied)
        with pytest.raises(StorageError, match=r"cannot read .*a\.fbin: Permission denied\. Fix: "):
            use()


def test_a_file_cut_while_it_is_open(tmp_path: Path) -> None:
    path = written(tmp_path, "a.fbin", bigann(np.zeros((4, 2), "<f4")))
    source = open_source(path)
    os.truncate(path, 20)
    with pytest.raises(FormatError) as raised:
        source.read(1, 4)
    told = "the file ends at byte 20, expected 40 bytes"
    assert str(raised.value) == f"{path}: {told}. {AGAIN}, and change no file while it is read."


def test_short_reads_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(60, dtype="<f4").reshape(10, 6)
    source = open_source(written(tmp_path, "a.fvecs", texmex(rows)))
    whole = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda file, views, offset: whole(file, [views[0][:7]], offset)
    )
    np.testing.assert_array_equal(source.read(0, 10), rows)


def test_files_are_closed(tmp_path: Path) -> None:
    path = written(tmp_path, "a.fbin", bigann(np.zeros((4, 2), "<f4")))

    def times_open() -> int:
        links = [f"/proc/self/fd/{file}" for file in os.listdir("/proc/self/fd")]  # noqa: PTH208
        return sum(os.path.realpath(link) == path for link in links)

    sources = [open_source(path) for _ in range(5)]
    assert times_open() == 5
    del sources
    assert times_open() == 0


def test_fingerprint_knows_the_rows_and_not_the_name(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 255, (1000, 8)).astype(np.uint8)
    first = open_source(written(tmp_path, "a.u8bin", bigann(rows))).fingerprint()
    assert len(first) == 32
    assert open_source(written(tmp_path, "b.u8bin", bigann(rows))).fingerprint() == first
    changed = rows.copy()
    changed[-1, -1] ^= 1
    others = [
        written(tmp_path, "c.u8bin", bigann(changed)),
        written(tmp_path, "d.u8bin", bigann(rows[:-1])),
        written(tmp_path, "e.u8bin", bigann(rows.reshape(500, 16))),
        written(tmp_path, "f.i8bin", bigann(rows)),
        written(tmp_path, "g.bvecs", texmex(rows)),
        written(tmp_path, "h.npy", npy(rows)),
    ]
    assert len({first, *(open_source(path).fingerprint() for path in others)}) == 7


def zarr_pairs() -> list[dict[str, Any]]:
    gzip: dict[str, Any] = {"id": "gzip", "level": 1}
    return [
        {"zarr_format": 2, "compressors": None},
        {"zarr_format": 2, "compressors": gzip, "order": "F"},
        {"zarr_format": 3, "compressors": zarr.codecs.GzipCodec()},
        {"zarr_format": 3, "compressors": (zarr.codecs.BloscCodec(), zarr.codecs.Crc32cCodec())},
        {"zarr_format": 3, "shards": (14, 6)},
    ]


@pytest.mark.parametrize("options", zarr_pairs(), ids=range(5))
@pytest.mark.parametrize("dtype", ["|u1", "<f2", ">f4", "<f8", ">i2"])
def test_zarr_v2_and_v3_in_odd_chunks(tmp_path: Path, dtype: str, options: dict[str, Any]) -> None:
    rows = np.random.default_rng(0).integers(0, 99, (23, 5)).astype(dtype)
    path = str(tmp_path / "a")
    array = zarr.create_array(path, shape=rows.shape, chunks=(7, 3), dtype=dtype, **options)
    array[:] = rows
    source = open_source(path)
    kept = kept_dtype(dtype)
    assert (source.name, source.shape, source.dtype) == (path, (23, 5), kept)
    for start, stop in [(0, 23), (6, 15), (22, 23), (9, 9)]:
        block = source.read(start, stop)
        assert block.flags.c_contiguous
        np.testing.assert_array_equal(block, rows[start:stop].astype(kept), strict=True)
    fingerprint = source.fingerprint()
    (tmp_path / "a").rename(tmp_path / "b")
    assert open_source(str(tmp_path / "b")).fingerprint() == fingerprint


def test_zarr_is_read_by_threads(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(999, 7))
    zarr.create_array(str(tmp_path / "a"), data=rows, chunks=(50, 7))
    source = open_source(str(tmp_path / "a"))
    with ThreadPoolExecutor(4) as pool:
        for row, block in enumerate(
            pool.map(lambda start: source.read(start, start + 100), range(0, 880, 40))
        ):
            np.testing.assert_array_equal(block, rows[40 * row : 40 * row + 100].astype(np.float32))


def test_folders_that_are_no_array_of_rows(tmp_path: Path) -> None:
    (tmp_path / "plain.fvecs").mkdir()
    assert refused(FormatError, str(tmp_path / "plain.fvecs")) == (
        "plain.fvecs: a folder without Zarr metadata, expected a Zarr array. Fix: name a file "
        "or the array."
    )
    group = zarr.create_group(str(tmp_path / "g"))
    told = "g: a Zarr group, expected an array; arrays in it: {}. Fix: name one, as g/ARRAY."
    assert refused(FormatError, str(tmp_path / "g")) == told.format("none")
    for name in ("vectors", "labels"):
        group.create_array(name, shape=(3, 2, 1), dtype="f4")
    assert refused(FormatError, str(tmp_path / "g")) == told.format("labels, vectors")
    assert refused(FormatError, str(tmp_path / "g" / "labels")) == (
        "labels: a Zarr array of shape (3, 2, 1), expected two dimensions, (n, d). Fix: reshape it."
    )
    zarr.create_array(str(tmp_path / "c"), shape=(3, 2), dtype="complex64")
    assert refused(FormatError, str(tmp_path / "c")).startswith(
        "c: the numbers are complex64, expected bool, integers"
    )
    zarr.create_array(str(tmp_path / "d"), shape=(3, 0), dtype="f4", chunks=(1, 1))
    assert refused(FormatError, str(tmp_path / "d")).startswith(
        "d: the header says n = 3 rows of d = 0, expected"
    )
    zarr.create_array(str(tmp_path / "e"), data=np.full((3, 2), 1e300))
    assert refused(InputError, str(tmp_path / "e")).startswith(
        "e: row 0, column 0 holds 1e+300, which is beyond"
    )


@pytest.mark.promise("Headers of foreign files are checked against the file's size")
def test_zarr_metadata_is_distrusted(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "good"), data=np.zeros((4, 2), "f4"))
    good = json.loads((tmp_path / "good" / "zarr.json").read_text())
    bad = [b"{nope", b"[]", b"", b"\xff\xfe", b'{"zarr_format": 3, "node_type": "array"}']
    codecs = {"codecs": [{"name": "bytes"}, {"name": "none"}]}
    for change in ({"data_type": "float31"}, codecs, {"shape": [-1, 2]}, {"shape": 3}):
        bad += [json.dumps({**good, **change}).encode()]
    for data in bad:
        written(tmp_path / "good", "zarr.json", data)
        message = refused(FormatError, str(tmp_path / "good"))
        assert message.startswith("good: the Zarr metadata cannot be read (")
        assert message.endswith("). Fix: copy or write the store again.")


def test_a_broken_zarr_chunk_is_named_by_its_rows(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "a"), data=np.ones((9, 2), "f4"), chunks=(3, 2))
    written(tmp_path / "a" / "c" / "1", "0", b"junk")
    assert refused(FormatError, str(tmp_path / "a")).startswith(
        "a: rows [0, 9) cannot be decoded ("
    )
    np.testing.assert_array_equal(open_source(str(tmp_path / "a")).read(6, 9), 1)


METADATA = "the Zarr metadata cannot be read (…). Fix: copy or write the store again."
DAMAGED = "rows [0, 4) cannot be decoded (…). Fix: copy the store anew."


@loop_over(
    ("change", "told"),
    [
        ({"chunks": [0, 2]}, DAMAGED),
        ({"fill_value": 10**400}, METADATA),
        *(({"compressor": {"id": name}}, DAMAGED) for name in ("zlib", "gzip", "bz2", "lzma")),
        *(({"filters": [{"id": name}]}, DAMAGED) for name in ("packbits", "base64", "crc32")),
        ({"filters": [{"id": "astype", "encode_dtype": "f4", "decode_dtype": "U9"}]}, DAMAGED),
    ],
)
def test_zarr_v2_of_another_making_is_refused(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    zarr.create_array(
        str(tmp_path / "a"), data=np.zeros((4, 2), "f4"), zarr_format=2, compressors=None
    )
    metadata = json.loads((tmp_path / "a" / ".zarray").read_text())
    written(tmp_path / "a", ".zarray", json.dumps({**metadata, **change}).encode())
    written(tmp_path / "a", "0.0", bytes(32))
    message = refused(FormatError, str(tmp_path / "a"))
    assert re.fullmatch(re.escape(f"a: {told}").replace("…", ".*"), message), message


@pytest.mark.parametrize("place", ["filters", "compressor"])
@pytest.mark.promise("No pickle is read")
def test_zarr_never_unpickles(tmp_path: Path, place: str) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    array = zarr.create_array(
        str(tmp_path / "a"),
        shape=(2, 2),
        chunks=(2, 2),
        dtype="f4",
        zarr_format=2,
        compressors=None,
    )
    array[:] = 1
    codec = {"id": "pickle", "protocol": 5}
    metadata = json.loads((tmp_path / "a" / ".zarray").read_text())
    metadata |= {"filters": [codec]} if place == "filters" else {"compressor": codec}
    written(tmp_path / "a", ".zarray", json.dumps(metadata).encode())
    written(tmp_path / "a", "0.0", pickle.dumps(Trap()))
    assert refused(FormatError, str(tmp_path / "a")).startswith("a: ")
    assert not (tmp_path / "sprung").exists()

"""Hits come back as they were written, in files that other tools read, and bad files are
refused."""

import io
import os
import pickle
import re
import struct
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from faiss.contrib import vecs_io
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from pyarrow import parquet

from mercore.stores.errors import (
    ExistsError,
    FormatError,
    InputError,
    MercoreError,
    NotFoundError,
    ShapeError,
    StorageError,
)
from mercore.stores.formats.npz import ArrayInPieces, npz_bytes, publish_npz
from mercore.stores.results.hits import Hits, check_hits_path, read_hits, write_hits
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from tests.support.strategies import hit_arrays

FAISS: Any = vecs_io  # which has no types
Arrays = tuple[NDArray[Any] | None, NDArray[np.int64]]
in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
IDS = np.array([[3, 1, -1], [2**31 - 1, 0, 7]])
SCORES = np.array([[1, 0.5, 0.25], [0.75, 0.5, 0]], np.float32)


def written(folder: Path, name: str, data: bytes) -> str:
    (folder / name).write_bytes(data)
    return str(folder / name)


def npz(path: Path, **arrays: NDArray[Any]) -> str:
    np.savez_compressed(path, allow_pickle=True, **arrays)
    return str(path)


def same(read: Hits, scores: NDArray[Any] | None, ids: NDArray[np.int64]) -> None:
    np.testing.assert_array_equal(read.ids, ids, strict=True)
    if scores is None:
        assert read.scores is None
    else:
        assert read.scores is not None
        np.testing.assert_array_equal(read.scores, scores, strict=True)


def told(error: type[MercoreError], action: Any, path: Path | str, *more: Any) -> str:
    with pytest.raises(error) as raised:
        action(str(path), *more)
    assert type(raised.value) is error
    return str(raised.value).replace(str(Path(path).parent) + "/", "")


@pytest.mark.parametrize("suffix", [".ivecs", ".ibin", ".npz", ".NPZ", ".parquet"])
def test_hits_come_back(tmp_path: Path, suffix: str) -> None:
    @in_one_folder
    @given(arrays=hit_arrays())
    def check(arrays: Arrays) -> None:
        path = str(tmp_path / f"a{suffix}")
        paths = write_hits(path, Hits(scores=arrays[0], ids=arrays[1]))
        assert paths == [
            path,
            *([str(tmp_path / "a.fvecs")] if suffix == ".ivecs" and arrays[0] is not None else []),
        ]
        assert sorted(paths) == sorted(map(str, tmp_path.iterdir()))
        same(read_hits(path), *arrays)

    check()


def test_ids_come_back_from_npy(tmp_path: Path) -> None:
    @in_one_folder
    @given(arrays=hit_arrays(max_id=2**63 - 1))
    def check(arrays: Arrays) -> None:
        write_hits(str(tmp_path / "a.npy"), Hits(scores=arrays[0], ids=arrays[1]))
        same(read_hits(str(tmp_path / "a.npy")), None, arrays[1])

    check()


@steady(4)  # each starts processes
@given(arrays=hit_arrays(score="f8", max_id=2**63 - 1))
def test_hits_come_back_from_hdf5(tmp_path: Path, arrays: Arrays) -> None:
    write_hits(str(tmp_path / "a.h5"), Hits(scores=arrays[0], ids=arrays[1]))
    same(read_hits(str(tmp_path / "a.h5")), *arrays)


def test_faiss_reads_texmex_hits(tmp_path: Path) -> None:
    write_hits(str(tmp_path / "a.ivecs"), Hits(scores=SCORES, ids=IDS))
    np.testing.assert_array_equal(FAISS.ivecs_read(str(tmp_path / "a.ivecs")), IDS)
    np.testing.assert_array_equal(FAISS.fvecs_read(str(tmp_path / "a.fvecs")), SCORES)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_float64_and_int64_are_kept_and_bytes_are_equal(tmp_path: Path, suffix: str) -> None:
    one, other = str(tmp_path / f"a{suffix}"), str(tmp_path / f"b{suffix}")

    @in_one_folder
    @given(arrays=hit_arrays(score="f8", max_id=2**63 - 1))
    def check(arrays: Arrays) -> None:
        write_hits(one, Hits(scores=arrays[0], ids=arrays[1]))
        first = Path(one).read_bytes()
        os.utime(one, (0, 0))
        write_hits(other, read_hits(one))
        assert Path(other).read_bytes() == first
        same(read_hits(other), *arrays)

    check()


def test_npz_and_parquet_are_as_other_tools_read_them(tmp_path: Path) -> None:
    hits = Hits(scores=SCORES, ids=IDS)
    write_hits(str(tmp_path / "a.npz"), hits)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as loaded:
        np.testing.assert_array_equal(loaded["ids"], IDS, strict=True)
    write_hits(str(tmp_path / "a.parquet"), hits)
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["ids", "scores"]
    assert table.to_pydict() == {"ids": IDS.tolist(), "scores": SCORES.tolist()}
    assert table.column("scores").type.value_type == pa.float32()


def test_npz_bytes_do_not_know_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.npz")
    write_hits(path, Hits(scores=SCORES, ids=IDS))
    monkeypatch.setattr("time.time", lambda: 2e9)
    first = Path(path).read_bytes()
    write_hits(path, Hits(scores=np.asfortranarray(SCORES), ids=np.asfortranarray(IDS)))
    assert Path(path).read_bytes() == first
    with zipfile.ZipFile(path) as archive:
        assert [(entry.filename, entry.date_time[0]) for entry in archive.infolist()] == [
            ("ids.npy", 1980),
            ("scores.npy", 1980),
        ]


def test_arrays_in_pieces_are_written_as_those_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for count in (0, 1, 7, 100_000):
        whole = rng.integers(0, 1 << 60, count)
        split = ArrayInPieces(whole.dtype, count, partial(np.array_split, whole, 3))
        rest = {"scalar": np.array(b"csr"), "last": rng.random(5)}
        for _ in range(2):  # the pieces can be written again
            publish_npz(tmp_path / "a.npz", {"ids": split, **rest})
            assert (tmp_path / "a.npz").read_bytes() == npz_bytes({"ids": whole, **rest})


def test_bytes_are_those_of_the_formats(tmp_path: Path) -> None:
    hits = Hits(scores=SCORES.astype(np.float64), ids=IDS)
    write_hits(str(tmp_path / "a.ivecs"), hits)
    write_hits(str(tmp_path / "a.ibin"), hits)
    ids = [struct.pack("<3i", *row) for row in IDS]
    scores = [struct.pack("<3f", *row) for row in SCORES]
    head = struct.pack("<i", 3)
    assert (tmp_path / "a.ivecs").read_bytes() == head + ids[0] + head + ids[1]
    assert (tmp_path / "a.fvecs").read_bytes() == head + scores[0] + head + scores[1]
    assert (tmp_path / "a.ibin").read_bytes() == struct.pack("<II", 2, 3) + b"".join(ids + scores)
    write_hits(str(tmp_path / "a.ibin"), hits, distances=True)
    scores = [struct.pack("<3f", *row) for row in np.square(SCORES)]
    assert (tmp_path / "a.ibin").read_bytes() == struct.pack("<II", 2, 3) + b"".join(ids + scores)


def test_reads_the_truths_of_other_tools(tmp_path: Path) -> None:
    flat = struct.pack("<6i", *IDS.flat)
    same(read_hits(written(tmp_path, "a.ibin", struct.pack("<II", 2, 3) + flat)), None, IDS)
    rows = b"".join(struct.pack("<4i", 3, *row) for row in IDS)
    same(read_hits(written(tmp_path, "a.ivecs", rows)), None, IDS)
    written(tmp_path, "a.fvecs", struct.pack("<i2f", 2, 1, 0))  # of another shape: not its scores
    same(read_hits(str(tmp_path / "a.ivecs")), None, IDS)
    written(tmp_path, "a.fvecs", b"not vectors")
    same(read_hits(str(tmp_path / "a.ivecs")), None, IDS)
    path = npz(
        tmp_path / "a.npz",
        ids=np.asfortranarray(IDS.astype(">i4")),
        scores=SCORES.astype(np.float16),
        k=np.array(3),
    )
    same(read_hits(path), SCORES, IDS)
    same(
        read_hits(
            npz(tmp_path / "a.npz", ids=IDS.clip(0).astype(np.uint64), scores=SCORES.astype(">f8"))
        ),
        SCORES.astype(np.float64),
        IDS.clip(0),
    )


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_no_hits_fit_npz_and_parquet_alone(tmp_path: Path, shape: tuple[int, int]) -> None:
    hits = Hits(scores=np.zeros(shape, np.float32), ids=np.zeros(shape, np.int64))
    for name in ("a.npz", "a.parquet"):
        write_hits(str(tmp_path / name), hits)
        same(read_hits(str(tmp_path / name)), hits.scores, hits.ids)
    for name in ("a.ivecs", "a.ibin"):
        expected = (
            f"{name}: hits of shape {list(shape)}, expected at least one. Fix: write "
            "them as .npz or .parquet."
        )
        assert told(ShapeError, write_hits, tmp_path / name, hits) == expected


@pytest.mark.parametrize("name", ["a.ivecs", "a.ibin"])
@pytest.mark.promise(
    "Hits are the same in every format; an id beyond int32 is refused where it does not fit"
)
def test_ids_above_int32_are_refused_before_anything_is_touched(tmp_path: Path, name: str) -> None:
    write_hits(str(tmp_path / name), Hits(scores=SCORES, ids=IDS))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    message = told(InputError, write_hits, tmp_path / name, Hits(scores=SCORES, ids=IDS + 1))
    assert (
        message
        == f"{name}: id 2147483648 is above int32's 2147483647. Fix: write the hits as .npz or "
        ".parquet."
    )
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_scores_never_overwrite_vectors(tmp_path: Path) -> None:
    queries = written(tmp_path, "query.fvecs", struct.pack("<i2f", 2, 1, 0))
    expected = (
        "query.ivecs: its scores would overwrite query.fvecs, which holds something else. "
        "Fix: name another path, or move that file."
    )
    assert (
        told(ExistsError, write_hits, tmp_path / "query.ivecs", Hits(scores=SCORES, ids=IDS))
        == expected
    )
    written(tmp_path, "query.ivecs", struct.pack("<4i", 3, 0, 1, 2))
    assert told(ExistsError, check_hits_path, tmp_path / "query.ivecs") == expected
    assert Path(queries).read_bytes() == struct.pack("<i2f", 2, 1, 0)


def test_old_scores_never_stay_beside_new_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a.ivecs")
    write_hits(path, Hits(scores=SCORES, ids=IDS))
    write_hits(path, Hits(scores=None, ids=IDS))
    same(read_hits(path), None, IDS)
    write_hits(path, Hits(scores=SCORES, ids=IDS))
    whole = os.fsync
    calls: list[int] = []

    def full_disk(file: int) -> None:
        calls.append(file)
        if len(calls) > 2:  # the ids and their folder are safe, the scores are not
            raise OSError(28, "No space left on device")
        whole(file)

    monkeypatch.setattr(os, "fsync", full_disk)
    assert "No space left on device" in told(
        StorageError, write_hits, path, Hits(scores=SCORES, ids=IDS[:, ::-1])
    )
    same(read_hits(path), None, IDS[:, ::-1])


def test_paths_are_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for action in (check_hits_path, read_hits):
        assert told(InputError, action, tmp_path / "a.csv") == (
            "a.csv: unknown suffix '.csv' for hits, expected .ivecs .ibin .npy .npz .parquet .h5 "
            '.hdf5. Fix: name its format, as hits_format="ibin", or rename the file.'
        )
    with pytest.raises(
        NotFoundError,
        match=r"the folder .*gone does not exist\. Fix: create it, or name another path\.",
    ):
        check_hits_path(str(tmp_path / "gone" / "a.npz"))
    assert not (tmp_path / "gone").exists()
    (tmp_path / "b.npz").mkdir()
    assert told(ExistsError, check_hits_path, tmp_path / "b.npz") == (
        "b.npz: a folder, expected a file to write. Fix: name another path."
    )
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(
        StorageError, match=r"a\.npz: the folder .* cannot be written\. Fix: grant access, or name"
    ):
        check_hits_path(str(tmp_path / "a.npz"))


def test_a_path_in_this_folder_needs_no_folder_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_hits("a.ivecs", Hits(scores=SCORES, ids=IDS)) == ["a.ivecs", "a.fvecs"]
    same(read_hits("a.ivecs"), SCORES, IDS)


@pytest.mark.parametrize("suffix", [".ivecs", ".ibin", ".npz", ".parquet"])
def test_nothing_and_folders_are_no_hits(tmp_path: Path, suffix: str) -> None:
    assert (
        told(NotFoundError, read_hits, tmp_path / f"a{suffix}")
        == f"a{suffix}: no such file or folder. Fix: check the path."
    )
    (tmp_path / f"a{suffix}").mkdir()
    assert told(FormatError, read_hits, tmp_path / f"a{suffix}") == (
        f"a{suffix}: not a regular file, expected hits. Fix: name the file."
    )


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return stream.getvalue()


def npy_header(descr: str, shape: str) -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


AGAIN = "Fix: fetch or write the file again."
NO_NUMBERS = "expected an array of numbers. Fix: save it again as float32, or texts as str."
ANOTHER_SIZE = "of int64. Fix: fetch or save the file again."
NO_HITS = "Fix: name a file of hits."
BAD_FILES = [  # … stands for any text
    (
        "a.ibin",
        struct.pack("<II2i", 2, 3, 0, 0),
        ": 16 bytes, expected 32 (ids) or 56 (ids and scores) for the header's n = 2, d = 3 of 4 "
        "bytes. Fix: fetch the file again, or check that its suffix is right.",
    ),
    ("a.ibin", b"", ": 0 bytes, expected a header of 8. Fix: fetch the file again."),
    ("a.ibin", struct.pack("<II", 2, 0), ": the header says n = 2 rows of d = 0, expected …"),
    (
        "a.ibin",
        struct.pack("<II2i", 1, 2, 0, -2),
        ": query 0 has the id -2 at rank 1, expected ids ≥ 0, or -1 for none. Fix: fetch the file "
        "again, or check that it holds hits.",
    ),
    ("a.ivecs", b"", ": 0 bytes, expected at least the 4 that say d. Fix: fetch the file again."),
    ("a.ivecs", struct.pack("<3i", 3, 0, 0), ": 12 bytes, expected a multiple of 16 (d = 3 of 4 …"),
    ("a.parquet", b"", f": the Parquet file is damaged (…). {AGAIN}"),
    ("a.parquet", b"PAR1PAR1", f": the Parquet file is damaged (…). {AGAIN}"),
    ("a.npz", b"", f": the zip is damaged (…). {AGAIN}"),
    ("a.npz", b"PK\x03\x04 and no more", f": the zip is damaged (…). {AGAIN}"),
    ("a.npz", zipped(), f": no array ids, I or neighbors, expected ids int64[nq, k]. {NO_HITS}"),
    (
        "a.npz",
        zipped(ids=npy_header("<i8", "(1, 1)") + bytes(7)),
        f"::ids: 75 bytes, expected 76 for the header's (1, 1) {ANOTHER_SIZE}",
    ),
    (
        "a.npz",
        zipped(ids=npy_header("<i8", f"({2**50}, {2**50})")),
        f"::ids: …, expected {2**103 + 98} for the header's ({2**50}, {2**50}) {ANOTHER_SIZE}",
    ),
    ("a.npy", npy_header("<U0", "(5, 3)"), f": the header says shape (5, 3) of <U0, {NO_NUMBERS}"),
    (
        "a.npz",
        zipped(ids=npy_header("|O", "(1, 1)") + pickle.dumps([0])),
        f"::ids: the header says Python objects, {NO_NUMBERS}",
    ),
    ("a.npz", zipped(ids=b"junk"), "::ids: no .npy header of version 1.0 or 2.0 (…). Fix: …"),
]


@loop_over(("name", "data", "expected"), BAD_FILES)
@pytest.mark.promise("No pickle is read")
def test_bad_files_are_refused(tmp_path: Path, name: str, data: bytes, expected: str) -> None:
    message = told(FormatError, read_hits, written(tmp_path, name, data))
    assert re.fullmatch(re.escape(f"{name}{expected}").replace("…", ".*"), message), message


SCORES_MEND = "expected floats [2, 3]. Fix: write the file again."


@loop_over(
    ("arrays", "expected"),
    [
        ({"ids": IDS[0]}, f"ids int64[3], expected ids int64[nq, k]. {NO_HITS}"),
        ({"ids": SCORES}, f"ids float32[2, 3], expected ids int64[nq, k]. {NO_HITS}"),
        (
            {"ids": np.array([[2**64 - 1]], np.uint64)},
            f"id 18446744073709551615 is above int64. {NO_HITS}",
        ),
        ({"ids": IDS, "scores": SCORES[:1]}, f"scores float32[1, 3], {SCORES_MEND}"),
        ({"ids": IDS, "scores": IDS}, f"scores int64[2, 3], {SCORES_MEND}"),
    ],
)
def test_bad_arrays_are_refused(
    tmp_path: Path, arrays: dict[str, NDArray[Any]], expected: str
) -> None:
    message = told(FormatError, read_hits, npz(tmp_path / "a.npz", **arrays))
    assert message == f"a.npz: {expected}"


def table(path: Path, **columns: Any) -> str:
    parquet.write_table(pa.table(columns), path)
    return str(path)


def lists(rows: list[Any], number: str = "int64", kind: Any = None) -> pa.Array:
    return pa.array(rows, (kind or pa.list_)(pa.type_for_alias(number)))


LISTS = [pa.list_, pa.large_list, lambda number: pa.list_(number, 3)]
ROWS, TENTHS = [[3, 1, 2], [9, 0, 7]], [[1.0, 0.5, -0.25], [0.75, float("nan"), float("-inf")]]


@pytest.mark.parametrize("kind", LISTS, ids=["list", "large_list", "fixed_size_list"])
def test_lists_of_any_kind_and_number_are_hits(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "a.parquet"
    for number in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        same(read_hits(table(path, ids=lists(ROWS, number, kind))), None, np.array(ROWS))
    for number, kept in (("float16", "f4"), ("float32", "f4"), ("float64", "f8")):
        typed = pa.array(
            [[np.float16(score) for score in row] for row in TENTHS]
            if number == "float16"
            else TENTHS
        )
        scores = typed.cast(kind(pa.type_for_alias(number)))
        columns = {
            "name": pa.array(["x", None]),
            "scores": scores,
            "ids.x": lists(ROWS),
            "ids": lists(ROWS, kind=kind),
        }
        same(read_hits(table(path, **columns)), np.array(TENTHS, kept), np.array(ROWS))


def test_row_groups_are_read_as_one(tmp_path: Path) -> None:
    ids = np.arange(3 * 40).reshape(40, 3)
    parquet.write_table(
        pa.table({"ids": lists(ids.tolist())}), tmp_path / "a.parquet", row_group_size=7
    )
    same(read_hits(str(tmp_path / "a.parquet")), None, ids)
    parquet.write_table(
        pa.table({"ids": lists([*ids.tolist()[:30], [1, None, 2]])}),
        tmp_path / "a.parquet",
        row_group_size=7,
    )
    assert "a.parquet::ids: a number is missing (null) in row 30" in told(
        FormatError, read_hits, tmp_path / "a.parquet"
    )


K_MEND = "Fix: write the file again, k ids per query, -1 where there are fewer."
A_LIST = f"expected one list of k numbers per query. {NO_HITS}"
BAD_TABLES: list[tuple[dict[str, Any], str]] = [
    (
        {"query": pa.array([0]), "rank": pa.array([0]), "id": pa.array([7])},
        f": the columns are ['query', 'rank', 'id'], expected ids, a list of k per query. {NO_HITS}",
    ),
    ({"ids": pa.array([1, 2])}, f"::ids: a column of int64, {A_LIST}"),
    ({"ids": pa.nulls(2)}, f"::ids: a column of null, {A_LIST}"),
    ({"ids": lists([["7"]], "string")}, f"::ids: a column of list<element: string>, {A_LIST}"),
    (
        {"ids": lists([[1, 2], [3], []])},
        f"::ids: row 1 has 1 numbers, expected 2 as in row 0. {K_MEND}",
    ),
    (
        {"ids": lists([[1], [2]]), "scores": lists([[1], [0.5, 0.25]], "float32")},
        f"::scores: row 1 has 2 numbers, expected 1 as in row 0. {K_MEND}",
    ),
    (
        {"ids": lists([[1], [2], None])},
        f"::ids: row 2 is missing, expected 1 as in row 0. {K_MEND}",
    ),
    (
        {"ids": lists([[1], [2]]), "scores": lists([[1], [None]], "float64")},
        f"::scores: a number is missing (null) in row 1, expected numbers. {K_MEND}",
    ),
]


@loop_over(("columns", "expected"), BAD_TABLES)
def test_bad_tables_are_refused(tmp_path: Path, columns: dict[str, Any], expected: str) -> None:
    message = told(FormatError, read_hits, table(tmp_path / "a.parquet", **columns))
    assert message == f"a.parquet{expected}"


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    parquet.write_table(
        pa.Table.from_arrays([lists([[1]])] * 2, ["ids", "ids"]), tmp_path / "a.parquet"
    )
    assert told(FormatError, read_hits, tmp_path / "a.parquet") == (
        "a.parquet: more than one column is called ids, expected one. Fix: rename the others."
    )


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_flipped_bits_are_refused_or_harmless(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    write_hits(str(path), Hits(scores=SCORES, ids=IDS))
    good = path.read_bytes()
    for at in range(0, len(good) * 8, 3):  # every byte, and each bit of some
        data = bytearray(good)
        data[at // 8] ^= 1 << (at % 8)
        path.write_bytes(data)
        try:
            read = read_hits(str(path))
        except FormatError:
            continue
        np.testing.assert_array_equal(read.ids, IDS)
        assert read.scores is None or np.array_equal(read.scores, SCORES)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_every_truncation_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    write_hits(str(path), Hits(scores=SCORES, ids=IDS))
    good = path.read_bytes()
    for size in range(len(good)):
        path.write_bytes(good[:size])
        assert f"a{suffix}" in told(FormatError, read_hits, path)


def test_hits_know_their_shapes() -> None:
    with pytest.raises(ShapeError) as raised:
        Hits(scores=None, ids=IDS[0])
    assert str(raised.value) == (
        "hits: ids are int64[3], expected int64[nq, k]. Fix: pass one row of ids per query."
    )
    with pytest.raises(ShapeError) as raised:
        Hits(scores=SCORES[:1], ids=IDS)
    assert str(raised.value) == (
        "hits: scores are float32[1, 3], expected floats of the ids' shape [2, 3]. Fix: pass "
        "one score per id."
    )

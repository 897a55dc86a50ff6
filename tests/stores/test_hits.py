"""Hits come back as they were written, in files that other tools read, and bad files are refused."""

import io
import os
import pickle
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from stores.errors import ExistsError, FormatError, InputError, MercoreError, NotFoundError, ShapeError, StorageError
from stores.hits import Hits, check_hits_path, read_hits, write_hits
from tests.strategies import hit_arrays

Arrays = tuple[NDArray[Any] | None, NDArray[np.int64]]
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
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


@pytest.mark.parametrize("suffix", [".ivecs", ".ibin", ".npz", ".NPZ"])
def test_hits_come_back(tmp_path: Path, suffix: str) -> None:
    @in_one_folder
    @given(arrays=hit_arrays())
    def check(arrays: Arrays) -> None:
        path = str(tmp_path / f"a{suffix}")
        paths = write_hits(path, Hits(scores=arrays[0], ids=arrays[1]))
        assert paths == [path, *([str(tmp_path / "a.fvecs")] if suffix == ".ivecs" and arrays[0] is not None else [])]
        assert sorted(paths) == sorted(map(str, tmp_path.iterdir()))
        same(read_hits(path), *arrays)

    check()


@in_one_folder
@given(arrays=hit_arrays(score="f8", max_id=2**63 - 1))
def test_npz_keeps_float64_and_int64_and_its_bytes(tmp_path: Path, arrays: Arrays) -> None:
    hits = Hits(scores=arrays[0], ids=arrays[1])
    write_hits(str(tmp_path / "a.npz"), hits)
    first = (tmp_path / "a.npz").read_bytes()
    os.utime(tmp_path / "a.npz", (0, 0))
    write_hits(str(tmp_path / "b.npz"), read_hits(str(tmp_path / "a.npz")))
    assert (tmp_path / "b.npz").read_bytes() == first
    same(read_hits(str(tmp_path / "b.npz")), *arrays)
    with np.load(tmp_path / "b.npz", allow_pickle=False) as loaded:
        np.testing.assert_array_equal(loaded["ids"], arrays[1], strict=True)


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
        tmp_path / "a.npz", ids=np.asfortranarray(IDS.astype(">i4")), scores=SCORES.astype(np.float16), k=np.array(3)
    )
    same(read_hits(path), SCORES, IDS)
    same(
        read_hits(npz(tmp_path / "a.npz", ids=IDS.clip(0).astype(np.uint64), scores=SCORES.astype(">f8"))),
        SCORES.astype(np.float64),
        IDS.clip(0),
    )


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_no_hits_fit_npz_alone(tmp_path: Path, shape: tuple[int, int]) -> None:
    hits = Hits(scores=np.zeros(shape, np.float32), ids=np.zeros(shape, np.int64))
    write_hits(str(tmp_path / "a.npz"), hits)
    same(read_hits(str(tmp_path / "a.npz")), hits.scores, hits.ids)
    for name in ("a.ivecs", "a.ibin"):
        expected = f"{name}: hits of shape {list(shape)}, expected at least one. Mend: write them as .npz."
        assert told(ShapeError, write_hits, tmp_path / name, hits) == expected


@pytest.mark.parametrize("name", ["a.ivecs", "a.ibin"])
def test_ids_above_int32_are_refused_before_anything_is_touched(tmp_path: Path, name: str) -> None:
    write_hits(str(tmp_path / name), Hits(scores=SCORES, ids=IDS))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    message = told(InputError, write_hits, tmp_path / name, Hits(scores=SCORES, ids=IDS + 1))
    assert message == f"{name}: id 2147483648 is above int32's 2147483647. Mend: write the hits as .npz."
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_scores_never_overwrite_vectors(tmp_path: Path) -> None:
    queries = written(tmp_path, "query.fvecs", struct.pack("<i2f", 2, 1, 0))
    expected = (
        "query.ivecs: its scores would overwrite query.fvecs, which holds something else. "
        "Mend: name another path, or move that file."
    )
    assert told(ExistsError, write_hits, tmp_path / "query.ivecs", Hits(scores=SCORES, ids=IDS)) == expected
    written(tmp_path, "query.ivecs", struct.pack("<4i", 3, 0, 1, 2))
    assert told(ExistsError, check_hits_path, tmp_path / "query.ivecs") == expected
    assert Path(queries).read_bytes() == struct.pack("<i2f", 2, 1, 0)


def test_old_scores_never_stay_beside_new_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "No space left on device" in told(StorageError, write_hits, path, Hits(scores=SCORES, ids=IDS[:, ::-1]))
    same(read_hits(path), None, IDS[:, ::-1])


def test_paths_are_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for action in (check_hits_path, read_hits):
        assert told(InputError, action, tmp_path / "a.csv") == (
            "a.csv: unknown suffix '.csv' for hits, expected .ivecs .ibin .npz. Mend: rename the file."
        )
    with pytest.raises(
        NotFoundError, match=r"the folder .*gone does not exist\. Mend: create it, or name another path\."
    ):
        check_hits_path(str(tmp_path / "gone" / "a.npz"))
    assert not (tmp_path / "gone").exists()
    (tmp_path / "b.npz").mkdir()
    assert told(ExistsError, check_hits_path, tmp_path / "b.npz") == (
        "b.npz: a folder, expected a file to write. Mend: name another path."
    )
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StorageError, match=r"a\.npz: the folder .* cannot be written\. Mend: grant access, or name"):
        check_hits_path(str(tmp_path / "a.npz"))


def test_a_path_in_this_folder_needs_no_folder_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_hits("a.ivecs", Hits(scores=SCORES, ids=IDS)) == ["a.ivecs", "a.fvecs"]
    same(read_hits("a.ivecs"), SCORES, IDS)


@pytest.mark.parametrize("suffix", [".ivecs", ".ibin", ".npz"])
def test_nothing_and_folders_are_no_hits(tmp_path: Path, suffix: str) -> None:
    assert (
        told(NotFoundError, read_hits, tmp_path / f"a{suffix}")
        == f"a{suffix}: no such file or folder. Mend: check the path."
    )
    (tmp_path / f"a{suffix}").mkdir()
    assert told(FormatError, read_hits, tmp_path / f"a{suffix}") == (
        f"a{suffix}: not a regular file, expected hits. Mend: name the file."
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


SIZE_MEND = "Mend: fetch the file again, or check that its suffix is right."
BAD_FILES = [
    (
        "a.ibin",
        struct.pack("<II2i", 2, 3, 0, 0),
        "a.ibin: 16 bytes, expected 32 (ids) or 56 (ids and scores) for the header's n = 2, d = 3 of 4 bytes. "
        f"{SIZE_MEND}",
    ),
    ("a.ibin", b"", "a.ibin: 0 bytes, expected a header of 8. Mend: fetch the file again."),
    ("a.ibin", struct.pack("<II", 2, 0), "a.ibin: the header says n = 2 rows of d = 0, expected …"),
    (
        "a.ibin",
        struct.pack("<II2i", 1, 2, 0, -2),
        "a.ibin: query 0 has the id -2 at rank 1, expected ids ≥ 0, or -1 for none. "
        "Mend: fetch the file again, or check that it holds hits.",
    ),
    ("a.ivecs", b"", "a.ivecs: 0 bytes, expected at least the 4 that say d. Mend: fetch the file again."),
    ("a.ivecs", struct.pack("<3i", 3, 0, 0), "a.ivecs: 12 bytes, expected a multiple of 16 (d = 3 of 4 bytes, …"),
    ("a.npz", b"", "a.npz: the zip is damaged (…). Mend: fetch or write the file again."),
    ("a.npz", b"PK\x03\x04 and no more", "a.npz: the zip is damaged (…). Mend: fetch or write the file again."),
    ("a.npz", zipped(), "a.npz: no array ids, expected ids int64[nq, k]. Mend: name a file of hits."),
    (
        "a.npz",
        zipped(ids=npy_header("<i8", "(1, 1)") + bytes(7)),
        f"a.npz[ids.npy]: {len(npy_header('<i8', '(1, 1)')) + 7} bytes, expected … for (1, 1). Mend: fetch it again.",
    ),
    (
        "a.npz",
        zipped(ids=npy_header("<i8", f"({2**50}, {2**50})")),
        f"a.npz[ids.npy]: … bytes, expected {2**103 + 98} for ({2**50}, {2**50}). Mend: fetch it again.",
    ),
    (
        "a.npz",
        zipped(ids=npy_header("|O", "(1, 1)") + pickle.dumps([0])),
        "a.npz[ids.npy]: the header says Python objects, expected an array of numbers. Mend: save it again as float32.",
    ),
    (
        "a.npz",
        zipped(ids=b"junk"),
        "a.npz[ids.npy]: no .npy header of version 1.0 or 2.0 (…). Mend: …",
    ),
]


@pytest.mark.parametrize(("name", "data", "expected"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_bad_files_are_refused(tmp_path: Path, name: str, data: bytes, expected: str) -> None:
    message = told(FormatError, read_hits, written(tmp_path, name, data))
    assert re.fullmatch(re.escape(expected).replace("…", ".*"), message), message


BAD_ARRAYS: list[tuple[dict[str, NDArray[Any]], str]] = [
    ({"ids": IDS[0]}, "a.npz: ids int64[3], expected ids int64[nq, k]. Mend: name a file of hits."),
    ({"ids": SCORES}, "a.npz: ids float32[2, 3], expected ids int64[nq, k]. Mend: name a file of hits."),
    (
        {"ids": np.array([[2**64 - 1]], np.uint64)},
        "a.npz: id 18446744073709551615 is above int64. Mend: name a file of hits.",
    ),
    (
        {"ids": IDS, "scores": SCORES[:1]},
        "a.npz: scores float32[1, 3], expected floats [2, 3]. Mend: write the file again.",
    ),
    ({"ids": IDS, "scores": IDS}, "a.npz: scores int64[2, 3], expected floats [2, 3]. Mend: write the file again."),
]


@pytest.mark.parametrize(("arrays", "expected"), BAD_ARRAYS, ids=range(len(BAD_ARRAYS)))
def test_bad_arrays_are_refused(tmp_path: Path, arrays: dict[str, NDArray[Any]], expected: str) -> None:
    assert told(FormatError, read_hits, npz(tmp_path / "a.npz", **arrays)) == expected


def test_every_flipped_bit_of_an_npz_is_refused_or_harmless(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npz")
    write_hits(path, Hits(scores=SCORES, ids=IDS))
    good = Path(path).read_bytes()
    for at in range(len(good)):
        data = bytearray(good)
        data[at] ^= 1 << (at % 8)
        Path(path).write_bytes(data)
        try:
            read = read_hits(path)
        except FormatError:
            continue
        np.testing.assert_array_equal(read.ids, IDS)
        assert read.scores is None or np.array_equal(read.scores, SCORES)


def test_hits_know_their_shapes() -> None:
    with pytest.raises(ShapeError) as raised:
        Hits(scores=None, ids=IDS[0])
    assert str(raised.value) == ("hits: ids are int64[3], expected int64[nq, k]. Mend: pass one row of ids a query.")
    with pytest.raises(ShapeError) as raised:
        Hits(scores=SCORES[:1], ids=IDS)
    assert str(raised.value) == (
        "hits: scores are float32[1, 3], expected floats of the ids' shape [2, 3]. Mend: pass one score an id."
    )

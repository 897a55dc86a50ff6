"""Batches come back whole to the search that put them, and to no other; damaged ones are not
done."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.typing import NDArray

from mercore.stores.errors import ExistsError, FormatError, IntegrityError, StorageError
from mercore.stores.formats.npz import npz_bytes, read_npz
from mercore.stores.results.partial_answers import Answers
from mercore.stores.spec import digest
from tests.support.forgetful import Disk, recorded, tree_of

JOB: dict[str, Any] = {
    "k": 3,
    "kernel": {"name": "chi2", "configuration": {}},
    "queries": "ab",
    "batch": 2,
}
IDS = np.array([[3, 1, -1], [2**40, 0, 7]])
SCORES = np.array([[1, 0.5, -np.inf], [0.75, 0.5, 0]], np.float32)
BATCH: dict[str, NDArray[Any]] = {
    "ids": IDS,
    "scores": np.asfortranarray(SCORES),
    "none": np.empty((0, 3), ">u2"),
    "seconds": np.array(1.5),
}
FIRST, SECOND = "batch-00000000.npz", "batch-00000001.npz"


@pytest.fixture
def out(tmp_path: Path) -> str:
    """The output whose batches are kept in ``hits.npz.parts``."""
    return str(tmp_path / "hits.npz")


def folder_of(out: str) -> Path:
    return Path(f"{out}.parts")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def same(found: dict[str, NDArray[Any]] | None, arrays: dict[str, NDArray[Any]]) -> None:
    assert found is not None
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def refused(error: type[Exception], out: str, job: dict[str, Any] = JOB) -> str:
    with pytest.raises(error) as raised:
        Answers(out, job)
    assert type(raised.value) is error
    return str(raised.value).replace(f"{Path(out).parent}/", "")


def test_batches_come_back_to_a_search_that_begins_again(out: str) -> None:
    answers = Answers(out, JOB)
    assert answers.get(0) is None
    answers.put(1, BATCH)
    same(answers.get(1), BATCH)
    again = Answers(out, dict(reversed(JOB.items())))
    assert again.get(0) is None
    same(again.get(1), BATCH)
    again.put(0, {"ids": IDS + 1})
    again.put(1, {"ids": IDS})
    same(answers.get(0), {"ids": IDS + 1})
    same(answers.get(1), {"ids": IDS})
    assert names(folder_of(out)) == [FIRST, SECOND, "search.json"]
    answers.put(10**9, {})
    same(answers.get(10**9), {})
    answers.clear()
    assert names(Path(out).parent) == []


def test_equal_batches_have_equal_bytes(out: str) -> None:
    answers = Answers(out, JOB)
    answers.put(0, BATCH)
    first = (folder_of(out) / FIRST).read_bytes()
    answers.put(0, {**BATCH, "scores": np.ascontiguousarray(SCORES)})
    assert (folder_of(out) / FIRST).read_bytes() == first
    with np.load(folder_of(out) / FIRST, allow_pickle=False) as loaded:
        np.testing.assert_array_equal(loaded["ids"], IDS, strict=True)


@pytest.mark.promise("No pickle is read")
def test_no_object_is_ever_pickled(out: str) -> None:
    answers = Answers(out, JOB)
    with pytest.raises(ValueError, match="pickle"):
        answers.put(0, {"ids": np.array([{}])})
    assert names(folder_of(out)) == ["search.json"]


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        ({"k": 4}, "k (3, not 4)"),
        (
            {"k": 4, "kernel": {"name": "rbf", "configuration": {"gamma": 0.5}}},
            "k (3, not 4), kernel (chi2, not rbf (gamma 0.5))",
        ),
        ({"rerank": None}, "rerank (unset, not None)"),
        ({"batch": 2.0}, "batch (2, not 2.0)"),
        ({"k": ...}, "k (3, not unset)"),
    ],
)
def test_another_search_is_told_what_differs(out: str, change: dict[str, Any], keys: str) -> None:
    Answers(out, JOB).put(0, BATCH)
    expected = (
        f"hits.npz.parts keeps the batches of another search, which differs in {keys}: expected "
        "those of this one. Fix: remove the folder, or name another out."
    )
    job = {key: value for key, value in {**JOB, **change}.items() if value is not ...}
    assert refused(ExistsError, out, job) == expected
    same(Answers(out, JOB).get(0), BATCH)


def test_two_searches_keep_their_batches_apart(tmp_path: Path) -> None:
    one, other = (
        Answers(str(tmp_path / "a.npz"), JOB),
        Answers(str(tmp_path / "b.npz"), {**JOB, "k": 4}),
    )
    one.put(0, BATCH)
    other.put(0, {"ids": IDS})
    (tmp_path / "a.npz.parts" / FIRST).replace(tmp_path / "b.npz.parts" / FIRST)
    assert one.get(0) is None
    assert other.get(0) is None
    other.put(0, {"ids": IDS})
    (tmp_path / "b.npz.parts" / FIRST).replace(tmp_path / "b.npz.parts" / SECOND)
    assert other.get(1) is None  # a batch in the place of another


NOT_OURS = (
    "hits.npz.parts exists without a search.json: expected the batches of this search, or nothing. "
    "Fix: move it away, or name another out."
)


def test_a_folder_or_file_of_others_is_refused_and_stays(out: str) -> None:
    folder = folder_of(out)
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    (folder / ".file.12-0123abcd.tmp").touch()
    assert refused(ExistsError, out) == NOT_OURS
    assert names(folder) == [".file.12-0123abcd.tmp", "thesis.txt"]
    (folder / "thesis.txt").rename(Path(out).parent / "thesis.txt")
    (folder / ".file.12-0123abcd.tmp").unlink()
    folder.rmdir()
    folder.write_text("a file")
    assert refused(ExistsError, out) == NOT_OURS
    assert folder.read_text() == "a file"


def test_a_search_killed_before_it_named_its_folder_begins_again(out: str) -> None:
    folder = folder_of(out)
    folder.mkdir()
    (folder / ".search.json.12-0123abcd.tmp").write_text("{")
    Answers(out, JOB).put(0, BATCH)
    assert names(folder) == [FIRST, "search.json"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Expecting value: line 1 column 1 (char 0)"),
        (
            '{"digest":"0","job":{"k":3},"name":"mercore-search","version":1}',
            f"its digest is {digest({'k': 3})}, it says 0",
        ),
    ],
)
def test_a_damaged_name_is_refused(out: str, text: str, reason: str) -> None:
    Answers(out, JOB)
    (folder_of(out) / "search.json").write_text(text)
    assert refused(IntegrityError, out) == (
        f"hits.npz.parts/search.json is damaged: {reason}. Fix: remove the folder hits.npz.parts, "
        "or name another out."
    )


def test_every_flipped_byte_of_the_name_is_refused(out: str) -> None:
    Answers(out, JOB)
    path = folder_of(out) / "search.json"
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        with pytest.raises((IntegrityError, FormatError)):
            Answers(out, JOB)
    path.write_bytes(good)
    Answers(out, JOB)


def test_another_version_of_the_format_is_refused(out: str) -> None:
    Answers(out, JOB)
    path = folder_of(out) / "search.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "version": 2}))
    assert refused(FormatError, out) == (
        "hits.npz.parts/search.json: version is 2, expected 1. "
        "Fix: read it with the version of mercore that wrote it, or write it anew."
    )


def test_a_flipped_or_missing_byte_of_a_batch_is_not_done_or_harmless(out: str) -> None:
    answers = Answers(out, JOB)
    answers.put(0, BATCH)
    path = folder_of(out) / FIRST
    good = path.read_bytes()
    undone = 0
    for at in range(len(good)):
        path.write_bytes(good[:at])
        assert answers.get(0) is None
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        found = answers.get(0)
        undone += found is None
        if found is not None:  # the time of day, for one
            same(found, BATCH)
    assert undone > len(good) // 2
    answers.put(0, BATCH)
    assert path.read_bytes() == good


def test_arrays_that_a_receipt_does_not_vouch_for_are_not_done(out: str) -> None:
    answers = Answers(out, JOB)
    answers.put(0, BATCH)
    path = folder_of(out) / FIRST
    good = read_npz(str(path))
    receipt = good.pop("receipt")
    for arrays in (
        good,
        {**good, "receipt": receipt[None]},
        {**good, "receipt": np.array(0)},
        {**good, "ids": IDS + 1, "receipt": receipt},
        {**good, "ids": IDS.view(np.uint64), "receipt": receipt},
        {**good, "ids": IDS.ravel(), "receipt": receipt},
        {**good, "more": IDS, "receipt": receipt},
        {"ids": IDS, "receipt": receipt},
    ):
        path.write_bytes(npz_bytes(arrays))
        assert answers.get(0) is None
    path.write_bytes(npz_bytes({**good, "receipt": receipt}))
    same(answers.get(0), BATCH)


DIE_PUTTING = """
import os, sys
import numpy as np
from pathlib import Path
from mercore.stores.results.partial_answers import Answers
answers = Answers(sys.argv[1], {"k": 3})
answers.put(0, {"ids": np.zeros((2, 3), np.int64)})
Path.rename = lambda *_: os.kill(os.getpid(), 9)
answers.put(1, {"ids": np.zeros((2, 3), np.int64)})
"""


def test_a_kill_in_the_middle_of_a_put_leaves_that_batch_to_do(out: str) -> None:
    died = subprocess.run([sys.executable, "-c", DIE_PUTTING, out], check=False)
    assert died.returncode == -9
    (left,) = (name for name in names(folder_of(out)) if name.endswith(".tmp"))
    assert left.startswith(f".{SECOND}.")
    answers = Answers(out, {"k": 3})
    assert names(folder_of(out)) == [FIRST, "search.json"]
    same(answers.get(0), {"ids": np.zeros((2, 3), np.int64)})
    assert answers.get(1) is None


def test_a_full_disk_leaves_the_earlier_batches(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    answers = Answers(out, JOB)
    answers.put(0, BATCH)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="No space left on device"):
            answers.put(1, BATCH)
    assert names(folder_of(out)) == [FIRST, "search.json"]
    same(answers.get(0), BATCH)


def test_clearing_leaves_what_is_not_the_searchs(out: str) -> None:
    answers = Answers(out, JOB)
    answers.put(0, BATCH)
    folder = folder_of(out)
    (folder / ".batch-00000001.npz.12-0123abcd.tmp").touch()
    (folder / "notes.txt").touch()
    answers.clear()
    assert names(folder) == ["notes.txt"]
    answers.clear()
    (folder / "notes.txt").unlink()
    answers.clear()
    answers.clear()
    assert names(Path(out).parent) == []


def test_a_kill_in_the_middle_of_clearing_leaves_a_search_that_resumes(
    out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers(out, JOB)
    answers.put(0, BATCH)
    answers.put(1, BATCH)
    unlink, calls = Path.unlink, iter([False, True])

    def killed(path: Path, *, missing_ok: bool = False) -> None:
        if next(calls):
            raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            answers.clear()
    again = Answers(out, JOB)
    assert sorted(again.get(batch) is None for batch in (0, 1)) == [False, True]
    again.clear()
    assert names(Path(out).parent) == []


@pytest.mark.promise(
    "After a power cut at any moment, the same command ends in the bytes of an undisturbed run; of a command that had ended, nothing is lost"
)
def test_a_power_cut_takes_no_batch(out: str, tmp_path: Path) -> None:
    with recorded(tmp_path) as steps:
        Answers(out, JOB).put(0, BATCH)
    disk = Disk({})
    disk.apply(*steps)
    assert list(disk.left(default_rng(0), 100)) == [tree_of(tmp_path)]

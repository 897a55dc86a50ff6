"""The folder that forgets: what it may leave of a few steps, and that no step goes unseen."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from numpy.random import default_rng

from tests.support.forgetful import Disk, Step, Tree, cuts, lay, recorded, tree_of

EVERY = 1 << 20  # more folders than a few steps can leave
NEW = b"new" * 300  # two sectors


def left(start: Tree, *steps: Step) -> list[Tree]:
    """All folders that a power cut can leave after the steps."""
    found: list[Tree] = []
    for seed in range(20):  # which sectors are torn is drawn
        for _, tree in cuts(start, steps, {len(steps)}, default_rng(seed), EVERY):
            found += [] if tree in found else [tree]
    return found


PUBLISHED = (
    Step("make", ".x.tmp"),
    Step("write", ".x.tmp", data=NEW),
    Step("sync", ".x.tmp"),
    Step("rename", ".x.tmp", "x"),
)


def test_a_file_that_is_synced_before_its_rename_is_old_or_new() -> None:
    old: Tree = {"x": b"old"}
    found = left(old, *PUBLISHED)
    assert len(found) == 3
    assert all(tree in found for tree in (old, {"x": NEW}, {"x": b"old", ".x.tmp": NEW}))
    assert left(old, *PUBLISHED, Step("sync", ".")) == [{"x": NEW}]


def test_a_file_that_is_renamed_before_its_bytes_are_synced_may_hold_anything() -> None:
    found = {
        tree["x"] for tree in left({}, PUBLISHED[0], PUBLISHED[1], PUBLISHED[3]) if "x" in tree
    }
    torn = (b"\0" * 512 + NEW[512:], NEW[:512] + b"\0" * (len(NEW) - 512))
    assert found == {b"", NEW, bytes(len(NEW)), *torn}


def test_a_file_in_a_new_folder_is_lost_with_it() -> None:
    steps = (Step("mkdir", "a"), Step("make", "a/x"), Step("sync", "a/x"), Step("sync", "a"))
    assert left({}, *steps) == [{}, {"a": None, "a/x": b""}]
    assert left({}, *steps, Step("sync", ".")) == [{"a": None, "a/x": b""}]


def test_changes_of_names_are_kept_and_lost_in_any_order() -> None:
    start: Tree = {"a": b"1", "b": b"2"}
    found = left(start, Step("remove", "a"), Step("remove", "b"))
    assert len(found) == 4
    assert all(tree in found for tree in (start, {"a": b"1"}, {"b": b"2"}, {}))
    found = left(start, Step("rename", "a", "b"), Step("remove", "b"))
    assert len(found) == 4
    assert all(tree in found for tree in (start, {"b": b"1"}, {"a": b"1"}, {}))


def test_of_many_changes_some_are_drawn_all_and_none_among_them() -> None:
    steps = [Step("make", str(number)) for number in range(40)]
    found = [tree for _, tree in cuts({}, steps, {40}, default_rng(0), 50)]
    assert len(found) == 50
    assert {} in found
    assert dict.fromkeys(map(str, range(40)), b"") in found


def write_in_all_ways(root: Path) -> None:
    """Write, rename and remove as the product does, and in other ways of Python."""
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "x").write_bytes(b"1")
    with (root / "a" / "x").open("r+b") as file:
        file.write(NEW)
        file.flush()
        os.fsync(file.fileno())
    handle = os.open(root / "y", os.O_RDWR | os.O_CREAT)
    os.pwrite(handle, b"12345", 0)
    os.ftruncate(handle, 3)
    os.close(handle)
    (root / "y").rename(root / "z")
    (root / "z").replace(root / "w")
    (root / "old").unlink()
    shutil.rmtree(root / "a" / "b")
    threads = [
        Thread(target=(root / f"thread{number}").write_text, args=("x" * number,))
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    folder = os.open(root / "a", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


def test_the_steps_of_python_are_recorded(tmp_path: Path) -> None:
    lay({"old": b"old", "kept": b"kept"}, tmp_path)
    start = tree_of(tmp_path)
    with recorded(tmp_path) as steps:
        write_in_all_ways(tmp_path)
    disk = Disk(start)
    disk.apply(*steps)
    assert disk.tree() == tree_of(tmp_path)
    assert Step("write", "a/x", data=NEW) in steps
    assert [step.path for step in steps if step.kind == "sync"] == ["a/x", "a"]


UNSEEN: dict[str, Callable[[Path], object]] = {
    "a link": lambda root: (root / "link").symlink_to(root),
    "a process": lambda root: subprocess.run(["touch", root / "x"], check=True),
    "a library": lambda root: sqlite3.connect(root / "x").execute("CREATE TABLE t (x)").close(),
}


@pytest.mark.parametrize("write", UNSEEN.values(), ids=UNSEEN)
@pytest.mark.promise(
    "After a power cut at any moment, the same command ends in the bytes of an undisturbed run; of a command that had ended, nothing is lost"
)
def test_what_is_written_unseen_fails_the_recording(
    write: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError), recorded(tmp_path):
        write(tmp_path)

"""Scratch names: a living writer's stay, a dead one's go, and nothing else is touched."""

import subprocess
import sys
from pathlib import Path

import pytest

from mercore.stores.location.scratch import scratch_file, scratch_folder, sweep, sweep_tree

DIE_WRITING = """
import os, pathlib, sys
from mercore.stores.location.scratch import scratch_file, scratch_folder
folder = pathlib.Path(sys.argv[1])
with scratch_file(folder / "file") as (_, file), scratch_folder(folder / "store") as scratch:
    (scratch / "inside").write_text("half")
    file.write(b"half")
    file.flush()
    os._exit(1)
"""


def names(folder: Path) -> list[str]:
    """Return what lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def leave_behind(folder: Path) -> None:
    """Let another process die while it writes a file and a folder."""
    subprocess.run([sys.executable, "-c", DIE_WRITING, str(folder)], check=False)
    assert len(names(folder)) == 2


def test_what_a_dead_writer_left_goes(tmp_path: Path) -> None:
    leave_behind(tmp_path)
    sweep(tmp_path)
    assert names(tmp_path) == []


def test_only_what_was_to_have_the_name_goes(tmp_path: Path) -> None:
    leave_behind(tmp_path)
    sweep(tmp_path, "store")
    assert [name.split(".")[1] for name in names(tmp_path)] == ["file"]


def test_folders_below_are_swept_too(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    leave_behind(tmp_path / "a/b")
    sweep_tree(tmp_path)
    assert names(tmp_path / "a/b") == []


def test_what_a_living_writer_holds_stays(tmp_path: Path) -> None:
    with (
        scratch_file(tmp_path / "file") as (scratch, file),
        scratch_folder(tmp_path / "store") as folder,
    ):
        file.write(b"half")
        sweep_tree(tmp_path)
        assert names(tmp_path) == sorted([scratch.name, folder.name])
        scratch.rename(tmp_path / "file")
        folder.rename(tmp_path / "store")
    sweep_tree(tmp_path)
    assert names(tmp_path) == ["file", "store"]


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError),
        scratch_file(tmp_path / "file"),
        scratch_folder(tmp_path / "store") as folder,
    ):
        (folder / "inside/deeper").touch()
    assert names(tmp_path) == []


def test_other_names_stay(tmp_path: Path) -> None:
    others = (
        ".file.tmp .file.12-abc.tmp file.12-0123abcd.tmp .file.12-0123abcd .12-0123abcd.tmp".split()
    )
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / ".link.12-0123abcd.tmp").symlink_to(tmp_path / ".file.tmp")
    sweep(tmp_path)
    assert names(tmp_path) == sorted([*others, ".link.12-0123abcd.tmp"])
    sweep(tmp_path / "nowhere")


def test_a_sweep_between_creation_and_lock_makes_the_writer_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    really, quick = fcntl.flock, iter([True, False])

    def flock(descriptor: int, how: int) -> None:
        if next(quick, False):
            for path in tmp_path.iterdir():
                path.unlink()
        really(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with scratch_file(tmp_path / "file") as (scratch, _):
        assert names(tmp_path) == [scratch.name]


def test_a_file_system_without_locks_serves_but_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    leave_behind(tmp_path)

    def flock(descriptor: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", flock)
    with scratch_file(tmp_path / "other") as (scratch, _):
        sweep(tmp_path)
        scratch.rename(tmp_path / "other")
    assert len(names(tmp_path)) == 3

"""The state folder is private to its owner, and locks show which processes live."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mercore.jobs.background.runner import start_runner_quietly
from mercore.jobs.background.state_folder import FOLDER, StateFolder, open_state, state_folder
from mercore.stores.errors import StorageError
from mercore.stores.location.file_lock import held, take


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a state folder that does not exist."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "deep/state"))
    return tmp_path / "deep/state"


@pytest.mark.promise("The state folder is its owner's alone")
def test_it_is_made_for_its_owner_alone(folder: Path) -> None:
    state = open_state()
    assert state.path == folder == state_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    state.make_folder("encode-1")
    assert state.lock("encode-1").parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701])
@pytest.mark.promise("The state folder is its owner's alone")
def test_one_that_others_can_look_into_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(StorageError) as refused:
        open_state()
    assert str(refused.value) == (
        f"{folder} is open to others: found mode {mode:o}, expected 700. Fix: chmod 700 {folder}"
    )


@pytest.mark.promise("The state folder is its owner's alone")
def test_one_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_state()
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(
        StorageError,
        match=rf"^{folder} belongs to user {owner}: expected {owner + 1}, who you are\. ",
    ):
        open_state()


def test_without_the_environment_it_is_the_platforms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(FOLDER)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "mercore"


def test_other_verbs_make_no_state_and_care_for_none_that_is_broken(folder: Path) -> None:
    start_runner_quietly()
    assert not folder.exists()
    folder.mkdir(parents=True, mode=0o700)
    (folder / "registry.sqlite").write_bytes(b"no database" * 1000)
    start_runner_quietly()


def test_a_lock_is_held_for_as_long_as_its_process_lives(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not held(path)
    lock = take(path)
    assert lock is not None
    assert held(path)
    assert take(path) is None
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[lock])
    os.close(lock)
    assert held(path), "the child has inherited it"
    child.kill()
    child.communicate()
    assert not held(path)
    assert StateFolder(tmp_path).alive("encode-1") is False

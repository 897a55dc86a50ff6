"""The commands and the Python of the README, run in their order, in one folder, as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import blocks
from tests.support.object_server import object_server
from tests.support.queueing import Queue

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
INSTALLING = "python3 -m venv"  # .ci/run types these blocks
LARGE = "mercore plan"


def type_block(language: str, text: str, folder: Path, queue: Queue) -> str:
    """Run a block in a folder; every command of it must succeed. Return its stdout."""
    words = [sys.executable, "-c", text] if language == "python" else ["bash", "-ec", text]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"PATH": path} | queue.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def type_until(stop: str, folder: Path, queue: Queue) -> list[tuple[str, str]]:
    """Run the blocks before the one that begins so; return pairs of printed and shown text."""
    outputs: list[tuple[str, str]] = []
    printed = ""
    for language, text in blocks(README):
        if text.startswith(stop):
            return outputs
        if language == "text":
            outputs.append((printed, text))
        elif language in ("sh", "python") and not text.startswith(INSTALLING):
            printed = type_block(language, text, folder, queue)
    raise AssertionError(f"no block begins with {stop}")


def test_every_block_is_run_or_shown() -> None:
    languages = [language for language, _ in blocks(README)]
    assert set(languages) == {"sh", "python", "text"}
    assert sum(text.startswith(INSTALLING) for _, text in blocks(README)) == 2
    assert 'readme_command "mercore demo"' in (ROOT / ".ci/run").read_text()
    assert 'readme_command "pytest"' in (ROOT / ".ci/run").read_text()


def test_five_minutes_print_what_is_shown(tmp_path: Path, queue: Queue) -> None:
    outputs = type_until(LARGE, tmp_path, queue)
    assert len(outputs) == 2
    for printed, shown in outputs:
        assert printed[-len(shown) :] == shown


@pytest.mark.slow
def test_the_commands_for_large_data(tmp_path: Path, queue: Queue) -> None:
    type_until(LARGE, tmp_path, queue)
    (large,) = (text for _, text in blocks(README) if text.startswith(LARGE))
    with object_server():
        type_block("sh", large, tmp_path, queue)
    jobs = [name for name in ("encode", "search") if queue.wait(name)["state"] == "done"]
    assert jobs == ["encode", "search"]
    assert {"big.npz", "two.npz", "s3.npz", "s3.npz.certificate.npz"} <= {
        path.name for path in tmp_path.iterdir()
    }

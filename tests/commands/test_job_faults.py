"""Faults of disks and sources end a job with a clear reason; resume gives the same bytes."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.queueing import Queue, until
from tests.support.running import ENCODE, count_receipts, files_of, histograms, succeed

PARTS = 300
OPTIONS = (*ENCODE, "--part-rows", 10, "--workers", 1)

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(
            f"mounting a file system is not allowed here: {mounted.stderr.decode().strip()}"
        )
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="module")
def undisturbed(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the store that an undisturbed encode in the foreground writes."""
    store = tmp_path_factory.mktemp("undisturbed") / "codes"
    succeed(f"encode {vectors} {store}", *OPTIONS)
    return files_of(store)


def begun(queue: Queue, vectors: Path, codes: Path) -> str:
    """Submit an encode, and return its id once some parts are done."""
    job = queue.submit(f"encode {vectors} {codes}", *OPTIONS)
    until(lambda: count_receipts(codes) > 10)
    return job


def failed(queue: Queue, job: str, code: int = 1) -> str:
    """Wait until a job has failed; return why."""
    report = queue.wait(job)
    assert (report["state"], report["exit_code"]) == ("failed", code)
    why: str = report["why"]
    assert why.count("Fix: ") == 1
    return why


def resumed(queue: Queue, job: str) -> dict[str, Any]:
    """Resume a job; return its status at the end."""
    queue.succeed("resume", job)
    return queue.wait(job)


@pytest.mark.promise(
    "A full disk, or a source that vanishes or changes, fails a job; `resume` goes on"
)
def test_a_disk_that_fills_up(
    vectors: Path, undisturbed: dict[str, bytes], queue: Queue, disk: Path
) -> None:
    codes = disk / "codes"
    job = begun(queue, vectors, codes)
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(bytes(1 << 12)):
                pass
        except OSError as error:
            assert error.errno == 28  # noqa: PT017 - ENOSPC, the fault of this test
    why = failed(queue, job)
    assert why.startswith(f"cannot write {codes}/")
    assert why.endswith(
        ": No space left on device. Fix: free space there, then run the same command again."
    )
    done = count_receipts(codes)
    assert 10 < done < PARTS
    (disk / "ballast").unlink()
    report = resumed(queue, job)
    assert (report["state"], report["parts_done"]) == ("done", PARTS)
    assert files_of(codes) == undisturbed


def test_a_disk_that_becomes_read_only(
    vectors: Path, undisturbed: dict[str, bytes], queue: Queue, disk: Path
) -> None:
    codes = disk / "codes"
    job = begun(queue, vectors, codes)
    subprocess.run(
        ["mount", "--bind", disk, disk], check=True
    )  # over the mount whose files are open
    remount = ["mount", "-o", "remount,bind,ro", str(disk)]
    while b"busy" in subprocess.run(remount, capture_output=True, check=False).stderr:
        pass  # a file was open for writing at that moment
    assert "Read-only file system" in failed(queue, job)
    queue.succeed("resume", job)
    assert "Read-only file system" in failed(queue, job)
    subprocess.run(["umount", disk], check=True)
    assert resumed(queue, job)["state"] == "done"
    assert files_of(codes) == undisturbed


@pytest.mark.promise(
    "A full disk, or a source that vanishes or changes, fails a job; `resume` goes on"
)
def test_a_source_that_vanishes(vectors: Path, undisturbed: dict[str, bytes], queue: Queue) -> None:
    source = Path(shutil.copytree(vectors, queue.folder / "vectors"))
    job = begun(queue, source, queue.folder / "codes")
    source.rename(queue.folder / "away")
    assert f"{source}" in failed(queue, job)
    queue.succeed("resume", job)
    assert failed(queue, job, 2).startswith(f"{source} does not exist: expected a vector store.")
    done = count_receipts(queue.folder / "codes")
    (queue.folder / "away").rename(source)
    report = resumed(queue, job)
    assert (report["state"], report["runs"]) == ("done", 3)
    assert done < PARTS
    files = files_of(queue.folder / "codes")
    assert {**files, "zarr.json": b""} == {
        **undisturbed,
        "zarr.json": b"",
    }  # which notes the path of the source


@pytest.mark.promise(
    "A full disk, or a source that vanishes or changes, fails a job; `resume` goes on"
)
def test_a_source_that_changes_under_a_job(vectors: Path, queue: Queue) -> None:
    source = Path(shutil.copytree(vectors, queue.folder / "vectors"))
    np.save(queue.folder / "other.npy", histograms(3000, 24, seed=9))
    succeed(f"ingest {queue.folder}/other.npy {queue.folder}/other")
    job = begun(queue, source, queue.folder / "codes")
    source.rename(queue.folder / "first")
    (queue.folder / "other").rename(source)
    why = failed(queue, job)
    assert str(source) in why
    queue.succeed("resume", job)
    assert "codes is another store: it differs in source (" in failed(queue, job, 2)
    before = files_of(queue.folder / "codes")
    source.rename(queue.folder / "other")
    (queue.folder / "first").rename(source)
    assert resumed(queue, job)["state"] == "done"
    after = files_of(queue.folder / "codes")
    assert {name: after[name] for name in before} == before

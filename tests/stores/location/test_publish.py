"""A published file is there whole or not at all, whoever else publishes, whatever fails."""

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mercore.stores.errors import NotFoundError, StorageError
from mercore.stores.location.publish import exists, publish, storage_errors, sync_folder
from mercore.stores.location.resolve import location_of


def test_a_file_is_published_with_the_folders_above_it_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "atoms" / "c" / "3" / "0"
    publish(path, b"first")
    publish(path, memoryview(b"second"))
    assert path.read_bytes() == b"second"
    assert [entry.name for entry in path.parent.iterdir()] == ["0"]


@pytest.mark.promise("A file is whole or absent, after a power cut too")
def test_the_bytes_are_durable_before_the_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def watched_fsync(descriptor: int) -> None:
        kind = "folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file"
        told.append(f"fsync {kind} of {os.fstat(descriptor).st_size if kind == 'file' else 'any'}")
        fsync(descriptor)

    def watched_rename(scratch: Path, target: Path) -> Path:
        told.append(f"rename {scratch.stat().st_size} to {target.name}")
        return rename(scratch, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "rename", watched_rename)
    publish(tmp_path / "chunk", b"12345")
    assert told == ["fsync file of 5", "rename 5 to chunk", "fsync folder of any"]


def test_every_file_and_folder_of_a_draft_is_durable_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", watched)
    store = tmp_path / "store"
    keys = ["vectors/c/0/0", "vectors/c/1/0", "vectors/zarr.json", "receipts/c/0/0"]
    with location_of(store).draft() as draft:
        for key in keys:
            (draft.location / key).publish(b"first ", b"second")
        draft.finish(b"{}")
    assert (store / keys[0]).read_bytes() == b"first second"
    *before, last = synced  # under the name of the draft, and then the folder of the new name
    assert last == tmp_path
    (scratch,) = {path for path in before if path.parent == tmp_path}
    made = [store, *store.rglob("*")]
    assert {path.relative_to(scratch) for path in before} == {
        path.relative_to(store) for path in made
    }
    assert sorted(path.name for path in made if path.is_file()) == [
        "0",
        "0",
        "0",
        *["zarr.json"] * 2,
    ]
    for path in made[1:]:  # a folder is synced after what it holds was made
        name = scratch / path.relative_to(store)
        assert before.index(name.parent) > (before.index(name) if path.is_file() else -1)


def failing(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("where", ["fsync", "rename"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
@pytest.mark.promise("A file is whole or absent, after a power cut too")
def test_a_failure_leaves_nothing_behind_and_the_old_file_whole(
    where: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chunk"
    publish(path, b"old")
    with monkeypatch.context() as patched:
        owner: object = os if where == "fsync" else Path
        patched.setattr(owner, where, failing(error))
        with pytest.raises(
            StorageError if isinstance(error, OSError) else KeyboardInterrupt
        ) as refusal:
            publish(path, b"newer")
    if isinstance(error, OSError):
        assert str(refusal.value) == (
            f"cannot write {path}: No space left on device. "
            "Fix: free space there, then run the same command again."
        )
    assert [entry.name for entry in tmp_path.iterdir()] == ["chunk"]
    assert path.read_bytes() == b"old"


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError) as refusal:
        publish(tmp_path / "file" / "chunk", b"")
    assert str(refusal.value).startswith(f"cannot write {tmp_path}/file/chunk: ")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_publishers_at_once_never_interleave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see the whole of one writer's bytes at any moment, and no scratch file is left."""
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: None
    )  # the waits would only slow the race down
    path, size, writers = tmp_path / "chunk", 1 << 16, 6
    publish(path, bytes(size))
    seen: set[bytes] = set()
    done = threading.Event()

    def write(writer: int) -> None:
        for _ in range(60):
            publish(path, bytes([writer]) * size)

    def read() -> int:
        reads = 0
        while not done.is_set() or reads < 10:
            data = path.read_bytes()
            assert len(data) == size
            assert data == data[:1] * size
            seen.add(data[:1])
            reads += 1
        return reads

    with ThreadPoolExecutor(writers + 2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for future in [pool.submit(write, writer) for writer in range(1, writers + 1)]:
                future.result()
        finally:
            done.set()
        assert all(reader.result() >= 10 for reader in readers)
    assert len(seen) > 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["chunk"]


def test_what_is_not_there_is_told_from_what_may_not_be_read(tmp_path: Path) -> None:
    assert exists(tmp_path)
    assert not exists(tmp_path / "absent")
    (tmp_path / "file").write_bytes(b"")
    assert not exists(tmp_path / "file" / "below")
    with pytest.raises(NotFoundError) as absent, storage_errors("read", "x"):
        (tmp_path / "absent").read_bytes()
    assert str(absent.value) == "x does not exist: cannot read it. Fix: check the path."
    with pytest.raises(StorageError) as refused, storage_errors("read", "x"):
        raise PermissionError(errno.EACCES, "Permission denied")
    assert str(refused.value) == (
        "cannot read x: Permission denied. Fix: grant access there, then run the same command "
        "again."
    )
    with pytest.raises(StorageError) as unlocked, storage_errors("write", ".base.zarr.lease"):
        raise OSError(errno.ENOLCK, "No locks available")
    assert str(unlocked.value) == (
        "cannot write .base.zarr.lease: No locks available. Fix: name a folder of a local disk, or "
        "start the lock service of this file system (lockd of NFS), then run the same command "
        "again."
    )
    with (
        pytest.raises(StorageError, match="free space or grant access"),
        storage_errors("read", "x"),
    ):
        raise OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="No such file"):
        sync_folder(tmp_path / "absent")

"""Files of a store are dropped from the page cache, and read into it before they are asked for."""

import ctypes
import os
import time
from pathlib import Path

import numpy as np
import pytest

import mercore
from mercore.stores import vector_writer
from mercore.stores.part_store.page_cache import forget, read_soon

SIZE, PAGE = 3 << 20, 4096


def share_cached(path: Path) -> float:
    """The share of a file's pages in the page cache; asking reads none."""
    pages, found = np.memmap(path, np.uint8, "r"), np.zeros(SIZE // PAGE, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    first, out = (ctypes.c_void_p(array.ctypes.data) for array in (pages, found))
    assert libc.mincore(first, ctypes.c_size_t(SIZE), out) == 0, ctypes.get_errno()
    return float((found & 1).mean())


def test_files_that_are_read_soon_are_in_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "chunk"
    with path.open("wb") as file:
        file.write(bytes(SIZE))
        file.flush()
        os.fsync(file.fileno())
    forget([tmp_path / "missing", path])
    if share_cached(path) == 1:
        pytest.skip("the file system keeps all files in memory")
    read_soon([tmp_path / "missing", path])
    end = time.monotonic() + 10
    while share_cached(path) < 1:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_rows_behind_the_first_of_a_store_leave_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_writer, "CHUNK_BYTES", SIZE)
    monkeypatch.setattr(vector_writer, "CACHED_BYTES", SIZE // 2)
    mercore.ingest(np.ones((12, SIZE // 4), np.uint8), tmp_path / "store")
    shares = [share_cached(tmp_path / f"store/vectors/c/{part}/0") for part in range(3)]
    if min(shares) == 1:
        pytest.skip("the file system keeps all files in memory")
    assert shares[0] == 1
    assert max(shares[1:]) < 0.1

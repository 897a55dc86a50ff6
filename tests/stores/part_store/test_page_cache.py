"""Files of a store are dropped from the page cache, and read into it before they are asked for."""

import errno
import os
import time
from pathlib import Path

import pytest

from mercore.stores.part_store.page_cache import forget, read_soon

SIZE, PAGE = 3 << 20, 4096


def cached(path: Path) -> bool:
    """Whether every page of a file can be read without waiting for the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        for start in range(0, SIZE, PAGE):
            os.preadv(handle, [bytearray(PAGE)], start, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("the file system cannot say what is in the page cache")
    finally:
        os.close(handle)
    return True


def test_files_that_are_read_soon_are_in_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "chunk"
    with path.open("wb") as file:
        file.write(bytes(SIZE))
        file.flush()
        os.fsync(file.fileno())
    forget([path])
    if cached(path):
        pytest.skip("the file system keeps all files in memory")
    read_soon([tmp_path / "missing", path])
    end = time.monotonic() + 20
    while not cached(path):
        assert time.monotonic() < end
        time.sleep(0.01)

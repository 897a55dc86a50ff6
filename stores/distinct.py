"""Counting of distinct row digests in bounded memory: the rest goes to files by leading byte."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from mercore.stores.location.publish import storage_errors

CAPACITY = 1 << 20  # digests in memory, 8 MiB
BUCKETS = 256
COUNTERS = 2  # threads that count the files


class DistinctCounter:
    """A counter of distinct 64-bit digests."""

    def __init__(self, scratch: Path, *, capacity: int = CAPACITY) -> None:
        self._scratch = scratch
        self._capacity = capacity
        self._blocks: list[NDArray[np.uint64]] = []
        self._pending = 0
        self._files: list[BinaryIO] = []

    def add(self, digests: NDArray[np.uint64]) -> None:
        """Add digests, uint64[any]."""
        self._blocks.append(digests.copy())
        self._pending += digests.size
        if self._pending > self._capacity:
            self._spill()

    def count(self) -> int:
        """Return the number of distinct digests, and drop all digests."""
        if not self._files:
            blocks, self._blocks, self._pending = self._blocks, [], 0
            return self._unique(np.concatenate(blocks)) if blocks else 0
        self._spill()
        with ThreadPoolExecutor(COUNTERS) as pool:
            total = sum(pool.map(self._count_file, self._files))
        self._files = []
        return total

    def close(self) -> None:
        """Remove the files."""
        for file in self._files:
            file.close()

    def _spill(self) -> None:
        """Move the digests from memory to the files of their leading byte."""
        digests = np.concatenate([*self._blocks, np.empty(0, np.uint64)])
        digests.sort()
        edges = np.arange(BUCKETS + 1, dtype=object) << 56
        cuts = [0, *np.searchsorted(digests, np.array(edges[1:-1], np.uint64)), digests.size]
        with storage_errors("write", self._scratch):
            if not self._files:
                self._files = [self._scratch_file() for _ in range(BUCKETS)]
            for file, first, last in zip(self._files, cuts[:-1], cuts[1:], strict=True):
                file.write(digests[first:last].tobytes())
        self._blocks, self._pending = [], 0

    def _scratch_file(self) -> BinaryIO:
        """Return an empty file without a name, which closing removes."""
        return tempfile.TemporaryFile(dir=self._scratch)

    def _count_file(self, file: BinaryIO) -> int:
        """Return the number of distinct digests in a file, and remove it."""
        with file:
            file.seek(0)
            return self._unique(np.frombuffer(file.read(), np.uint64))

    @staticmethod
    def _unique(digests: NDArray[np.uint64]) -> int:
        ascending = np.sort(digests)  # np.unique hashes, which takes several times as long
        return int(np.count_nonzero(ascending[1:] != ascending[:-1])) + min(1, ascending.size)

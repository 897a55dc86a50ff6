"""Count distinct row digests in bounded memory: what does not fit is sorted into files by its leading byte."""

import tempfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from mercore.stores.location.publish import storage_errors

HELD = 1 << 23  # digests held in memory, 64 MiB
BUCKETS = 256


class DistinctCounter:
    """Count how many of the 64-bit digests that were added are distinct."""

    def __init__(self, scratch: Path, *, held: int = HELD) -> None:
        self._scratch = scratch
        self._capacity = held
        self._blocks: list[NDArray[np.uint64]] = []
        self._held = 0
        self._files: list[BinaryIO] = []

    def add(self, digests: NDArray[np.uint64]) -> None:
        """Add digests, uint64[any]."""
        self._blocks.append(digests.copy())
        self._held += digests.size
        if self._held > self._capacity:
            self._spill()

    def count(self) -> int:
        """Return the number of distinct digests, and forget them all."""
        if not self._files:
            blocks, self._blocks, self._held = self._blocks, [], 0
            return self._unique(np.concatenate(blocks)) if blocks else 0
        self._spill()
        total = 0
        for file in self._files:
            file.seek(0)
            total += self._unique(np.frombuffer(file.read(), np.uint64))
            file.close()
        self._files = []
        return total

    def close(self) -> None:
        """Drop whatever was spilled."""
        for file in self._files:
            file.close()

    def _spill(self) -> None:
        """Move the digests in memory to the files of their leading byte."""
        digests = np.sort(np.concatenate(self._blocks)) if self._blocks else np.empty(0, np.uint64)
        edges = np.arange(BUCKETS + 1, dtype=object) << 56
        cuts = [0, *np.searchsorted(digests, np.array(edges[1:-1], np.uint64)), digests.size]
        with storage_errors("write", self._scratch):
            if not self._files:
                self._files = [self._scratch_file() for _ in range(BUCKETS)]
            for file, first, last in zip(self._files, cuts[:-1], cuts[1:], strict=True):
                file.write(digests[first:last].tobytes())
        self._blocks, self._held = [], 0

    def _scratch_file(self) -> BinaryIO:
        """Return an empty file without a name, gone when it is closed."""
        return tempfile.TemporaryFile(dir=self._scratch)

    @staticmethod
    def _unique(digests: NDArray[np.uint64]) -> int:
        return int(np.unique(digests).size)

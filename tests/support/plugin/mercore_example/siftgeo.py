"""Files .siftgeo, as INRIA's Holidays and Copydays have them: SIFT descriptors with their places."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import FormatError
from mercore.stores.formats.binary import open_binary
from mercore.stores.formats.source import StoredSource, check_row_range

DIMS = 128
RECORD = np.dtype([("place", "<f4", 9), ("d", "<i4"), ("vector", "u1", DIMS)])


class SiftGeo(StoredSource):
    """The vectors of a .siftgeo file, uint8[n, 128]."""

    kind = "siftgeo"

    def __init__(self, path: str) -> None:
        self._file = open_binary(path)
        n, rest = divmod(self._file.size, RECORD.itemsize)
        if rest or not n:
            raise FormatError(
                f"{path}: {self._file.size} bytes, expected a multiple of {RECORD.itemsize}. "
                "Fix: fetch the file again."
            )
        super().__init__(path, (n, DIMS), np.dtype(np.uint8))

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop)."""
        check_row_range(self, start, stop)
        records = np.empty(stop - start, RECORD)
        self._file.read_into(records.view(np.uint8), start * RECORD.itemsize)
        wrong = np.flatnonzero(records["d"] != DIMS)
        if wrong.size:
            raise FormatError(
                f"{self.name}: row {start + wrong[0]} says d = {records['d'][wrong[0]]}, expected "
                f"{DIMS}. Fix: fetch the file again."
            )
        return np.ascontiguousarray(records["vector"])


def open_siftgeo(path: str, member: str | None) -> SiftGeo:
    """Open a file; it has no members."""
    if member is not None:
        raise FormatError(f"{path}: found ::{member}, expected no array in it. Fix: leave it out.")
    return SiftGeo(path)

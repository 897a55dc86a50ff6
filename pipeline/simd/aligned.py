"""Arrays that start on a cache line: a vector load of 64 bytes then touches one line, not two."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

CACHE_LINE = 64


def aligned(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return zeros of a shape and dtype that start on a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(size + CACHE_LINE, np.uint8)
    start = -room.ctypes.data % CACHE_LINE
    return room[start : start + size].view(dtype).reshape(shape)


def in_panels(table: NDArray[Any], width: int) -> NDArray[Any]:
    """Return a table [m, Q] in zero-padded panels of ``width`` columns: [⌈Q / width⌉, m, width]."""
    m, count = table.shape
    panels = aligned((-(-count // width), m, width), table.dtype)
    for panel, start in zip(panels, range(0, count, width), strict=True):
        columns = table[:, start : start + width]
        panel[:, : columns.shape[1]] = columns
    return panels

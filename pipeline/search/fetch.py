"""Fetch rows that are looked up, on several threads, and keep some of them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.parallel import over_parts
from mercore.stores.vectors import Lookup, Vectors

ROW_CACHE_BYTES = 1 << 22  # of raw rows
Ids = NDArray[np.int64]
FetchRows = Callable[[Ids], NDArray[Any]]


def fetch(lookup: Lookup, *, threads: int) -> NDArray[Any]:
    """Return the rows that are looked up, dtype[p, d]."""
    vectors = lookup.vectors
    out = np.empty((len(lookup.rows), vectors.dims), vectors.dtype)

    def work(steps: Iterator[int]) -> None:
        for step in steps:
            out[lookup.places[step]] = lookup.read(step)

    over_parts(lookup.steps, lookup.readers(threads), work)
    return out


class RowCache:
    """A cache of raw rows, at most ``ROW_CACHE_BYTES``: their parts need not be read again."""

    def __init__(self, vectors: Vectors, threads: int) -> None:
        self._vectors, self._threads = vectors, threads
        self._cached: list[tuple[Ids, NDArray[Any]]] = []
        self._free_bytes = ROW_CACHE_BYTES

    def keep(self, rows: Ids, values: NDArray[Any], selected: Ids) -> None:
        """Keep the selected rows, if all of them fit.

        Parameters
        ----------
        rows : int64[p], ascending
        values : dtype[p, d], the rows' contents
        selected : int64[s], ascending positions in ``rows``
        """
        size = len(selected) * values[:1].nbytes
        if 0 < size <= self._free_bytes:
            self._cached.append((rows[selected], values[selected]))
            self._free_bytes -= size

    def fetch(self, rows: Ids) -> NDArray[Any]:
        """Return the named rows, dtype[p, d].

        ``rows`` int64[p] ascend. Rows that are not cached are read.
        """
        out = np.empty((len(rows), self._vectors.dims), self._vectors.dtype)
        missing = np.ones(len(rows), np.bool_)
        for cached, values in self._cached:
            positions = np.minimum(np.searchsorted(cached, rows), len(cached) - 1)
            known = missing & (cached[positions] == rows)
            out[known] = values[positions[known]]
            missing &= ~known
        out[missing] = fetch(self._vectors.look_up(rows[missing]), threads=self._threads)
        return out

"""Scan the cells near each query, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.cells.centres import Centres
from mercore.pipeline.encoders.encoder import CoordinateEncoder, Encoder
from mercore.pipeline.parallel import over_parts
from mercore.pipeline.topk import TopK, top_k_of
from mercore.stores.indexes.cells import ROWS, CellStore
from mercore.stores.part_store.row_lookup import Range
from mercore.stores.selection import Selection

BLOCK = 32  # queries, at most, whose tables are made at once


class Probed(NamedTuple):
    """The best rows by code in the cells near each query, and the rows scanned, int64[nq]."""

    top_k: TopK
    scanned: NDArray[np.int64]


class CellCache:
    """Columns of cells that were read and checked, for any number of threads; they stay.

    Parameters
    ----------
    cache_bytes : size of the cache; at 0 it stays empty
    """

    def __init__(self, cache_bytes: int) -> None:
        self.cells: dict[int, list[NDArray[Any]]] = {}
        self.cache_bytes = self.left = cache_bytes
        self.hits = 0  # of several threads at once may count as one
        self._lock = Lock()

    def offer(self, cell: int, columns: list[NDArray[Any]]) -> None:
        """Keep the columns of a cell if there is space left."""
        size = sum(values.nbytes for values in columns)
        with self._lock:
            if size > self.left or cell in self.cells:
                return
            self.left -= size
        self.cells[cell] = [values.copy() for values in columns]


@dataclass(frozen=True)
class OpenCells:
    """An open index of cells, its centres, the encoder of queries, and the cells to probe.

    ``selection`` says which rows take part, None for all; rows are then counted among them.
    """

    store: CellStore
    encoder: Encoder
    centres: Centres
    probes: int
    selection: Selection | None = None
    cache: CellCache = field(default_factory=lambda: CellCache(0))

    @classmethod
    def of(cls, store: CellStore, encoder: Encoder, probes: int, cache_bytes: int = 0) -> Self:
        """Return an open index whose cells stay in memory while there is space in the cache."""
        return cls(store, encoder, Centres(store.model), probes, None, CellCache(cache_bytes))

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of rows as a scan returns them; −1 stays −1."""
        return self.store.ids_of(rows if self.selection is None else self.selection.rows_of(rows))

    def hold_all(self) -> int:
        """Read cells into the cache while it has space; return the bytes that it holds."""
        count, cache = self.store.spec.cells, self.cache
        step = max(1, count // self.store.parts)
        for first in range(0, count, step):
            missing = [
                cell for cell in range(first, min(first + step, count)) if cell not in cache.cells
            ]
            if missing:
                self._from_store(missing)
            if any(cell not in cache.cells for cell in missing):
                break
        return cache.cache_bytes - cache.left

    def scan(self, queries: NDArray[Any], k: int, *, threads: int) -> Probed:
        """Return each query's top k by code of the rows of its ``probes`` nearest cells, float32.

        Where these cells hold fewer rows, the last ids are −1. Of rows that tie at the k-th place,
        those of lower cells enter, and of one cell the lower rows. The answer to a query does not
        depend on the others.

        Parameters
        ----------
        queries : dtype[nq, d], raw rows
        k : int ≥ 1

        Raises
        ------
        IntegrityError
            If a byte that is read differs from the byte that was written.
        """
        encoder = cast(CoordinateEncoder, self.encoder)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        ids, scanned = np.full((len(queries), k), -1, np.int64), np.zeros(len(queries), np.int64)
        step = min(BLOCK, -(-len(queries) // threads))

        def work(starts: Iterator[int]) -> None:
            for start in starts:
                points = encoder.embed(queries[start : start + step], label="query")
                near = self.centres.nearest(points, self.probes)
                for number, scanner in enumerate(encoder.scanners(points), start):
                    columns, rows = self._read(near[number - start])
                    best = TopK(1, k, np.float32)
                    scanner.scan(columns, 0, best)
                    found = best.ids[0] >= 0
                    ids[number, found] = rows[best.ids[0, found]]
                    scores[number, found] = best.scores[0, found]
                    scanned[number] = len(rows)

        over_parts(list(range(0, len(queries), step)), threads, work)
        return Probed(top_k_of(scores, ids, k), scanned)

    def _read(self, cells: NDArray[np.int64]) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
        """Return the columns of the rows of cells that take part, and the numbers of the rows."""
        names, wanted = self.store.store.layout.column_names, np.sort(cells).tolist()
        held = self.cache.cells
        missing = [cell for cell in wanted if cell not in held]
        self.cache.hits += len(wanted) - len(missing)
        read = self._from_store(missing) if missing else {}
        found = [read[cell] if cell in read else held[cell] for cell in wanted]
        columns = {
            name: np.concatenate(values)
            for name, values in zip(names, zip(*found, strict=True), strict=True)
        }
        rows = columns.pop(ROWS).astype(np.int64)
        if self.selection is None:
            return columns, rows
        numbers = self.selection.numbers_of(rows)
        kept = np.flatnonzero(numbers >= 0)
        return {name: each[kept] for name, each in columns.items()}, numbers[kept]

    def _from_store(self, cells: list[int]) -> dict[int, list[NDArray[Any]]]:
        """Return the columns of ascending cells, read and checked, and offer them to the cache."""
        runs, store, wanted = self.store.runs, self.store, np.array(cells)
        ranges = [each for starts in runs for each in ranges_of(starts, wanted)]
        columns = [store.read(name, ranges) for name in store.store.layout.column_names]
        sizes = np.concatenate([starts[wanted + 1] - starts[wanted] for starts in runs])
        pieces = [np.split(values, np.cumsum(sizes)[:-1]) for values in columns]
        read = {
            cell: [_joined(each[number :: len(cells)]) for each in pieces]
            for number, cell in enumerate(cells)
        }
        if self.cache.cache_bytes:
            for cell, values in read.items():
                self.cache.offer(cell, values)
        return read


def _joined(pieces: list[NDArray[Any]]) -> NDArray[Any]:
    """Return the rows of a cell from those of each run."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def ranges_of(starts: NDArray[np.int64], cells: NDArray[np.int64]) -> list[Range]:
    """Return the ranges of places of some cells, ascending; those of neighbouring cells are one."""
    ordered = np.sort(cells)
    first, behind = starts[ordered], starts[ordered + 1]
    new = np.flatnonzero(np.append(True, first[1:] != behind[:-1]))
    bounds = pairwise([*new.tolist(), len(ordered)])
    ranges = [(int(first[begin]), int(behind[end - 1])) for begin, end in bounds]
    return [each for each in ranges if each[0] < each[1]]

"""Scan the cells near each query, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.cells.centres import Centres
from mercore.pipeline.encoders.encoder import CoordinateEncoder, Encoder
from mercore.pipeline.parallel import over_parts
from mercore.pipeline.topk import TopK, top_k_of
from mercore.stores.indexes.cells import ROWS, CellStore
from mercore.stores.part_store.row_lookup import Range
from mercore.stores.selection import Selection


class Probed(NamedTuple):
    """The best rows by code in the cells near each query, and the rows scanned, int64[nq]."""

    top_k: TopK
    scanned: NDArray[np.int64]


@dataclass(frozen=True)
class OpenCells:
    """An open index of cells, the encoder of queries, and the number of cells to probe.

    ``selection`` says which rows take part, None for all; rows are then counted among them.
    """

    store: CellStore
    encoder: Encoder
    probes: int
    selection: Selection | None = None

    @cached_property
    def centres(self) -> Centres:
        """The centres of the cells."""
        return Centres(self.store.model)

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of rows as a scan returns them; −1 stays −1."""
        return self.store.ids_of(rows if self.selection is None else self.selection.rows_of(rows))

    def scan(self, queries: NDArray[Any], k: int, *, threads: int) -> Probed:
        """Return each query's top k by code of the rows of its ``probes`` nearest cells, float32.

        Where these cells hold fewer rows, the last ids are −1. The answer to a query does not
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
        encoder, embed = self.encoder, cast(CoordinateEncoder, self.encoder).embed
        near = self.centres.nearest(embed(queries, label="query"), self.probes)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        ids, scanned = np.full((len(queries), k), -1, np.int64), np.zeros(len(queries), np.int64)

        def work(numbers: Iterator[int]) -> None:
            for number in numbers:
                columns, rows = self._read(near[number])
                best = TopK(1, k, np.float32)
                encoder.scanner(queries[number : number + 1]).scan(columns, 0, best)
                found = best.ids[0] >= 0
                ids[number, found] = rows[best.ids[0, found]]
                scores[number, found] = best.scores[0, found]
                scanned[number] = len(rows)

        over_parts(list(range(len(queries))), threads, work)
        return Probed(top_k_of(scores, ids, k), scanned)

    def _read(self, cells: NDArray[np.int64]) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
        """Return the columns of the rows of cells that take part, and the numbers of the rows."""
        ranges = ranges_of(self.store.starts, cells)
        rows = self.store.read(ROWS, ranges).astype(np.int64)
        names = [name for name in self.store.store.layout.column_names if name != ROWS]
        columns = {name: self.store.read(name, ranges) for name in names}
        if self.selection is None:
            return columns, rows
        numbers = self.selection.numbers_of(rows)
        kept = np.flatnonzero(numbers >= 0)
        return {name: each[kept] for name, each in columns.items()}, numbers[kept]


def ranges_of(starts: NDArray[np.int64], cells: NDArray[np.int64]) -> list[Range]:
    """Return the ranges of places of some cells, ascending; those of neighbouring cells are one."""
    ordered = np.sort(cells)
    first, behind = starts[ordered], starts[ordered + 1]
    new = np.flatnonzero(np.append(True, first[1:] != behind[:-1]))
    bounds = pairwise([*new.tolist(), len(ordered)])
    ranges = [(int(first[begin]), int(behind[end - 1])) for begin, end in bounds]
    return [each for each in ranges if each[0] < each[1]]

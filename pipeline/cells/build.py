"""Sort codes by cell: each part by itself, then all parts together, a span of parts at a time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.cells.centres import BLOCK, Centres
from mercore.pipeline.cells.plan import CellPlan, coordinate_spec
from mercore.stores.codes import CodeStore
from mercore.stores.indexes.cells import CELLS, ROWS, CellStore, SortedParts
from mercore.stores.part_store.header import row_bytes
from mercore.stores.part_store.row_lookup import read_ranges

SORTED_BYTES = 40  # per row that is sorted: cells, places, and the sort's own memory
NEAR_BYTES = 16  # per point and centre while points are assigned


def sort_bytes(plan: CellPlan) -> int:
    """Return the memory that sorting a part of codes takes."""
    cells, columns = plan.spec.cells, row_bytes(plan.columns)
    centres = 2 * 4 * plan.width * cells
    block = BLOCK * (12 * plan.width + NEAR_BYTES * round(math.sqrt(cells)))
    return centres + block + plan.codes.part_rows * (3 * columns + SORTED_BYTES)


def place_bytes(plan: CellPlan, parts: int) -> int:
    """Return the memory that sorting a span of ``parts`` parts takes: its groups are read whole."""
    group = plan.codes.rows // max(1, round(math.sqrt(plan.spec.cells)))
    rows = min(plan.codes.rows, parts * plan.part_rows + 4 * group)
    before = 8 * plan.codes.parts * round(math.sqrt(plan.spec.cells))
    return before + rows * (3 * row_bytes(plan.columns) + SORTED_BYTES)


def spans_of(parts: Sequence[int], most: int) -> list[list[int]]:
    """Return ascending parts in spans that are sorted at once, each of at most ``most`` parts.

    The parts between the first and the last of a span that it lacks are there already.
    """
    spans: list[list[int]] = []
    for part in parts:
        if spans and part < spans[-1][0] + most:
            spans[-1].append(part)
        else:
            spans.append([part])
    return spans


class PartSorter:
    """The writer of sorted parts: each row gets the cell nearest to the point of its code."""

    def __init__(self, codes: CodeStore, sorted_parts: SortedParts) -> None:
        self.codes, self.sorted = codes, sorted_parts
        self.coordinates, self.centres = coordinate_spec(codes), Centres(sorted_parts.model)

    def write(self, part: int) -> int:
        """Sort a part by cell, and rows of a cell by number; return 1, the parts written."""
        before = self.codes.rows - self.sorted.rows
        start, stop = (before + row for row in self.sorted.bounds(part))
        columns = {
            name: read_ranges(self.codes.store, self.codes.receipts, name, [(start, stop)])
            for name in self.coordinates.scanned_names
        }
        cells = np.concatenate(
            [
                self.centres.assign(self.coordinates.decode(self.codes.model, block))
                for block in _blocks(columns, stop - start)
            ]
        )
        order = np.argsort(cells, kind="stable")
        rows = np.arange(start, stop, dtype=self.sorted.store.columns[ROWS].dtype)
        columns = {name: each[order] for name, each in columns.items()}
        self.sorted.store.write_part(part, {**columns, ROWS: rows[order], CELLS: cells[order]})
        return 1


def _blocks(columns: dict[str, NDArray[Any]], rows: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the columns of blocks of rows."""
    for start in range(0, rows, BLOCK):
        yield {name: values[start : start + BLOCK] for name, values in columns.items()}


def count_cells(sorted_parts: SortedParts, cells: int) -> NDArray[np.int64]:
    """Return the number of rows of each cell, int64[C]."""
    counts = np.zeros(cells, np.int64)
    for part in range(sorted_parts.parts):
        counts += np.bincount(
            sorted_parts.read(CELLS, [sorted_parts.bounds(part)]), minlength=cells
        )
    return counts


@dataclass(frozen=True)
class PlaceSorter:
    """The writer of an index: the sorted parts, and the store of their rows by cell.

    ``earlier`` is the state of the index before it grows, whose rows the sorted parts lack.
    """

    sorted: SortedParts
    cells: CellStore
    earlier: CellStore | None = None

    def write(self, span: list[int]) -> int:
        """Sort the rows of a span of parts, and write these parts; return how many."""
        store = self.cells
        start, stop = store.bounds(span[0])[0], store.bounds(span[-1])[1]
        pieces = []
        for starts in store.runs:
            first, behind = max(start, int(starts[0])), min(stop, int(starts[-1]))
            if first < behind:
                old = self.earlier is not None and behind <= self.earlier.rows
                pieces.append((self._stored if old else self._of_run)(starts, first, behind))
        columns = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        for part in span:
            at, end = (place - start for place in store.bounds(part))
            store.store.write_part(part, {name: each[at:end] for name, each in columns.items()})
        return len(span)

    def _stored(self, _: NDArray[np.int64], first: int, behind: int) -> dict[str, NDArray[Any]]:
        """Return the columns of places of the index as it was."""
        assert self.earlier is not None
        names = self.cells.store.layout.column_names
        return {name: self.earlier.read(name, [(first, behind)]) for name in names}

    def _of_run(
        self, starts: NDArray[np.int64], first: int, behind: int
    ) -> dict[str, NDArray[Any]]:
        """Return the columns of places [first, behind) of a run of the index."""
        groups = self.cells.model["group_starts"]
        ends = np.searchsorted(starts, [first, behind - 1], side="right") - 1  # their cells
        group, last = (np.searchsorted(groups, ends, side="right") - 1).tolist()
        ranges = [
            (int(before[group]), int(before[last + 1]))
            for before in self._before
            if before[group] < before[last + 1]
        ]
        rows = self.sorted.read(ROWS, ranges)
        kept = np.flatnonzero((rows >= starts[0]) & (rows < starts[-1]))
        order = kept[np.argsort(self.sorted.read(CELLS, ranges)[kept], kind="stable")]
        begin = first - int(starts[groups[group]])
        order = order[begin : begin + behind - first]
        names = self.cells.store.layout.column_names
        return {name: self.sorted.read(name, ranges)[order] for name in names}

    @cached_property
    def _before(self) -> list[NDArray[np.int64]]:
        """For each sorted part, the place in it where each group begins, and the place behind."""
        starts, before = self.cells.model["group_starts"], []
        for part in range(self.sorted.parts):
            place, end = self.sorted.bounds(part)
            cells = self.sorted.read(CELLS, [(place, end)])
            before.append(place + np.searchsorted(cells, starts))
        return before

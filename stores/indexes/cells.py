"""Cells of codes: the rows of each cell side by side, by row, and the cells by number.

Codes are sorted in two steps. ``SortedParts`` hold each part of the codes, sorted by cell. They lie
beside the index while it is made. ``CellStore`` holds the rows of all parts.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.part_backed_store import PartBackedStore
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.row_lookup import Range, read_ranges
from mercore.stores.spec import from_json
from mercore.stores.vectors import original_ids

KIND = "cells"
ROWS, CELLS = "rows", "cells"  # columns beside those of codes


@dataclass(frozen=True, kw_only=True)
class CellSpec:
    """The spec of cells: the digest of the codes, and what embeds and scores queries."""

    name: str = "mercore-cells"
    version: int = 1
    codes: str
    cells: int
    random_state: int
    encoder: dict[str, Any]
    kernel: dict[str, Any]
    source: str
    dims: int


def starts_name(state: int) -> str:
    """Return the name of the model array of where cells start in the run of a state."""
    return f"starts_{state}" if state else "starts"


class SortedParts(PartBackedStore):
    """Parts of the last rows of codes, each sorted by cell, with the cells of their rows."""

    kind, called = "sorted_parts", "store of sorted parts"

    def __init__(self, store: PartStore) -> None:
        super().__init__(store)
        self.spec = from_json(CellSpec, store.header.spec, store.where)
        self.rows, self.part_rows = store.layout.rows, store.layout.part_rows

    def bounds(self, part: int) -> tuple[int, int]:
        """Return the first row of a part and the row behind its last."""
        return self.store.bounds(part)

    def read(self, name: str, ranges: list[Range]) -> NDArray[Any]:
        """Return the values of ranges of places, ascending, one range behind the other.

        Raises
        ------
        IntegrityError
            If a byte that is read differs from the byte that was written.
        """
        return read_ranges(self.store, self.receipts, name, ranges)


class CellStore(SortedParts):
    """An open index of cells, finished or not: a row of it is a place, which holds a row."""

    kind, called = KIND, "index of cells"

    @cached_property
    def runs(self) -> list[NDArray[np.int64]]:
        """The first place of each cell, and the place behind the last, int64[C + 1] per run.

        Rows that were indexed together are a run; its places are as many, from its first row on.
        """
        return [self.model[starts_name(state)] for state in range(self._states)]

    @property
    def places_by_cell(self) -> NDArray[np.int64]:
        """All places, those of a cell side by side, int64[n]: of one run these are in order."""
        count = np.arange(self.spec.cells)
        cells = [np.repeat(count, np.diff(starts)) for starts in self.runs]
        return np.argsort(np.concatenate(cells), kind="stable")

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of rows of each cell, int64[C]."""
        return np.asarray(np.sum([np.diff(starts) for starts in self.runs], axis=0))

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of rows; −1 stays −1."""
        return original_ids(rows, self.dropped)

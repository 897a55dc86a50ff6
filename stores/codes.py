"""Code stores: the codes of a vector store, and the model that encoded them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.part_backed_store import PartBackedStore
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import Receipt
from mercore.stores.selection import SelectedParts, Selection, select_rows
from mercore.stores.spec import from_json
from mercore.stores.vectors import original_ids

Columns = Mapping[str, NDArray[Any]]
Room = dict[str, NDArray[Any]]  # for selected rows of each column, which the next part overwrites

KIND = "codes"


@dataclass(frozen=True, kw_only=True)
class CodeSpec:
    """The spec of codes: the fingerprint of their vectors, the kernel, and the encoder."""

    name: str = "mercore-codes"
    version: int = 1
    encoder: dict[str, Any]
    kernel: dict[str, Any]
    source: str
    dims: int


class CodeStore(PartBackedStore):
    """An open code store, finished or not.

    A part has at most ``part_rows`` rows. ``selection`` says which rows of the store take part,
    None for all; it takes ``open_bytes`` of memory, and ``read_bytes`` for each part that is read.
    """

    kind, called = KIND, "code store"
    selection: Selection | None = None
    open_bytes: int = 0
    read_bytes: int = 0

    def __init__(self, store: PartStore) -> None:
        super().__init__(store)
        self.spec = from_json(CodeSpec, store.header.spec, store.where)
        self.rows, self.part_rows = store.layout.rows, store.layout.part_rows

    def bounds(self, part: int) -> tuple[int, int]:
        """Return the first row of a part and the row behind its last."""
        return self.store.bounds(part)

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of rows; −1 stays −1."""
        return original_ids(rows, self.dropped)

    def stored_part(self, part: int) -> int:
        """Return the number that a part has in the store."""
        return part

    def select(self, part: int, columns: Columns, room: Room) -> Columns:
        """Return the selected rows of the columns of a part, perhaps in ``room``."""
        return columns


class SelectedCodes(CodeStore):
    """Selected rows of codes, in the numbers of their selection.

    Parts without a selected row are left out.
    """

    selection: Selection

    def __init__(self, codes: CodeStore, selection: Selection) -> None:
        self.codes, self.selection = codes, selection
        self.store, self.spec, self.where = codes.store, codes.spec, codes.where
        starts = [codes.bounds(part)[0] for part in range(codes.parts)]
        self._selected = SelectedParts(selection, np.array([*starts, codes.rows]))
        self.rows, self.parts = int(self._selected.starts[-1]), len(self._selected.stored)
        self.part_rows = int(np.diff(self._selected.starts).max(initial=0))
        self.open_bytes = codes.open_bytes + selection.nbytes
        if selection.copies:
            row = sum(codes.stored_bytes.values()) / self.store.layout.rows
            self.read_bytes = codes.read_bytes + int(self.part_rows * row)

    def bounds(self, part: int) -> tuple[int, int]:
        """Return the first number of a part and the number behind its last."""
        starts = self._selected.starts
        return int(starts[part]), int(starts[part + 1])

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of rows, given by their numbers; −1 stays −1."""
        return self.codes.ids_of(self.selection.rows_of(rows))

    def stored_part(self, part: int) -> int:
        """Return the number that a part has in the store."""
        return self.codes.stored_part(int(self._selected.stored[part]))

    def select(self, part: int, columns: Columns, room: Room) -> Columns:
        """Return the selected rows of the columns of a part, perhaps in ``room``."""
        columns = self.codes.select(int(self._selected.stored[part]), columns, {})
        positions = self._selected.positions(part)
        if not isinstance(positions, slice):
            for name, values in columns.items():
                if name not in room:
                    rows = self.store.layout.part_rows
                    room[name] = np.empty((rows, *values.shape[1:]), values.dtype)
        return {
            name: select_rows(each, positions, room.get(name)) for name, each in columns.items()
        }

    @cached_property
    def model(self) -> dict[str, NDArray[Any]]:
        """The arrays of the model, every byte checked."""
        return self.codes.model

    @cached_property
    def receipts(self) -> list[Receipt]:
        """The receipts of all parts of the store."""
        return self.codes.receipts


create_or_resume = CodeStore.create_or_resume
open_code_store = CodeStore.open

"""Read the parts of a store one after another into buffers that are used again, or keep them for the next pass."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import Receipt


class PartReader:
    """Read checked parts; what ``read`` returns is overwritten by the next ``read``. One reader, one thread.

    Columns that the store does not have are passed over; those it has but ``names`` lacks are checked and not returned,
    so that a store with a wrong byte anywhere gives no answer.
    """

    def __init__(self, store: PartStore, receipts: Sequence[Receipt], names: Sequence[str]) -> None:
        self._store = store
        self._receipts = receipts
        self._buffers = {
            name: np.empty(max(receipt.chunks[name]["bytes"] for receipt in receipts), np.uint8)
            for name in store.layout.column_names
        }
        self._names = [name for name in names if name in self._buffers]
        self._checked = [name for name in self._buffers if name not in names]

    def read(self, part: int) -> dict[str, NDArray[Any]]:
        """Return the part's columns, every byte checked.

        Raises
        ------
        IntegrityError
            If a chunk is missing or differs from what its receipt vouches for.
        """
        receipt = self._receipts[part]
        for name in self._checked:
            self._store.check_chunk(receipt, name, self._buffers[name])
        return {name: self._store.read_chunk(receipt, name, self._buffers[name]) for name in self._names}


class PartCache:
    """Checked parts that stay in memory for the next pass, as many as ``room`` bytes hold. For any number of threads.

    Parameters
    ----------
    room : int
        Bytes; at 0 nothing is ever held.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._parts: dict[int, dict[str, NDArray[Any]]] = {}
        self._lock = threading.Lock()
        self.size = 0

    def get(self, part: int) -> dict[str, NDArray[Any]] | None:
        """Return a part's columns if they are held."""
        return self._parts.get(part)

    def offer(self, part: int, columns: Mapping[str, NDArray[Any]]) -> None:
        """Keep a copy of a part's columns if there is room."""
        size = sum(values.nbytes for values in columns.values())
        with self._lock:
            if part in self._parts or self.size + size > self._room:
                return
            self.size += size
        self._parts[part] = {name: values.copy() for name, values in columns.items()}

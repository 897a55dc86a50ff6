"""Reading parts of a store, one after another into reused buffers, or into a cache."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.part_store.part_store import PartStore
from mercore.stores.part_store.receipts import Receipt


class PartReader:
    """A reader of checked parts for one thread; each ``read`` overwrites the result of the last.

    ``names`` may hold columns that the store lacks. Columns of the store that ``names`` lacks are
    checked and not returned, so that a store with a wrong byte anywhere gives no answer.
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
        """Return the columns of a part, every byte checked.

        Raises
        ------
        IntegrityError
            If a chunk is missing or differs from its receipt.
        """
        receipt = self._receipts[part]
        for name in self._checked:
            self._store.check_chunk(receipt, name, self._buffers[name])
        return {
            name: self._store.read_chunk(receipt, name, self._buffers[name]) for name in self._names
        }


class PartCache:
    """A cache of checked parts, for any number of threads; what it holds stays.

    Parameters
    ----------
    cache_bytes : size of the cache; at 0 it stays empty
    """

    def __init__(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        self._parts: dict[int, dict[str, NDArray[Any]]] = {}
        self._lock = threading.Lock()
        self.size = self.hits = 0  # hits of several threads at once may count as one

    def __len__(self) -> int:
        """Return the number of cached parts."""
        return len(self._parts)

    def get(self, part: int) -> dict[str, NDArray[Any]] | None:
        """Return the columns of a part if they are cached."""
        columns = self._parts.get(part)
        self.hits += columns is not None
        return columns

    def held(self, part: int) -> dict[str, NDArray[Any]]:
        """Return the columns of a part that is cached."""
        self.hits += 1
        return self._parts[part]

    def offer(self, part: int, columns: Mapping[str, NDArray[Any]]) -> None:
        """Copy the columns of a part into the cache if it has space left."""
        size = sum(values.nbytes for values in columns.values())
        with self._lock:
            if part in self._parts or self.size + size > self.cache_bytes:
                return
            self.size += size
        self._parts[part] = {name: values.copy() for name, values in columns.items()}

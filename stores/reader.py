"""Read the parts of a store one after another into buffers that are used again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stores.parts import PartStore
from stores.receipts import Receipt


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

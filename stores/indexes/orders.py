"""Sorted orders of binary codes: the rows of each order, sorted by keys of permuted bits.

Each order is padded to whole parts. If an order has P parts, part p of the store is part p mod P of
order p div P.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.part_backed_store import PartBackedStore
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.spec import from_json
from mercore.stores.vectors import original_ids

KIND = "orders"
FIRST_KEY = "first_key"  # a fact of each receipt: the least key of the part


@dataclass(frozen=True, kw_only=True)
class OrderSpec:
    """The spec of sorted orders: the digest of the codes, and what hashes and scores queries."""

    name: str = "mercore-orders"
    version: int = 1
    codes: str
    orders: int
    random_state: int
    code_rows: int
    encoder: dict[str, Any]
    kernel: dict[str, Any]
    source: str
    dims: int


class OrderStore(PartBackedStore):
    """An open store of sorted orders, finished or not."""

    kind, called = KIND, "store of orders"

    def __init__(self, store: PartStore) -> None:
        super().__init__(store)
        self.spec = from_json(OrderSpec, store.header.spec, store.where)
        self.rows = self.spec.code_rows
        self.orders = self.spec.orders
        self.part_rows = store.layout.part_rows
        self.order_parts = self.parts // self.orders

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the original ids of rows; −1 stays −1."""
        return original_ids(rows, self.dropped)

    @property
    def encoded_rows(self) -> int:
        """The number of rows whose codes were sorted."""
        return self.rows

    @property
    def row_dtype(self) -> np.dtype[np.unsignedinteger]:
        """The dtype of row numbers, whose greatest value stands for no row."""
        return np.dtype(self.store.layout.column("rows").dtype)

    @property
    def no_row(self) -> int:
        """The number that stands for no row: in padding, and where candidates are missing."""
        return int(np.iinfo(self.row_dtype).max)

    @cached_property
    def first_keys(self) -> NDArray[np.uint64]:
        """The least key of each part, uint64[M, P]."""
        keys = [receipt.facts[FIRST_KEY] for receipt in self.receipts]
        return np.array(keys, np.uint64).reshape(self.orders, self.order_parts)


create_or_resume = OrderStore.create_or_resume
open_order_store = OrderStore.open

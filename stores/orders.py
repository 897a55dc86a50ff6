"""Sorted orders of binary codes: the rows of each order, sorted by keys of permuted bits.

An order is M-th of many, and each is padded to whole parts: part p of the store is part p mod P of
order p div P, where P is the number of parts of an order.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores import derived
from mercore.stores.derived import DerivedStore
from mercore.stores.location.resolve import Where
from mercore.stores.part_store.header import Header, Layout
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.spec import from_json, to_json

KIND = "orders"
FIX = "Fix: run the same mercore index again: it redoes what is wrong, and only that."
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


class OrderStore(DerivedStore):
    """An open store of sorted orders, finished or not."""

    def __init__(self, store: PartStore) -> None:
        super().__init__(store)
        self.spec = from_json(OrderSpec, store.header.spec, store.where)
        self.rows = self.spec.code_rows
        self.orders = self.spec.orders
        self.part_rows = store.layout.part_rows
        self.order_parts = self.parts // self.orders

    @cached_property
    def first_keys(self) -> NDArray[np.uint64]:
        """The least key of each part, uint64[M, P]."""
        keys = [receipt.facts[FIRST_KEY] for receipt in self.receipts]
        return np.array(keys, np.uint64).reshape(self.orders, self.order_parts)


def create_or_resume(
    path: Where,
    spec: OrderSpec,
    layout: Layout,
    model: dict[str, NDArray[Any]],
    *,
    source_path: str,
) -> OrderStore:
    """Open the orders of this spec and layout at ``path``, or create the store.

    ``source_path`` is the path of the vectors.

    Raises
    ------
    ExistsError
        If something else lies at ``path``; the message names what differs.
    """
    notes = {"source_path": source_path, "fix": FIX}
    header = Header(kind=KIND, spec=to_json(spec), layout=layout, notes=notes)
    return OrderStore(derived.create_or_resume(path, header, model))


def resume(path: Where, spec: OrderSpec, layout: Layout) -> OrderStore | None:
    """Open the orders of this spec and layout at ``path``; None if nothing exists.

    Raises
    ------
    ExistsError
        If something else lies at ``path``; the message names what differs.
    """
    store = derived.resume(path, Header(kind=KIND, spec=to_json(spec), layout=layout))
    return None if store is None else OrderStore(store)


def open_order_store(path: Where) -> OrderStore:
    """Open the sorted orders that ``index`` wrote.

    Raises
    ------
    NotFoundError, FormatError
        If they do not exist or are something else.
    """
    return OrderStore(derived.open_kind(path, KIND, "store of orders"))

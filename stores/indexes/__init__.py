"""Indexes of codes: sorted orders of binary codes, and cells of codes of coordinates."""

from mercore.stores.indexes.cells import CellStore
from mercore.stores.indexes.orders import OrderStore

__all__ = ["CellStore", "Index", "OrderStore"]

Index = OrderStore | CellStore

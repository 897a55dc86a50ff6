"""Indexes of codes: sorted orders of binary codes, and cells of codes of coordinates."""

from mercore.stores.indexes.cells import CellStore
from mercore.stores.indexes.orders import OrderStore
from mercore.stores.location.resolve import Where
from mercore.stores.part_store.header import open_header

__all__ = ["CellStore", "Index", "OrderStore", "open_index_store"]

Index = OrderStore | CellStore


def open_index_store(path: Where) -> Index:
    """Open an index of either kind."""
    is_cells = open_header(path).kind == CellStore.kind
    return CellStore.open(path) if is_cells else OrderStore.open(path)

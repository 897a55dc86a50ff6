"""Samples of stores: their first rows or parts, with the interface of the store."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.codes import CodeStore
from mercore.stores.part_store.receipts import Receipt
from mercore.stores.vectors import Vectors, WrappedVectors


class FirstRows(WrappedVectors):
    """The first rows of vectors."""

    def __init__(self, vectors: Vectors, rows: int) -> None:
        super().__init__(vectors)
        self.rows = rows

    def read_part(self, part: int) -> NDArray[Any]:
        """Return the rows of a part, dtype[rows of the part, d]."""
        first, last = self.bounds(part)
        return self.vectors.read_part(part)[: last - first]


class FirstParts(CodeStore):
    """The first parts of codes."""

    def __init__(self, codes: CodeStore, parts: int) -> None:
        self.codes, self.parts = codes, parts
        self.store, self.spec, self.where = codes.store, codes.spec, codes.where
        self.rows = codes.store.bounds(parts - 1)[1]

    @cached_property
    def model(self) -> dict[str, NDArray[Any]]:
        """The encoder's arrays."""
        return self.codes.model

    @cached_property
    def receipts(self) -> list[Receipt]:
        """The receipts of the parts."""
        return self.codes.receipts[: self.parts]


def spread_rows(vectors: Vectors, count: int, pieces: int = 16) -> NDArray[np.int64]:
    """Return up to ``count`` ascending rows, int64: a run in each of ``pieces`` spread parts."""
    parts = np.unique(
        np.linspace(0, vectors.parts - 1, min(pieces, vectors.parts)).astype(np.int64)
    )
    each = -(-min(count, vectors.rows) // len(parts))
    runs = [
        np.arange(first, min(first + each, last))
        for first, last in map(vectors.bounds, parts.tolist())
    ]
    return np.concatenate(runs)

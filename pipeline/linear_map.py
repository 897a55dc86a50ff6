"""A linear map of rows, such as a learned Mahalanobis metric: x becomes L x as it is read.

With A = LᵀL the squared distance of two mapped rows is (x − y)ᵀ A (x − y). Any kernel of mapped
rows is a kernel of the rows, so codes, bounds and exact search work on mapped rows unchanged.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Rows
from mercore.pipeline.kernels.panels import Columns
from mercore.stores.errors import ShapeError
from mercore.stores.formats.array import ArraySource
from mercore.stores.formats.source import Source, content_digest
from mercore.stores.part_backed_store import PartBackedStore
from mercore.stores.spec import digest
from mercore.stores.vector_views import WrappedVectors
from mercore.stores.vectors import Lookup, Vectors

BLOCK_ROWS = 256  # rows that are mapped at a time


class LinearMap:
    """The map x → L x by a ``matrix`` float32[d', d]; ``name`` is what messages call it."""

    def __init__(self, matrix: Float32, name: str) -> None:
        self.matrix = np.ascontiguousarray(matrix, np.float32)
        self.name = name
        self.mapped_dims, self.dims = self.matrix.shape

    @cached_property
    def digest(self) -> str:
        """Digest of the shape and every number of the matrix."""
        return content_digest(ArraySource(self.matrix))

    @cached_property
    def _columns(self) -> Columns:
        """The rows of the matrix as packed columns."""
        from mercore.pipeline.kernels.blocks import pack_products

        return pack_products(self.matrix.T)

    def apply(self, rows: Rows) -> Float32:
        """Return L x of each row [n, d], float32[n, d'].

        Each number is a float32 sum of fused multiply-adds in ascending dimension. So a mapped row
        depends on its row and the matrix alone, to the bit: not on its block, part or thread.
        """
        from mercore.pipeline.kernels.blocks import products

        out = np.empty((len(rows), self.mapped_dims), np.float32)
        for start in range(0, len(rows), BLOCK_ROWS):
            # a copy: numba would compile everything once more for an array that is read-only
            block = np.array(rows[start : start + BLOCK_ROWS], np.float32, order="C")
            out[start : start + BLOCK_ROWS] = products(block, self._columns)
        return out

    def fingerprint_of(self, rows: str) -> str:
        """Return the fingerprint of mapped rows from that of the rows."""
        return digest({"rows": rows, "linear_map": self.digest})


class MappedVectors(WrappedVectors):
    """Vectors whose rows are mapped as they are read, float32[rows, d'].

    Raises
    ------
    ShapeError
        If the map is one of rows of another dimension.
    """

    def __init__(self, vectors: Vectors, linear_map: LinearMap) -> None:
        super().__init__(vectors)
        if linear_map.dims != vectors.dims:
            raise ShapeError(
                f"{linear_map.name} has shape {linear_map.matrix.shape}: expected "
                f"{vectors.dims} columns, the dimension of {vectors.where}. "
                "Fix: name the map and the vectors that belong together."
            )
        self.linear_map = linear_map
        self.dims, self.dtype = linear_map.mapped_dims, np.dtype(np.float32)
        self.fingerprint = linear_map.fingerprint_of(vectors.fingerprint)
        self.history = tuple(
            replace(state, fingerprint=linear_map.fingerprint_of(state.fingerprint))
            for state in vectors.history
        )
        numbers = BLOCK_ROWS * (linear_map.dims + linear_map.mapped_dims)
        stored = vectors.part_rows * vectors.dims * vectors.dtype.itemsize
        self.read_bytes = vectors.read_bytes + 2 * stored + 4 * numbers
        self.open_bytes = vectors.open_bytes + 3 * linear_map.matrix.nbytes

    def read_part(self, part: int) -> NDArray[Any]:
        """Return the mapped rows of a part, float32[rows of the part, d']."""
        return self.linear_map.apply(self.vectors.read_part(part))

    def look_up(self, rows: NDArray[np.int64], through: Vectors | None = None) -> Lookup:
        """Return a reader of rows by their numbers, which maps them."""
        return MappedLookup(self, rows, through or self)


class MappedLookup(Lookup):
    """Rows by their numbers, mapped as they are read."""

    def __init__(self, vectors: MappedVectors, rows: NDArray[np.int64], through: Vectors) -> None:
        super().__init__(through, rows, vectors.vectors.look_up(rows))
        self._map = vectors.linear_map

    def blocks(self, number: int, *, wait: bool) -> Float32 | None:
        """Return the rows of the part ``number`` from blocks: see ``Lookup``."""
        raw = super().blocks(number, wait=wait)
        return None if raw is None else self._map.apply(raw)


class MappedSource:
    """A source, such as queries, whose rows are mapped as they are read.

    Raises
    ------
    ShapeError
        If the map is one of rows of another dimension.
    """

    def __init__(self, source: Source, linear_map: LinearMap) -> None:
        rows, dims = source.shape
        if linear_map.dims != dims:
            raise ShapeError(
                f"{source.name} has d = {dims}: expected {linear_map.dims}, the columns of "
                f"{linear_map.name}. Fix: name queries of the same kind as the vectors."
            )
        self.source, self.linear_map = source, linear_map
        self.name = source.name
        self.shape = (rows, linear_map.mapped_dims)
        self.dtype, self.source_dtype = np.dtype(np.float32), source.source_dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return mapped rows [start, stop), float32[stop − start, d']."""
        return self.linear_map.apply(self.source.read(start, stop))

    def fingerprint(self) -> str:
        """Return a digest of the source's fingerprint and of the map."""
        return self.linear_map.fingerprint_of(self.source.fingerprint())


def mapped_vectors(vectors: Vectors, linear_map: LinearMap | None) -> Vectors:
    """Return vectors with their rows mapped, or as they are if there is no map."""
    return vectors if linear_map is None else MappedVectors(vectors, linear_map)


def mapped_source(source: Source, linear_map: LinearMap | None) -> Source:
    """Return a source with its rows mapped, or as it is if there is no map."""
    return source if linear_map is None else MappedSource(source, linear_map)


def map_of(codes: PartBackedStore) -> LinearMap | None:
    """Return the map with which codes, or the codes of sorted orders, were made, or None."""
    matrix = codes.linear_map
    return None if matrix is None else LinearMap(matrix, f"the linear map of {codes.where}")

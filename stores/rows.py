"""Opening of vectors and rows of any kind: stores of mercore, foreign files, and arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.codes import CodeStore
from mercore.stores.errors import FormatError, NotFoundError
from mercore.stores.formats import Sliced, open_source, split_member
from mercore.stores.formats.source import Source, SteadySource
from mercore.stores.indexes import CellStore, Index, OrderStore
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.header import Header, header_of_group
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.spec import digest
from mercore.stores.vector_views import WrappedVectors
from mercore.stores.vector_writer import chunk_rows
from mercore.stores.vectors import Vectors, VectorStore, blocks, open_vector_store

SPACED = "64 of the rows"  # that the fingerprint of a foreign source covers


class SourceVectors(Vectors):
    """A foreign source as ``Vectors``, without receipts; its ids are its row numbers.

    A part that has changed since it was first read is refused: here, or where ``digests`` of the
    parts were kept.
    """

    def __init__(self, source: Source, digests: dict[int, str] | None = None) -> None:
        self.rows, self.dims = source.shape
        self.dtype = source.dtype
        self.where = source.name
        self.fingerprint, self.fingerprint_of = source.fingerprint(), SPACED
        self.dropped = np.empty(0, np.int64)
        self.part_rows = chunk_rows(self.dims, self.dtype)
        self.source = SteadySource(source, self.part_rows, digests)

    def read_part(self, part: int) -> NDArray[Any]:
        """Return the rows of a part, dtype[rows of the part, d]."""
        return self.source.read(*self.bounds(part))

    def content(self) -> str:
        """Return the digest of all rows; parts that have not been read are read."""
        for part in range(self.parts):
            if part not in self.source.digests:
                self.read_part(part)
        return digest([self.source.digests[part] for part in range(self.parts)])


def stored_header(path: str) -> Header | None:
    """Read the header of a store of any kind; None if a file or a foreign array is there.

    Raises
    ------
    NotFoundError
        If nothing is there.
    FormatError, IntegrityError
        If the header is damaged.
    """
    header, location = header_of_group(path), location_of(path)
    if header is None and not location.exists() and split_member(path)[1] is None:
        raise NotFoundError(f"{path} does not exist: expected a store. Fix: check the path.")
    return header


Stored = VectorStore | CodeStore | Index


def open_stored(path: str) -> Stored | None:
    """Open a store of any kind, whose header is read once; None if ``stored_header`` is None."""
    header = stored_header(path)
    for kind in (CodeStore, OrderStore, CellStore):
        if header is not None and header.kind == kind.kind:
            return kind(PartStore(path, header))
    return None if header is None else open_vector_store(path, header)


def open_vectors(
    path: str, digests: dict[int, str] | None = None, header: Header | None = None
) -> Vectors:
    """Open a vector store of mercore, or a 2-D Zarr array (v2 or v3) of another tool.

    Parameters
    ----------
    digests : those of an array's parts that another process has read: see ``foreign_source``
    header : that of the store, if it has been read

    Raises
    ------
    NotFoundError
        If nothing is there.
    FormatError
        If it is something else, such as a foreign file, which must be ingested first.
    IntegrityError
        If a vector store is damaged.
    """
    location = location_of(path)
    header = header or header_of_group(location)
    if header is not None:
        return open_vector_store(location, header)
    if not location.exists():
        raise NotFoundError(
            f"{path} does not exist: expected a vector store. Fix: check the path, or mercore "
            f"ingest SOURCE {path}"
        )
    if not location.is_folder():
        raise FormatError(
            f"{path} is a file: expected a vector store. Fix: mercore ingest {path} STORE"
        )
    return SourceVectors(open_source(path), digests)


def foreign_source(vectors: Vectors) -> SourceVectors | None:
    """Return the foreign source that vectors are read from; None: a store, which has receipts."""
    while isinstance(vectors, WrappedVectors):
        vectors = vectors.vectors
    return vectors if isinstance(vectors, SourceVectors) else None


class StoredRows:
    """A vector store, or some of its rows, as a source of rows."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self.name = vectors.where
        self.shape = (vectors.rows, vectors.dims)
        self.dtype = self.source_dtype = vectors.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows [start, stop), dtype[stop − start, d]."""
        return np.concatenate(
            [rows for _, rows in blocks(self._vectors, start, stop, stop - start)]
        )

    def fingerprint(self) -> str:
        """Return the fingerprint of the store."""
        return self._vectors.fingerprint


OpenRows = StoredRows | SteadySource
AnyQueries = str | Sliced | OpenRows


def open_rows(rows: AnyQueries) -> OpenRows:
    """Open rows: a foreign file, a Zarr array, a vector store of mercore, or an array in memory.

    Open rows are returned as they are. Rows that change between two reads are refused.
    """
    if isinstance(rows, OpenRows):
        return rows
    header = header_of_group(rows) if isinstance(rows, str) else None
    if isinstance(rows, str) and header is not None:
        return StoredRows(open_vector_store(rows, header))
    return SteadySource(open_source(rows))


def is_store(where: Where) -> bool:
    """Return whether there is a Zarr v3 group, as every store of mercore is one."""
    return header_of_group(where) is not None

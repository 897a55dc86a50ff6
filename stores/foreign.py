"""Vectors that another tool wrote as a Zarr array: read as they lie, without receipts."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stores.errors import FormatError, NotFoundError
from stores.formats import open_source
from stores.formats.source import Source
from stores.vector_writer import chunk_rows
from stores.vectors import Vectors, open_vector_store


class SourceVectors(Vectors):
    """A foreign source seen as ``Vectors``; its ids are its row numbers."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.rows, self.dims = source.shape
        self.dtype = source.dtype
        self.where = source.name
        self.fingerprint = source.fingerprint()
        self.dropped = np.empty(0, np.int64)
        self.part_rows = chunk_rows(self.dims, self.dtype)

    def read_part(self, part: int) -> NDArray[Any]:
        """Return the rows of a part, dtype[rows of the part, d]."""
        return self.source.read(*self.bounds(part))


def open_vectors(path: str) -> Vectors:
    """Open a vector store of mercore's, or a 2-D Zarr array (v2 or v3) of any other tool's.

    Raises
    ------
    NotFoundError
        If nothing is there.
    FormatError
        If it is something else; a foreign file is to be ingested first.
    IntegrityError
        If a vector store is not whole.
    """
    folder = Path(path)
    if not folder.exists():
        raise NotFoundError(
            f"{path} does not exist: expected a vector store. Mend: check the path, or mercore ingest SOURCE {path}"
        )
    if not folder.is_dir():
        raise FormatError(f"{path} is a file: expected a vector store. Mend: mercore ingest {path} STORE")
    if (folder / "zarr.json").exists() and b'"node_type": "group"' in (folder / "zarr.json").read_bytes():
        return open_vector_store(folder)
    return SourceVectors(open_source(path))

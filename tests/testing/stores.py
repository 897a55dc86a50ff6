"""Small real stores, made with the library itself; only the waits for the disk are left out."""

import os
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encode import EncodePlan, check_every_row, encode_part, encoder_of, lay_out
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.ingest import Drop, ingest
from mercore.pipeline.kernels import Kernel
from mercore.stores import vector_writer
from mercore.stores.codes import CodeStore, create_or_resume
from mercore.stores.distinct import DistinctCounter
from mercore.stores.vector_writer import VectorWriter
from mercore.stores.vectors import Vectors, VectorStore


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows in memory as a ``Source``."""

    rows: NDArray[Any]
    name: str = "rows"

    @cached_property
    def shape(self) -> tuple[int, int]:
        n, d = self.rows.shape
        return n, d

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.rows.dtype

    @property
    def source_dtype(self) -> np.dtype[Any]:
        return self.rows.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        assert 0 <= start <= stop <= len(self.rows)
        return np.ascontiguousarray(self.rows[start:stop])

    def fingerprint(self) -> str:
        return self.name


def make_vectors(
    path: Path,
    rows: NDArray[Any],
    *,
    part_rows: int = 16,
    drop_zero_rows: bool = False,
    compressor: str = "none",
    held: int = 1 << 20,
    name: str = "rows",
) -> VectorStore:
    """Ingest rows into a store of parts of ``part_rows`` rows, a power of two."""
    row_bytes = rows.shape[1] * rows.itemsize
    with (
        patch.object(os, "fsync"),
        patch.object(vector_writer, "CHUNK_BYTES", part_rows * row_bytes),
        VectorWriter(path, dims=rows.shape[1], dtype=rows.dtype, compressor=compressor) as writer,
        closing(DistinctCounter(path.parent, capacity=held)) as counter,
    ):
        assert writer.part_rows == part_rows
        return ingest(Rows(rows, name), writer, counter, drop=Drop(zero=drop_zero_rows))


def plan_encode(
    vectors: Vectors,
    kernel: Kernel,
    encoder: EncoderSpec,
    *,
    part_rows: int | None = None,
    compressor: str = "none",
) -> EncodePlan:
    """Check the parameters and every row against the store, and lay the code store out.

    Raises
    ------
    InputError
        If a parameter is out of range, or the store holds rows outside the kernel's domain.
    """
    plan = lay_out(vectors, kernel, encoder, part_rows=part_rows, compressor=compressor)
    if not isinstance(vectors, VectorStore):
        check_every_row(vectors, kernel)
    return plan


def make_codes(
    path: Path,
    vectors: Vectors,
    kernel: Kernel,
    spec: EncoderSpec,
    *,
    part_rows: int = 256,
    compressor: str = "none",
) -> CodeStore:
    """Encode every part of a vector store, one after another in this thread."""
    plan = plan_encode(vectors, kernel, spec, part_rows=part_rows, compressor=compressor)
    with patch.object(os, "fsync"):
        codes = create_or_resume(
            path, plan.spec, plan.layout, plan.model, source_path=Path(vectors.where)
        )
        encoder = encoder_of(codes)
        encoder.prepare_encoding()
        for part in range(codes.parts):
            codes.store.write_part(part, encode_part(encoder, vectors, *codes.store.bounds(part)))
    return codes


def histograms(n: int, d: int, *, dtype: str = "float32", seed: int = 0) -> NDArray[Any]:
    """Sparse non-negative rows, none all zero."""
    rng = np.random.default_rng(seed)
    rows = rng.gamma(0.4, size=(n, d)) * (rng.random((n, d)) < 0.7)
    rows[:, 0] += 0.05
    if dtype == "uint8":
        rows = 1 + np.minimum(rows * 60, 254)
    return rows.astype(dtype)


def columns_of(codes: CodeStore) -> dict[str, NDArray[Any]]:
    """Return the columns of a code store, of all parts."""
    names = codes.store.layout.column_names
    return {
        name: np.concatenate([codes.store.read_chunk(r, name) for r in codes.receipts])
        for name in names
    }


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }

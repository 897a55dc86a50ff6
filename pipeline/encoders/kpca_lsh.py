"""Signs of random projections of kernel PCA's coordinates (Bourrier et al. 2015, §5.2.2; Charikar 2002)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import Model, check_range
from mercore.pipeline.encoders.kpca import Embedding, Landmarks
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.scanners.hamming import HammingScanner
from mercore.stores.part_store.header import column_fields
from mercore.stores.vectors import Vectors

MAX_BITS = 1 << 12
AS_BITS = -1  # components: as many as bits


@dataclass(frozen=True, kw_only=True)
class KpcaLshSpec(Landmarks):
    """B bits a row, the signs of B Gaussian projections of E coordinates; E = B unless ``n_components`` says so."""

    name: str = "kpca-lsh"
    version: int = 1
    n_bits: int = 256
    n_components: int = AS_BITS

    def __post_init__(self) -> None:
        """Let as many components stand as there are bits, or landmarks if those are fewer."""
        if self.n_components == AS_BITS:
            object.__setattr__(self, "n_components", min(self.n_bits, self.n_landmarks))

    def check(self, vectors: Vectors, kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        check_range("bits", self.n_bits, (1, MAX_BITS), "--bits 256")
        self.check_landmarks(vectors.rows)

    def columns(self, compressor: str) -> list[dict[str, Any]]:
        """Return the columns of a code: eight bits a byte, the first in the lowest place."""
        return [column_fields("code", "uint8", -(-self.n_bits // 8), compressor)]

    def fit(self, vectors: Vectors, kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues, and the components times the Gaussian directions."""
        model, components, rng = self.learn_components(vectors, kernel)
        projection = components @ rng.standard_normal((self.n_components, self.n_bits))
        return {**model, "projection": projection.astype(np.float32)}

    def encoder(self, kernel: Kernel, model: Model) -> "Signs":
        """Return the encoder of a model."""
        return Signs(Embedding(kernel, model["landmarks"], model["projection"]))

    def fit_bytes(self, rows: int, dims: int) -> int:
        """Return the memory that fitting takes."""
        return self.gram_bytes(dims) + 16 * self.n_landmarks * self.n_bits

    def shared_bytes(self, dims: int) -> int:
        """Return the memory that all threads share while encoding."""
        return self.embedding_bytes(dims, self.n_bits)

    def row_bytes(self, dims: int) -> int:
        """Return the memory that a row of a block takes while it is encoded."""
        return 8 * self.n_landmarks + 24 * dims + 6 * self.n_bits

    def query_bytes(self, dims: int) -> int:
        """Return the memory that a query takes while codes are scanned."""
        return self.row_bytes(dims)


class Signs:
    """Encode rows as the signs of their coordinates: a bit is set where one is positive."""

    def __init__(self, embedding: Embedding) -> None:
        self.embedding = embedding
        self.block_rows = embedding.block_rows

    def prepare_encoding(self) -> None:
        """Do nothing: queries need all that rows need."""

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows, uint8[b, ⌈B / 8⌉]."""
        return {"code": _packed(self.embedding(rows, first=first) > 0)}

    def scanner(self, queries: NDArray[Any]) -> HammingScanner:
        """Return queries ready to be scored by the share of bits that agree."""
        return HammingScanner(_packed(self.embedding(queries, label="query") > 0), self.embedding.width)


def _packed(bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return bits eight to a byte."""
    return np.packbits(bits, axis=1, bitorder="little")

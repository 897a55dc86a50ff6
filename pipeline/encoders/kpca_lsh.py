"""Signs of random projections of kernel PCA's coordinates (Bourrier et al. 2015, §5.2.2.

Charikar 2002).
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import (
    OPTION,
    CodeColumn,
    Encoder,
    Memory,
    Model,
    Size,
    check_range,
    option,
)
from mercore.pipeline.encoders.kpca import COMPONENTS, Embedding, Landmarks
from mercore.pipeline.kernels import Kernel

if TYPE_CHECKING:
    from mercore.pipeline.scanners.hamming import HammingScanner
    from mercore.stores.vectors import Vectors

MAX_BITS = 1 << 12
AS_BITS = -1  # components: as many as bits


@dataclass(frozen=True, kw_only=True)
class KpcaLshSpec(Landmarks):
    """Rows as B bits, the signs of B Gaussian projections of E coordinates; E = B by default."""

    name: str = "kpca-lsh"
    version: int = 1
    n_bits: int = field(default=256, metadata=option("bits", "Bits of a code, B."))
    n_components: int = field(
        default=AS_BITS, metadata={OPTION: COMPONENTS[OPTION]._replace(shown_default="bits")}
    )

    description = (
        "A code holds B bits: signs of Gaussian projections of the coordinates of kernel PCA."
    )
    size = Size("n_bits", "bits", MAX_BITS, Fraction(300, 8))

    def __post_init__(self) -> None:
        """Set components to the number of bits, or of landmarks if that is less."""
        if self.n_components == AS_BITS:
            object.__setattr__(self, "n_components", min(self.n_bits, self.n_landmarks))

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        check_range("bits", self.n_bits, (1, MAX_BITS), "--bits 256")
        self.check_landmarks(vectors.rows)

    def code_columns(self) -> list[CodeColumn]:
        """Return the code: eight bits per byte, the first in the lowest place."""
        return [("code", "uint8", -(-self.n_bits // 8))]

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues, and the components times the Gaussian directions."""
        model, components, rng = self.learn_components(vectors, kernel)
        projection = components @ rng.standard_normal((self.n_components, self.n_bits))
        return {**model, "projection": projection.astype(np.float32)}

    def encoder(self, kernel: Kernel, model: Model) -> "Signs":
        """Return the encoder of a model."""
        return Signs(Embedding(kernel, model["landmarks"], model["projection"]))

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 8 * self.n_landmarks + 24 * dims + 6 * self.n_bits
        return Memory(
            fit=self.gram_bytes(dims) + 16 * self.n_landmarks * self.n_bits,
            shared=self.embedding_bytes(dims, self.n_bits),
            row=row,
            query=row,
        )


class Signs(Encoder):
    """Encode rows as the signs of their coordinates: a bit is set where one is positive."""

    def __init__(self, embedding: Embedding) -> None:
        self.embedding = embedding
        self.block_rows = embedding.block_rows

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows, uint8[b, ⌈B / 8⌉]."""
        return {"code": _packed(self.embedding(rows, first=first) > 0)}

    def scanner(self, queries: NDArray[Any]) -> "HammingScanner":
        """Return the scanner of queries by the share of bits that agree."""
        from mercore.pipeline.scanners.hamming import HammingScanner

        return HammingScanner(
            _packed(self.embedding(queries, label="query") > 0), self.embedding.width
        )


def _packed(bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return bits packed into bytes."""
    return np.packbits(bits, axis=1, bitorder="little")

"""Binary codes: the signs of linear functions of kernel values, compared by Hamming distance."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.encoders.encoder import (
    CodeColumn,
    Encoder,
    EncoderSpec,
    Memory,
    Model,
    Size,
    check_range,
    declare_option,
)
from mercore.pipeline.encoders.kpca import Embedding, LandmarkSpec
from mercore.pipeline.kernels import Kernel
from mercore.stores.wording import setting

if TYPE_CHECKING:
    from mercore.pipeline.scanners.hamming import HammingScanner

MAX_BITS = 1 << 12
BITS = declare_option("bits", "Bits of a code, B.")
BITS_PER_LOOKUP = Fraction(300, 8)  # Davis et al. 2014, §3.2


@dataclass(frozen=True, kw_only=True)
class Bits(EncoderSpec):
    """The parameters of binary codes: B bits."""

    n_bits: int = field(default=256, metadata=BITS)

    size = Size("n_bits", "bits", MAX_BITS, BITS_PER_LOOKUP)

    def check_bits(self) -> None:
        """Refuse a number of bits out of range.

        Raises
        ------
        InputError
            If it is.
        """
        check_range("bits", self.n_bits, (1, MAX_BITS), setting(bits=256))

    def code_columns(self) -> list[CodeColumn]:
        """Return the code: eight bits per byte, the first in the lowest place."""
        return [("code", "uint8", -(-self.n_bits // 8))]


@dataclass(frozen=True, kw_only=True)
class Hyperplanes(Bits, LandmarkSpec):
    """Binary codes whose hyperplanes are weighted sums of landmarks.

    A bit is set where Σ w(i) K(x, yᵢ) > θ. The model has w as ``projection``, float32[M, B], and θ
    as ``thresholds``, float32[B]; kpca-lsh has none, and its θ is 0.
    """

    def encoder(self, kernel: Kernel, model: Model) -> "Signs":
        """Return the encoder of a model."""
        embedding = Embedding(kernel, model["landmarks"], model["projection"])
        return Signs(embedding, model.get("thresholds"))

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
    """Encode rows as bits: one is set where a coordinate is above its threshold, float32[B]."""

    def __init__(self, embedding: Embedding, thresholds: Float32 | None = None) -> None:
        self.embedding = embedding
        self.block_rows = embedding.block_rows
        self._thresholds = np.float32(0) if thresholds is None else thresholds

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows, uint8[b, ⌈B / 8⌉]."""
        return {"code": self._packed(self.embedding(rows, first=first))}

    def scanner(self, queries: NDArray[Any]) -> "HammingScanner":
        """Return the scanner of queries by the share of bits that agree."""
        from mercore.pipeline.scanners.hamming import HammingScanner

        codes = self._packed(self.embedding(queries, label="query"))
        return HammingScanner(codes, self.embedding.width)

    def _packed(self, coordinates: Float32) -> NDArray[np.uint8]:
        """Return the bits of coordinates, float32[b, B], packed into bytes."""
        return np.packbits(coordinates > self._thresholds, axis=1, bitorder="little")

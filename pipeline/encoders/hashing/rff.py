"""Binarised random Fourier features of a Gaussian kernel (Raginsky & Lazebnik 2009)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import Encoder, Memory, Model, check_random_state
from mercore.pipeline.encoders.hashing.signs import Bits
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.rbf import Rbf
from mercore.stores.errors import InputError
from mercore.stores.wording import setting

if TYPE_CHECKING:
    from mercore.pipeline.scanners.hamming import HammingScanner
    from mercore.stores.vectors import Vectors

BLOCK_ROWS = 1024


@dataclass(frozen=True, kw_only=True)
class RffSpec(Bits):
    """Rows as B bits: a bit is set where cos(⟨ω, x⟩ + b) + t ≥ 0.

    ω is Gaussian with variance 2 γ per dimension, b uniform in [0, 2π], t uniform in [−1, 1].
    The expected share of bits that differ falls with K(x, y) = exp(−γ ‖x − y‖²) alone.
    """

    name: str = "rff"
    version: int = 1

    description = "A code holds B bits: binarised random Fourier features, for the kernel rbf."
    source = "Raginsky & Lazebnik 2009"
    needs = "the kernel rbf"

    @classmethod
    def serves(cls, kernel: Kernel) -> bool:
        """Return whether the kernel is Gaussian."""
        return isinstance(kernel, Rbf)

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse kernels that are not Gaussian, and parameters out of range."""
        _gaussian(kernel)
        self.check_bits()
        check_random_state(self.random_state)

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return ω as ``projection`` float32[d, B], ``phases`` b and ``thresholds`` −t [B]."""
        rng = np.random.default_rng(self.random_state)
        directions = rng.standard_normal((vectors.dims, self.n_bits)) * np.sqrt(
            2 * _gaussian(kernel).gamma
        )
        return {
            "projection": directions.astype(np.float32),
            "phases": rng.uniform(0, 2 * np.pi, self.n_bits).astype(np.float32),
            "thresholds": -rng.uniform(-1, 1, self.n_bits).astype(np.float32),
        }

    def encoder(self, kernel: Kernel, model: Model) -> "FourierSigns":
        """Return the encoder of a model."""
        return FourierSigns(kernel, model)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 24 * dims + 10 * self.n_bits
        model = dims * self.n_bits
        return Memory(fit=16 * model, shared=8 * model, row=row, query=row)


class FourierSigns(Encoder):
    """Encode rows as the bits of their random Fourier features."""

    block_rows = BLOCK_ROWS

    def __init__(self, kernel: Kernel, model: Model) -> None:
        from mercore.pipeline.kernels.blocks import pack_products

        self._kernel = kernel
        self._projection = pack_products(model["projection"])
        self._phases = model["phases"].astype(np.float64)
        self._thresholds = model["thresholds"]

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows, uint8[b, ⌈B / 8⌉]."""
        return {"code": self._bits(rows, first=first, label="row")}

    def scanner(self, queries: NDArray[Any]) -> "HammingScanner":
        """Return the scanner of queries by the share of bits that agree."""
        from mercore.pipeline.scanners.hamming import HammingScanner

        return HammingScanner(self._bits(queries, first=0, label="query"), len(self._phases))

    def _bits(self, rows: NDArray[Any], *, first: int, label: str) -> NDArray[np.uint8]:
        """Return the bits of raw rows, packed into bytes."""
        from mercore.pipeline.kernels.blocks import products

        prepared = self._kernel.prepare(rows, first=first, label=label).astype(np.float32)
        features = np.cos(products(prepared, self._projection) + self._phases)
        return np.packbits(features >= self._thresholds, axis=1, bitorder="little")


def _gaussian(kernel: Kernel) -> Rbf:
    """Return a kernel that is Gaussian, and refuse others.

    Raises
    ------
    InputError
        If it is not.
    """
    if not isinstance(kernel, Rbf):
        raise InputError(
            f"rff encodes the kernel rbf only: found {kernel.name}. "
            f"Fix: {setting(encoder='klsh')}, which takes every kernel."
        )
    return kernel

"""Signs of random projections: the angle between two rows (Charikar 2002)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import Encoder, Memory, Model, check_random_state
from mercore.pipeline.encoders.hashing.signs import Bits
from mercore.pipeline.kernels import Kernel
from mercore.stores.errors import InputError
from mercore.stores.vectors import Vectors
from mercore.stores.wording import setting

BLOCK_ROWS = 1024


@dataclass(frozen=True, kw_only=True)
class SignsSpec(Bits):
    """Rows as B bits: a bit is set where ⟨w, x⟩ > 0, w Gaussian.

    The expected share of bits that differ is the angle between two rows, divided by π.
    """

    name: str = "mercore_example.signs"
    version: int = 1

    description = "A code holds B bits: the signs of random projections, for the kernel cosine."
    source = "Charikar 2002"
    needs = "the kernel cosine"

    @classmethod
    def serves(cls, kernel: Kernel) -> bool:
        """Return whether the kernel is the cosine."""
        return kernel.name == "cosine"

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS

    def check(self, vectors: Vectors, kernel: Kernel) -> None:
        """Refuse other kernels, and parameters out of range."""
        if not self.serves(kernel):
            raise InputError(
                f"{self.name} encodes the kernel cosine only: found {kernel.name}. "
                f"Fix: {setting(encoder='klsh')}, which takes every kernel."
            )
        self.check_bits()
        check_random_state(self.random_state)

    def fit(self, vectors: Vectors, kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return w as ``projection``, float32[d, B]."""
        rng = np.random.default_rng(self.random_state)
        directions = rng.standard_normal((vectors.dims, self.n_bits))
        return {"projection": directions.astype(np.float32)}

    def encoder(self, kernel: Kernel, model: Model) -> "Signer":
        """Return the encoder of a model."""
        return Signer(kernel, model)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take, in bytes."""
        row, model = 16 * dims + 17 * self.n_bits, dims * self.n_bits
        return Memory(fit=12 * model, shared=12 * model, row=row, query=row)


class Signer(Encoder):
    """Encode rows as the signs of their projections."""

    block_rows = BLOCK_ROWS

    def __init__(self, kernel: Kernel, model: Model) -> None:
        self._kernel = kernel
        self._projection = model["projection"].astype(np.float64)

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows, uint8[b, ⌈B / 8⌉]."""
        return {"code": self._bits(rows, first=first, label="row")}

    def scanner(self, queries: NDArray[Any]) -> Any:
        """Return the scanner of queries by the share of bits that agree."""
        from mercore.pipeline.scanners.hamming import HammingScanner  # compiles when it is used

        return HammingScanner(
            self._bits(queries, first=0, label="query"), self._projection.shape[1]
        )

    def _bits(self, rows: NDArray[Any], *, first: int, label: str) -> NDArray[np.uint8]:
        """Return the bits of raw rows, packed into bytes.

        The sums add one dimension after another. A product of matrices would add them in another
        order for another number of rows, and a code must depend on its row alone.
        """
        prepared = self._kernel.prepare(rows, first=first, label=label)
        sums = np.zeros((len(rows), self._projection.shape[1]))
        for j, weights in enumerate(self._projection):
            sums += prepared[:, j, None] * weights
        return np.packbits(sums > 0, axis=1, bitorder="little")

"""ASKA: every row as a few weighted dictionary atoms in feature space (Davis, Balzer & Soatto, CVPR 2014)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.aligned import CACHE_LINE, aligned
from pipeline.kernels import Kernel
from pipeline.kernels.kernel import Float32
from stores.errors import InputError
from stores.header import column_fields
from stores.spec import ABSENT

MAX_ATOMS = 1 << 16
WEIGHTS = ("int8", "float16", "float32")
PURSUITS = ("omp", "ormp")
BLOCK_ROWS = 256  # rows whose correlations with the dictionary are held at once
RESIDUAL_TOLERANCE = 1e-6  # of residual²: what float32 correlations can still tell from zero


@dataclass(frozen=True, kw_only=True)
class AskaSpec:
    """Parameters of the encoder: ``m`` atoms drawn with a seed, α non-zeros a row, how they are pursued and stored.

    The pursuit ``omp`` takes the atom most correlated with the residual, ``ormp`` the one that lowers it most.
    """

    name: str = "aska"
    version: int = 1
    n_atoms: int = 8192
    n_nonzero_coefs: int = 8
    weights: str = "int8"
    random_state: int = 0
    pursuit: str = field(default="ormp", metadata={ABSENT: "omp"})  # the first stores had no other

    def check(self, rows: int) -> None:
        """Refuse parameters that ``rows`` vectors or the code's format cannot take.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """
        if not 1 <= self.n_atoms <= min(MAX_ATOMS, rows):
            limit = f"{rows} rows in the store" if rows < MAX_ATOMS else f"{MAX_ATOMS}, for an atom is a uint16"
            raise InputError(
                f"atoms is out of range: found {self.n_atoms}, expected 1 to {limit}. Mend: --atoms {min(1024, rows)}"
            )
        if not 1 <= self.n_nonzero_coefs <= min(self.n_atoms, 256):
            raise InputError(
                f"sparsity is out of range: found {self.n_nonzero_coefs}, expected 1 to {min(self.n_atoms, 256)}. "
                "Mend: --sparsity 8"
            )
        if self.weights not in WEIGHTS:
            raise InputError(
                f"unknown weights: found {self.weights!r}, expected one of {', '.join(WEIGHTS)}. Mend: --weights int8"
            )
        if self.pursuit not in PURSUITS:
            raise InputError(
                f"unknown pursuit: found {self.pursuit!r}, expected one of {', '.join(PURSUITS)}. Mend: --pursuit ormp"
            )
        if self.random_state < 0:
            raise InputError(f"random_state must not be negative: found {self.random_state}. Mend: --random-state 0")

    def draw(self, rows: int) -> NDArray[np.int64]:
        """Return the rows that become atoms, int64[m], ascending: drawn without replacement, uniformly."""
        rng = np.random.default_rng(self.random_state)
        return np.sort(rng.choice(rows, self.n_atoms, replace=False, shuffle=False)).astype(np.int64)

    def columns(self, compressor: str) -> list[dict[str, Any]]:
        """Return the columns of a code: atoms, weights (with a scale a row if int8) and the residual."""
        alpha = self.n_nonzero_coefs
        scale = [column_fields("scale", "float16", None, compressor)] if self.weights == "int8" else []
        return [
            column_fields("atoms", "uint16", alpha, compressor),
            column_fields("weights", self.weights, alpha, compressor),
            *scale,
            column_fields("residual", "float16", None, compressor),
        ]


class Aska:
    """A dictionary in feature space, ready to encode rows and to tabulate queries.

    Parameters
    ----------
    spec : AskaSpec
    kernel : Kernel
    dictionary : dtype[m, d], rows as they lie in the vector store
    """

    def __init__(self, spec: AskaSpec, kernel: Kernel, dictionary: NDArray[Any]) -> None:
        self.spec = spec
        self.kernel = kernel
        self._atoms_t = np.ascontiguousarray(kernel.prepare(dictionary, label="atom").T)

    def prepare_encoding(self) -> None:
        """Compute what only encoding needs: the Gram matrix K(D, D), float32[m, m], filled up to whole tiles."""
        from pipeline.encoders.pursuit_numba import TILE

        self._atoms32_t = self._atoms_t.astype(np.float32)
        m, tile = self.spec.n_atoms, int(TILE)
        self._gram = _on_cache_lines(m, -(-m // tile) * tile)
        self._gram[:, m:] = 0
        atoms32 = np.ascontiguousarray(self._atoms32_t.T)
        for first in range(0, m, BLOCK_ROWS):
            last = min(m, first + BLOCK_ROWS)
            block = self.kernel.block(atoms32[first:last], np.ascontiguousarray(self._atoms32_t[:, first:]))
            self._gram[first:last, first:m] = block
            self._gram[last:m, first:last] = block[:, last - first :].T

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows (Eq. 9 by OMP or ORMP), one array a column.

        Parameters
        ----------
        rows : dtype[b, d]
        first : int
            Number of the first row, for messages. A row's code is the same to the bit whatever block it comes in.
        """
        from pipeline.encoders import pursuit_numba, weights_numba

        prepared = self.kernel.prepare(rows, first=first).astype(np.float32)
        start = self._whole_tiles(self.kernel.block(prepared, self._atoms32_t))
        atoms = np.empty((len(rows), self.spec.n_nonzero_coefs), np.int64)
        weights = np.empty(atoms.shape)
        recursive = self.spec.pursuit == "ormp"
        pursuit_numba.pursue(start, self._gram, recursive, RESIDUAL_TOLERANCE, atoms, weights)
        stored = self._store_weights(weights)
        residual = np.empty(len(rows))
        weights_numba.residuals(start, self._gram, atoms, self.weights(stored).astype(np.float64), residual)
        return {"atoms": atoms.astype(np.uint16), **stored, "residual": float16_above(residual)}

    def table(self, queries: NDArray[Any]) -> Float32:
        """Return K(D, x) of raw queries (Eq. 11), float32[m, nq]: rounded exact scores, so batches do not matter."""
        return self.kernel.exact(self.kernel.prepare(queries, label="query"), self._atoms_t).T.astype(np.float32)

    def _whole_tiles(self, block: Float32) -> Float32:
        """Return correlations filled up with zeros as the Gram matrix is."""
        if block.shape[1] == self._gram.shape[1]:
            return block
        whole = aligned((len(block), self._gram.shape[1]), np.float32)
        whole[:, : block.shape[1]] = block
        return whole

    @staticmethod
    def weights(code: Mapping[str, NDArray[Any]]) -> Float32:
        """Return the weights of codes as float32[b, α]: int8 times the row's scale."""
        if "scale" in code:
            return code["weights"].astype(np.float32) * code["scale"].astype(np.float32)[:, None]
        return np.asarray(code["weights"], np.float32)

    def _store_weights(self, weights: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Return the columns that hold ``weights`` [b, α]."""
        from pipeline.encoders import weights_numba

        if self.spec.weights != "int8":
            return {"weights": weights.astype(self.spec.weights)}
        scale = int8_scales(weights)
        rounded = np.zeros(weights.shape, np.int8)
        weights_numba.quantise_int8(weights, scale.astype(np.float64), rounded)
        return {"weights": rounded, "scale": scale}


def _on_cache_lines(rows: int, width: int) -> Float32:
    """Return uninitialised float32[rows, width] from a cache line on: in huge pages, which zeros would not get."""
    room = np.empty(rows * width + CACHE_LINE // 4, np.float32)
    start = -room.ctypes.data % CACHE_LINE // 4
    return room[start : start + rows * width].reshape(rows, width)


def int8_scales(weights: NDArray[np.float64]) -> NDArray[np.float16]:
    """Return a scale a row, float16[b]: max |weight| / 127, or up to 1/32 more, so that the sum is a whole number.

    Atoms resemble one another, so the error of the weights' sum is what shows in a score: this leaves next to none.
    """
    least = np.abs(weights).max(axis=1) / 127
    total = np.abs(weights.sum(axis=1))
    whole = np.floor(np.divide(total, least, out=np.zeros_like(total), where=least > 0))
    scales: NDArray[np.float64] = np.where(whole >= 32, total / np.maximum(whole, 1), least)
    return scales.astype(np.float16)


def float16_above(values: NDArray[np.float64]) -> NDArray[np.float16]:
    """Return the least float16 not below each of the non-negative ``values``."""
    near = values.astype(np.float16)
    return np.where(near < values, np.nextafter(near, np.float16(np.inf)), near)

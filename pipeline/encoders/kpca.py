"""Kernel PCA: rows as E coordinates in the span of M landmarks in feature space (Bourrier et al. 2015, §2.2.1)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.encoders.encoder import Model, check_random_state, check_range, draw_rows, rows_of_block
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.blocks import pack_products, products
from mercore.pipeline.scanners.dense import DenseScanner
from mercore.stores.part_store.header import column_fields
from mercore.stores.vectors import Vectors, gather

MAX_LANDMARKS = 1 << 15
LEAST_EIGENVALUE = 1e-6  # K(x, x) = 1: a component of less is drowned by the rounding of float32 kernel values


@dataclass(frozen=True, kw_only=True)
class Landmarks:
    """What every encoder on kernel PCA has: M landmarks drawn with a seed, and E components of them."""

    n_landmarks: int = 1024
    n_components: int = 64
    random_state: int = 0

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return rows_of_block(self.n_landmarks)

    def check_landmarks(self, rows: int) -> None:
        """Refuse landmarks or components that ``rows`` vectors do not have.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """
        most = min(MAX_LANDMARKS, rows)
        why = ", the rows of the store" if rows < MAX_LANDMARKS else ""
        check_range("landmarks", self.n_landmarks, (1, most), f"--landmarks {min(1024, rows)}", why=why)
        fix = f"--components {min(64, self.n_landmarks)}"
        check_range("components", self.n_components, (1, self.n_landmarks), fix, why=", the landmarks")
        check_random_state(self.random_state)

    def learn_components(
        self, vectors: Vectors, kernel: Kernel
    ) -> tuple[dict[str, NDArray[Any]], Float64, np.random.Generator]:
        """Return landmarks and eigenvalues as model arrays, the components, and the generator for what comes next."""
        rng = np.random.default_rng(self.random_state)
        rows = draw_rows(rng, vectors.rows, self.n_landmarks)
        landmarks = gather(vectors, rows)
        eigenvalues, components = principal_components(gram_matrix(kernel, landmarks), self.n_components)
        return {"landmarks": landmarks, "landmark_rows": rows, "eigenvalues": eigenvalues}, components, rng

    def gram_bytes(self, dims: int) -> int:
        """Return the memory that learning the components takes: the Gram matrix, its eigenvectors, the landmarks."""
        return 8 * self.n_landmarks * (self.n_landmarks + 4 * self.n_components + 4 * dims)

    def embedding_bytes(self, dims: int, width: int) -> int:
        """Return the memory of landmarks and a projection to ``width`` dimensions."""
        return self.n_landmarks * (24 * dims + 8 * width)


@dataclass(frozen=True, kw_only=True)
class KpcaSpec(Landmarks):
    """Rows kept as their E float32 coordinates, with the norm of what those leave out."""

    name: str = "kpca"
    version: int = 1

    def check(self, vectors: Vectors, kernel: Kernel) -> None:
        """Refuse parameters out of range (see the EncoderSpec contract)."""
        self.check_landmarks(vectors.rows)

    def columns(self, compressor: str) -> list[dict[str, Any]]:
        """Return the columns of a code: the coordinates x̃ and R(x)."""
        return [
            column_fields("embedding", "float32", self.n_components, compressor),
            column_fields("residual", "float32", None, compressor),
        ]

    def fit(self, vectors: Vectors, kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues and projection."""
        model, components, _ = self.learn_components(vectors, kernel)
        return {**model, "projection": components.astype(np.float32)}

    def encoder(self, kernel: Kernel, model: Model) -> "Kpca":
        """Return the encoder of a model."""
        return Kpca(Embedding(kernel, model["landmarks"], model["projection"]))

    def fit_bytes(self, rows: int, dims: int) -> int:
        """Return the memory that fitting takes."""
        return self.gram_bytes(dims)

    def shared_bytes(self, dims: int) -> int:
        """Return the memory that all threads share while encoding."""
        return self.embedding_bytes(dims, self.n_components)

    def row_bytes(self, dims: int) -> int:
        """Return the memory that a row of a block takes while it is encoded."""
        return 8 * self.n_landmarks + 24 * dims + 16 * self.n_components

    def query_bytes(self, dims: int) -> int:
        """Return the memory that a query takes while codes are scanned."""
        return self.row_bytes(dims)


class Embedding:
    """The map of rows to ``width`` float32 coordinates: kernel values against landmarks times a projection.

    Parameters
    ----------
    kernel : Kernel
    landmarks : dtype[M, d], rows as they lie in the vector store
    projection : float32[M, width], the components scaled as in Eq. 11, with whatever linear map comes after them
    """

    def __init__(self, kernel: Kernel, landmarks: NDArray[Any], projection: Float32) -> None:
        self.kernel = kernel
        self.block_rows = rows_of_block(len(landmarks))
        self.width = projection.shape[1]
        prepared = kernel.prepare(landmarks, label="landmark").astype(np.float32)
        self._landmarks = kernel.packed(np.ascontiguousarray(prepared.T))
        self._projection = pack_products(projection)

    def __call__(self, rows: NDArray[Any], *, first: int = 0, label: str = "row") -> Float32:
        """Return the coordinates of raw rows, float32[b, width]: a row's are its own to the bit (Eq. 11)."""
        prepared = self.kernel.prepare(rows, first=first, label=label).astype(np.float32)
        return products(self.kernel.block(prepared, self._landmarks), self._projection)


class Kpca:
    """Encode rows as their coordinates and R(x)."""

    def __init__(self, embedding: Embedding) -> None:
        self.embedding = embedding
        self.block_rows = embedding.block_rows

    def prepare_encoding(self) -> None:
        """Do nothing: queries need all that rows need."""

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return x̃ and R(x) = √(K(x, x) − ‖x̃‖²) of a block of rows (Eq. 11 and 21)."""
        coordinates = self.embedding(rows, first=first)
        left = 1 - np.square(coordinates, dtype=np.float64).sum(axis=1)
        return {"embedding": coordinates, "residual": np.sqrt(np.maximum(left, 0)).astype(np.float32)}

    def scanner(self, queries: NDArray[Any]) -> DenseScanner:
        """Return queries ready to be scored by ⟨x̃, ỹ⟩ (Eq. 12)."""
        return DenseScanner(self.embedding(queries, label="query"), "embedding")


def gram_matrix(kernel: Kernel, landmarks: NDArray[Any]) -> Float64:
    """Return K of raw landmarks with each other, float64[M, M]."""
    prepared = kernel.prepare(landmarks, label="landmark")
    return kernel.exact(prepared, np.ascontiguousarray(prepared.T))


def principal_components(gram: Float64, count: int) -> tuple[Float64, Float64]:
    """Return the greatest eigenvalues σ² of a Gram matrix, float64[E], and u / σ, float64[M, E] (Eq. 11).

    Components whose eigenvalue is next to nothing are zero: landmarks that repeat or depend on each other have such.
    A component's sign is that which makes its greatest entry positive. The matrix is overwritten.
    """
    from scipy.linalg import eigh
    from threadpoolctl import threadpool_limits

    m = len(gram)
    with threadpool_limits(1):  # SciPy's BLAS is its own: a limit from before that import does not hold for it
        found, vectors = eigh(gram.T, subset_by_index=(m - count, m - 1), overwrite_a=True, check_finite=False)
    eigenvalues, vectors = found[::-1], vectors[:, ::-1]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(count)])
    kept = eigenvalues > LEAST_EIGENVALUE
    scales = np.where(kept, signs / np.sqrt(np.where(kept, eigenvalues, 1)), 0)
    return np.where(kept, eigenvalues, 0), vectors * scales


def random_rotation(rng: np.random.Generator, width: int) -> Float64:
    """Return an orthogonal matrix, float64[width, width], drawn uniformly (Haar's measure)."""
    q, r = np.linalg.qr(rng.standard_normal((width, width)))
    return np.asarray(q * np.sign(np.diagonal(r)))

"""Kernel PCA: E coordinates in the span of M landmarks (Bourrier et al. 2015, §2.2.1)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, Rows
from mercore.pipeline.encoders.encoder import (
    CodeColumn,
    CoordinateCodes,
    Default,
    Encoder,
    EncoderSpec,
    Memory,
    Model,
    Size,
    check_random_state,
    check_range,
    declare_option,
    draw_rows,
    read_rows,
    rows_of_block,
    shrunk,
)
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.sums import Cosine
from mercore.stores.wording import setting

if TYPE_CHECKING:
    from mercore.pipeline.scanners.dense import DenseScanner
    from mercore.stores.vectors import Vectors

Embed = Callable[..., Float32]  # raw rows to coordinates
MAX_LANDMARKS = 1 << 15
LEAST_EIGENVALUE = 1e-6  # K(x, x) = 1: smaller ones drown in the rounding of float32 kernel values
LANDMARKS = declare_option("landmarks", "Rows M that kernel PCA learns from.")
COMPONENTS = declare_option("components", "Coordinates E of a row in kernel PCA.")


@dataclass(frozen=True, kw_only=True)
class LandmarkSpec(EncoderSpec):
    """The parameters of encoders that score rows against M landmarks, drawn with a seed."""

    n_landmarks: int = field(default=Default(1024), metadata=LANDMARKS)

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return rows_of_block(self.n_landmarks)

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit (see the EncoderSpec contract)."""
        spec = super().with_defaults_for(rows, dims)
        return replace(spec, n_landmarks=shrunk(spec.n_landmarks, rows))

    def check_landmark_count(self, rows: int) -> None:
        """Refuse landmarks that ``rows`` vectors do not have.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """
        most = min(MAX_LANDMARKS, rows)
        why = ", the rows of the store" if rows < MAX_LANDMARKS else ""
        check_range(
            "landmarks", self.n_landmarks, (1, most), setting(landmarks=min(1024, rows)), why=why
        )
        check_random_state(self.random_state)

    def draw_landmarks(
        self, vectors: "Vectors"
    ) -> tuple[NDArray[Any], NDArray[np.int64], np.random.Generator]:
        """Return raw landmarks dtype[M, d], their rows, and the random generator for the rest."""
        rng = np.random.default_rng(self.random_state)
        rows = draw_rows(rng, vectors.rows, self.n_landmarks)
        return read_rows(vectors, rows), rows, rng

    def gram_bytes(self, dims: int) -> int:
        """Return the bytes that learning takes: Gram matrix, eigenvectors and landmarks."""
        return 8 * self.n_landmarks * (self.n_landmarks * 5 + 4 * dims)

    def embedding_bytes(self, dims: int, width: int) -> int:
        """Return the bytes of landmarks and a projection to ``width`` dimensions."""
        return self.n_landmarks * (24 * dims + 8 * width)


@dataclass(frozen=True, kw_only=True)
class KpcaParams(LandmarkSpec):
    """The parameters of kernel PCA: M landmarks, and E components."""

    n_components: int = field(default=Default(64), metadata=COMPONENTS)

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit (see the EncoderSpec contract)."""
        spec = super().with_defaults_for(rows, dims)
        return replace(spec, n_components=shrunk(spec.n_components, spec.n_landmarks))

    def check_landmarks(self, rows: int) -> None:
        """Refuse landmarks or components that ``rows`` vectors do not have.

        Raises
        ------
        InputError
            If a parameter is out of its range.
        """
        self.check_landmark_count(rows)
        fix = setting(components=min(64, self.n_landmarks))
        check_range(
            "components", self.n_components, (1, self.n_landmarks), fix, why=", the landmarks"
        )

    def learn_components(
        self, vectors: "Vectors", kernel: Kernel
    ) -> tuple[dict[str, NDArray[Any]], Float64, np.random.Generator]:
        """Return landmarks and eigenvalues as model arrays, components, and random generator."""
        landmarks, rows, rng = self.draw_landmarks(vectors)
        eigenvalues, components = principal_components(
            gram_matrix(kernel, landmarks), self.n_components
        )
        return (
            {"landmarks": landmarks, "landmark_rows": rows, "eigenvalues": eigenvalues},
            components,
            rng,
        )

    def gram_bytes(self, dims: int) -> int:
        """Return the bytes that learning takes: Gram matrix, eigenvectors and landmarks."""
        return 8 * self.n_landmarks * (self.n_landmarks + 4 * self.n_components + 4 * dims)

    def size_fits(self, dims: int) -> bool:
        """Return whether there are as many landmarks as components."""
        return super().size_fits(dims) and self.n_components <= self.n_landmarks


@dataclass(frozen=True, kw_only=True)
class KpcaSpec(KpcaParams, CoordinateCodes):
    """Rows as their E float32 coordinates, with the norm of the rest."""

    name: str = "kpca"
    version: int = 1

    description = (
        "A code holds the E coordinates of kernel PCA as float32, and the norm of the rest."
    )
    source = "Bourrier et al. 2015, Eq. 11, 12 and 21"
    size = Size("n_components", "multiply-adds", MAX_LANDMARKS)  # plain KPCA is not in the paper
    scanned_names = ("embedding",)

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range (see the EncoderSpec contract)."""
        self.check_landmarks(vectors.rows)

    def code_columns(self) -> list[CodeColumn]:
        """Return the coordinates x̃ and R(x)."""
        return [("embedding", "float32", self.n_components), ("residual", "float32", None)]

    def decode(self, model: Model, columns: Mapping[str, NDArray[Any]]) -> Float32:
        """Return the coordinates, which are stored as they are."""
        return np.asarray(columns["embedding"])

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues and projection."""
        model, components, _ = self.learn_components(vectors, kernel)
        return {**model, "projection": components.astype(np.float32)}

    def encoder(self, kernel: Kernel, model: Model) -> "Kpca":
        """Return the encoder of a model."""
        return Kpca(Embedding(kernel, model["landmarks"], model["projection"]))

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 8 * self.n_landmarks + 24 * dims + 16 * self.n_components
        return Memory(
            fit=self.gram_bytes(dims),
            shared=self.embedding_bytes(dims, self.n_components),
            row=row,
            query=row,
        )


class Embedding:
    """The map of rows to ``width`` float32 coordinates: kernel values times a projection.

    Parameters
    ----------
    kernel : Kernel
    landmarks : dtype[M, d], raw rows of the vector store
    projection : float32[M, width], the components scaled as in Eq. 11, times the linear map that
        follows
    """

    def __init__(self, kernel: Kernel, landmarks: NDArray[Any], projection: Float32) -> None:
        from mercore.pipeline.kernels.blocks import pack_products

        self.kernel = kernel
        self.block_rows = rows_of_block(len(landmarks))
        self.width = projection.shape[1]
        prepared = kernel.prepare(landmarks, label="landmark").astype(np.float32)
        self._landmarks = kernel.packed(np.ascontiguousarray(prepared.T))
        self._projection = pack_products(projection)

    def __call__(self, rows: NDArray[Any], *, first: int = 0, label: str = "row") -> Float32:
        """Return the coordinates of raw rows (Eq. 11), float32[b, width].

        The coordinates of a row do not depend on its block, to the bit.
        """
        from mercore.pipeline.kernels.blocks import products

        prepared = self.kernel.prepare(rows, first=first, label=label).astype(np.float32)
        return products(self.kernel.block(prepared, self._landmarks), self._projection)


def in_blocks(embed: Embed, size: int = 4096) -> Embed:
    """Return the embedding of any number of rows, computed block by block."""

    def blocks(rows: NDArray[Any]) -> Float32:
        return np.concatenate(
            [embed(rows[at : at + size], first=at) for at in range(0, len(rows), size)]
        )

    return blocks


def unit_rows(coordinates: Float32) -> Float64:
    """Return coordinates divided by their norms; rows of zeros stay."""
    wide = coordinates.astype(np.float64)
    norms = np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
    return np.asarray(wide / np.where(norms > 0, norms, 1))


class Kpca(Encoder):
    """Encode rows as their coordinates and R(x)."""

    def __init__(self, embedding: Embedding) -> None:
        self.embed = embedding
        self.block_rows = embedding.block_rows

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return x̃ and R(x) = √(K(x, x) − ‖x̃‖²) of a block of rows (Eq. 11 and 21)."""
        coordinates = self.embed(rows, first=first)
        left = 1 - np.square(coordinates, dtype=np.float64).sum(axis=1)
        return {
            "embedding": coordinates,
            "residual": np.sqrt(np.maximum(left, 0)).astype(np.float32),
        }

    def scanner(self, queries: NDArray[Any]) -> "DenseScanner":
        """Return the scanner of queries by ⟨x̃, ỹ⟩ (Eq. 12)."""
        from mercore.pipeline.scanners.dense import DenseScanner

        return DenseScanner(self.embed(queries, label="query"), "embedding")

    def scanners(self, points: Float32) -> "Iterator[DenseScanner]":
        """Yield a scanner for each query, given as its point."""
        from mercore.pipeline.scanners.dense import DenseScanner

        for point in points:
            yield DenseScanner(point[None], "embedding")


def gram_matrix(kernel: Kernel, landmarks: NDArray[Any]) -> Float64:
    """Return K of raw landmarks with each other, float64[M, M]."""
    prepared = kernel.prepare(landmarks, label="landmark")
    return kernel.exact(prepared, np.ascontiguousarray(prepared.T))


def principal_components(gram: Float64, count: int) -> tuple[Float64, Float64]:
    """Return the greatest eigenvalues σ² of a Gram matrix [E], and u / σ [M, E] (Eq. 11).

    Components with a tiny eigenvalue are zero: repeated or dependent landmarks have such
    components. The sign of a component makes its greatest entry positive. The matrix is
    overwritten.
    """
    from scipy.linalg import eigh
    from threadpoolctl import threadpool_limits

    m = len(gram)
    find = partial(eigh, overwrite_a=True, check_finite=False)
    diagonal = gram.diagonal().copy()
    with threadpool_limits(1):  # after the import: SciPy brings a BLAS of its own
        found, vectors = find(gram.T, subset_by_index=(m - count, m - 1))
        if len(found) < count:  # of equal eigenvalues LAPACK finds a part or none, but always all
            np.fill_diagonal(gram, diagonal)  # it was overwritten, and one triangle
            found, vectors = find(gram.T, lower=False)
    eigenvalues, vectors = found[: -count - 1 : -1], vectors[:, : -count - 1 : -1]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(count)])
    kept = eigenvalues > LEAST_EIGENVALUE
    scales = np.where(kept, signs / np.sqrt(np.where(kept, eigenvalues, 1)), 0)
    return np.where(kept, eigenvalues, 0), vectors * scales


def random_rotation(rng: np.random.Generator, width: int) -> Float64:
    """Return an orthogonal matrix, float64[width, width], drawn uniformly (Haar's measure)."""
    q, r = np.linalg.qr(rng.standard_normal((width, width)))
    return np.asarray(q * np.sign(np.diagonal(r)))


class EmbeddedCosine(Cosine):
    """The cosine of coordinates: rows are prepared by embedding.

    A row at the origin scores 0 with all.
    """

    shared_terms = False

    def __init__(self, embedding: Embed) -> None:
        self._embedding = embedding

    def prepare(self, rows: Rows, *, first: int = 0, label: str = "row") -> Float64:
        """Return the coordinates of raw rows, of unit norm or zero, float64[n, E]."""
        return unit_rows(self._embedding(rows, first=first, label=label))

    def decimal(self, x: Rows, y: Rows) -> Decimal | None:
        """Return None: coordinates have no formula."""
        return None

"""Product quantisation of kernel PCA's coordinates (Bourrier et al. 2015, §4.2)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.bounds.by_distance import of_features
from mercore.pipeline.encoders.bounds.kpca_bound import LEAST_EIGENVALUE, projection_slack
from mercore.pipeline.encoders.bounds.points import KernelEmbedding
from mercore.pipeline.encoders.bounds.proof import ErrorBounds, SimilarityOf, grid_of, proof_columns
from mercore.pipeline.encoders.encoder import CodeColumn, Default, Memory, Model
from mercore.pipeline.encoders.kpca import (
    COMPONENTS,
    Embedding,
    KpcaParams,
    gram_matrix,
    in_blocks,
)
from mercore.pipeline.encoders.pq import ComponentQuantizer, Pq, PqParams
from mercore.pipeline.kernels import Kernel

if TYPE_CHECKING:
    from mercore.stores.vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class KpcaPqSpec(KpcaParams, ComponentQuantizer):
    """Product quantisation of KPCA's coordinates, plain, rotated or permuted."""

    name: str = "kpca-pq"
    version: int = 1
    n_components: int = field(default=Default(128), metadata=COMPONENTS)

    description = "A code holds D bytes: the coordinates of kernel PCA, product-quantised."
    source = "Bourrier et al. 2015, §4.2"
    size = PqParams.size

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit: components are a multiple of sub-quantizers."""
        return super().with_defaults_for(rows, dims).divided()

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        self.check_landmarks(vectors.rows)
        self.check_component_quantizer()

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues, the preprocessed projection, and the codebooks.

        Proofs have a projection in float64, its slack, and cells.
        """
        model, components, rng = self.learn_components(vectors, kernel)
        if self.proves:
            components = components * (model["eigenvalues"] >= LEAST_EIGENVALUE)
        projection = self.preprocess(components, rng)
        embed = in_blocks(Embedding(kernel, model["landmarks"], projection.astype(np.float32)))
        model = {**model, "codebooks": self.learn(vectors, embed, rng)}
        if not self.proves:
            return {**model, "projection": projection.astype(np.float32)}
        gram = gram_matrix(kernel, model["landmarks"])
        used = projection[:, projection.any(axis=0)]
        slack = projection_slack(kernel, gram, used, vectors.dims)
        books = self.books(model)
        model |= {"projection": projection, "slack": np.array([slack]), **grid_of(books)}
        return model | self.learn_proof(vectors, kernel, books, *self._proof(kernel, model))

    def encoder(self, kernel: Kernel, model: Model) -> "Pq":
        """Return the encoder of a model."""
        embedding = Embedding(kernel, model["landmarks"], model["projection"].astype(np.float32))
        encoder = Pq(embedding, model["codebooks"], self)
        return encoder.proving(*self._proof(kernel, model)) if self.proves else encoder

    def proof_columns(self) -> list[CodeColumn]:
        """Return the cell, e and R."""
        return proof_columns("float16", "residual")

    def _proof(self, kernel: Kernel, model: Model) -> tuple[ErrorBounds, SimilarityOf]:
        """Return the proof of kernel PCA's coordinates, and what a distance says about a score."""
        slack = float(model["slack"][0])
        space = KernelEmbedding(kernel, model["landmarks"], model["projection"], slack)
        proof = ErrorBounds(space=space, kind="float16", model=model)
        return proof, lambda _: of_features(kernel)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 8 * self.n_landmarks + 24 * dims + 8 * self.n_components
        if self.proves:
            row += 8 * self.n_landmarks + 40 * self.n_components
        prepared = 24 * dims * min(rows, self.n_training)  # block by block
        sample = self.learning_bytes(rows, dims, self.n_components) - prepared
        return Memory(
            fit=self.gram_bytes(dims) + sample + self.proof_bytes(rows, dims, self.n_components),
            shared=self.embedding_bytes(dims, self.n_components)
            + self.books_bytes(self.n_components)
            + (16 * self.n_landmarks * (dims + self.n_components) if self.proves else 0),
            row=row,
            query=row + self.table_bytes(),
        )

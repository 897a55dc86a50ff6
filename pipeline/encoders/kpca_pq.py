"""Product quantisation of kernel PCA's coordinates (Bourrier et al. 2015, §4.2)."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.encoders.bounds.by_distance import of_features
from mercore.pipeline.encoders.bounds.kpca_bound import LEAST_EIGENVALUE, projection_slack
from mercore.pipeline.encoders.bounds.points import KernelEmbedding
from mercore.pipeline.encoders.bounds.proof import ErrorBounds, SimilarityOf, grid_of, proof_columns
from mercore.pipeline.encoders.encoder import (
    CodeColumn,
    Default,
    Memory,
    Model,
    check_choice,
    declare_option,
)
from mercore.pipeline.encoders.kpca import (
    COMPONENTS,
    Embed,
    Embedding,
    KpcaParams,
    gram_matrix,
    in_blocks,
    unit_rows,
)
from mercore.pipeline.encoders.pq import ComponentQuantizer, Pq, PqParams
from mercore.pipeline.kernels import Kernel
from mercore.stores.spec import ABSENT

if TYPE_CHECKING:
    from mercore.stores.vectors import Vectors

LENGTHS = ("unit", "own")


@dataclass(frozen=True, kw_only=True)
class KpcaPqSpec(KpcaParams, ComponentQuantizer):
    """Product quantisation of KPCA's coordinates, made unit vectors, plain, rotated or permuted.

    A score of unit vectors is the cosine of two rows' coordinates, and only ranks. A stored spec
    without a length means ``own``.
    """

    name: str = "kpca-pq"
    version: int = 1
    n_components: int = field(default=Default(128), metadata=COMPONENTS)
    per_subquantizer: ClassVar[int] = 4
    length: str = field(
        default="unit",
        metadata={
            ABSENT: "own",
            **declare_option(
                "length",
                "The length of coordinates before they are quantised: unit, or their own, which is "
                "less for rows that resemble no landmark.",
                choices=LENGTHS,
            ),
        },
    )

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
        check_choice("length", self.length, LENGTHS)

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues, the preprocessed projection, and the codebooks.

        Proofs have a projection in float64, its slack, and cells.
        """
        model, components, rng = self.learn_components(vectors, kernel)
        if self.proves:
            components = components * (model["eigenvalues"] >= LEAST_EIGENVALUE)
        projection = self.preprocess(components, rng)
        embed = self._embed(kernel, model["landmarks"], projection)
        model = {**model, "codebooks": self.learn(vectors, in_blocks(embed), rng)}
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
        embed = self._embed(kernel, model["landmarks"], model["projection"])
        encoder = Pq(embed, model["codebooks"], self)
        return encoder.proving(*self._proof(kernel, model)) if self.proves else encoder

    def proof_columns(self) -> list[CodeColumn]:
        """Return the cell, e and R; of unit vectors, R over the norm that they had."""
        return proof_columns("float16", "ratio" if self.length == "unit" else "residual")

    def _embed(self, kernel: Kernel, landmarks: NDArray[Any], projection: NDArray[Any]) -> Embed:
        """Return the map of raw rows to coordinates of their length, in float32."""
        embedding = Embedding(kernel, landmarks, projection.astype(np.float32))
        if self.length == "own":
            return embedding

        def embed(rows: NDArray[Any], *, first: int = 0, label: str = "row") -> Float32:
            return unit_rows(embedding(rows, first=first, label=label)).astype(np.float32)

        return embed

    def _proof(self, kernel: Kernel, model: Model) -> tuple[ErrorBounds, SimilarityOf]:
        """Return the proof of kernel PCA's coordinates, and what a distance says about a score."""
        slack = float(model["slack"][0])
        unit = self.length == "unit"
        space = KernelEmbedding(kernel, model["landmarks"], model["projection"], slack, unit=unit)
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

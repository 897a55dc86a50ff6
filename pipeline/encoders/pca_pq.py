"""Product quantisation of the principal components of rows."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.encoders.bounds.by_distance import of_rows
from mercore.pipeline.encoders.bounds.pca_bound import principal_axes, projection_slack
from mercore.pipeline.encoders.bounds.points import BoundedEmbedding, PcaEmbedding
from mercore.pipeline.encoders.bounds.proof import ErrorBounds, SimilarityOf, grid_of, proof_columns
from mercore.pipeline.encoders.encoder import (
    CodeColumn,
    Default,
    Memory,
    Model,
    check_range,
    draw_rows,
    read_rows,
    shrunk,
)
from mercore.pipeline.encoders.kpca import COMPONENTS, Embed, in_blocks
from mercore.pipeline.encoders.pq import (
    SUBQUANTIZERS,
    ComponentQuantizer,
    Pq,
    PqParams,
    RowQuantizer,
)
from mercore.pipeline.kernels import Kernel
from mercore.stores.wording import setting

if TYPE_CHECKING:
    from mercore.stores.vectors import Vectors

LARGER = 16  # rows may be larger than those of the sample by this factor, and still have a bound
LARGEST = 1e38  # norm of a row with a bound: R is stored as float32


class PointQuantizer(PqParams):
    """Product quantisers of points in float64, which codes and their proofs share."""

    def learn_codes(
        self, vectors: "Vectors", kernel: Kernel, rows: NDArray[Any], model: dict[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        """Return the model of a space with the codebooks of raw rows, and what proofs need."""
        embed = in_blocks(embedded(self.space(kernel, model)), self.block_rows)
        model["codebooks"] = self.learn_books(embed(rows))
        if self.proves:
            books = self.books(model)
            model |= grid_of(books)
            model |= self.learn_proof(vectors, kernel, books, *self._proof(kernel, model))
        return model

    def encoder(self, kernel: Kernel, model: Model) -> Pq:
        """Return the encoder of a model."""
        embed = embedded(self.space(kernel, model))
        encoder = Pq(embed, model["codebooks"], self, raw=not kernel.normalised)
        return encoder.proving(*self._proof(kernel, model)) if self.proves else encoder

    @abstractmethod
    def space(self, kernel: Kernel, model: Model) -> BoundedEmbedding:
        """Return the map of raw rows to points."""

    @abstractmethod
    def similarity(self, kernel: Kernel, model: Model) -> SimilarityOf:
        """Return the function from points of queries to their scores by distance."""

    def _proof(self, kernel: Kernel, model: Model) -> tuple[ErrorBounds, SimilarityOf]:
        """Return the proof of points, and what a distance says about a score."""
        _, kind, _ = self.proof_columns()[-1]
        proof = ErrorBounds(space=self.space(kernel, model), kind=kind, model=model)
        return proof, self.similarity(kernel, model)


@dataclass(frozen=True, kw_only=True)
class PcaPqSpec(PointQuantizer, RowQuantizer, ComponentQuantizer):
    """Product quantisation of principal components, as by faiss' ``PCA96,PQ48``.

    Scores are those of ``pq``, of the components alone. For the metric ``product`` the mean is not
    taken away, so that ⟨a, q(b)⟩ estimates ⟨x, y⟩.
    """

    name: str = "pca-pq"
    version: int = 1
    n_components: int = field(default=Default(96), metadata=COMPONENTS)
    n_subquantizers: int = field(default=Default(48), metadata=SUBQUANTIZERS)

    description = "A code holds D bytes: the row's principal components, product-quantised."
    source = "Jégou, Douze & Schmid 2011; PCA as by faiss"
    size = PqParams.size

    def with_defaults_for(self, rows: int, dims: int) -> Self:
        """Return the spec with defaults that fit (see the EncoderSpec contract)."""
        return replace(self, n_components=shrunk(self.n_components, dims)).divided()

    def size_fits(self, dims: int) -> bool:
        """Return whether the dimensions are enough, and sub-quantizers divide the components."""
        return super().size_fits(dims) and self.n_subquantizers <= dims

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range, and kernels that no metric of the rows ranks like."""
        self.check_metric(kernel)
        most = setting(components=min(64, vectors.dims))
        check_range(
            "components", self.n_components, (1, vectors.dims), most, why=", the dimensions"
        )
        self.check_component_quantizer()

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the mean, the preprocessed projection, the codebooks, and what proofs need."""
        rng = np.random.default_rng(self.random_state)
        drawn = draw_rows(rng, vectors.rows, min(self.n_training, vectors.rows))
        rows = read_rows(vectors, drawn)
        centred = kernel.prepare(rows)
        mean = centred.mean(axis=0) if self.metric == "distance" else np.zeros(vectors.dims)
        centred -= mean
        projection = self.preprocess(principal_axes(centred, self.n_components), rng)
        largest = LARGER * float(np.sqrt(np.square(centred).sum(axis=1).max()))
        model: dict[str, NDArray[Any]] = {
            "mean": mean,
            "projection": projection,
            "slack": np.array([projection_slack(projection)]),
            "largest": np.array([min(largest, LARGEST)]),
        }
        del centred
        return self.learn_codes(vectors, kernel, rows, model)

    def space(self, kernel: Kernel, model: Model) -> PcaEmbedding:
        """Return the map of raw rows to components."""
        return PcaEmbedding(kernel, model, self._form)

    def proof_columns(self) -> list[CodeColumn]:
        """Return the cell, and e with R or, for products, the norm."""
        return proof_columns("float32", self._form)

    @property
    def _form(self) -> str:
        """What the second number of a row is."""
        return "norm" if self.metric == "product" else "residual"

    def similarity(self, kernel: Kernel, model: Model) -> SimilarityOf:
        """Return the function from points of queries to their scores by distance."""
        norms = self._form == "norm"
        return lambda points: of_rows(kernel, points.apart if norms else None)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 40 * dims + 48 * self.n_components
        learning = self.learning_bytes(rows, dims, self.n_components)
        return Memory(
            fit=learning + 40 * dims**2 + self.proof_bytes(rows, dims, self.n_components),
            shared=16 * dims * (self.n_components + 32) + self.books_bytes(self.n_components),
            row=row,
            query=row + self.table_bytes(),
        )


def embedded(space: BoundedEmbedding) -> Embed:
    """Return the function from raw rows to points in float32."""

    def embed(rows: NDArray[Any], *, first: int = 0, label: str = "row") -> Float32:
        points = space(rows, first=first, label=label)
        with np.errstate(over="ignore"):  # such rows have no bound
            return points.coordinates.astype(np.float32)

    return embed

"""Gaussian projections of kernel PCA's coordinates (JL, as in Davis et al. 2014, §3.2)."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.encoders.encoder import (
    METRIC,
    METRICS,
    CodeColumn,
    Default,
    Encoder,
    Memory,
    Model,
    Size,
    check_choice,
    check_range,
    declare_option,
)
from mercore.pipeline.encoders.kpca import COMPONENTS, LANDMARKS, Embedding, KpcaParams
from mercore.pipeline.kernels import Kernel
from mercore.stores.wording import setting

if TYPE_CHECKING:
    from mercore.pipeline.scanners.dense import DenseScanner
    from mercore.stores.vectors import Vectors

MAX_PROJECTIONS = 1 << 12


@dataclass(frozen=True, kw_only=True)
class KpcaJlSpec(KpcaParams):
    """Rows as b float32 numbers P x̃, P Gaussian with variance 1 / b.

    The metric ``distance`` ranks by −‖P x̃ − P ỹ‖², which such projections preserve, and
    ``product`` by ⟨P x̃, P ỹ⟩. A code for ``distance`` has one number more, −‖P ỹ‖² / 2.
    """

    name: str = "kpca-jl"
    version: int = 1
    n_landmarks: int = field(default=Default(8192), metadata=LANDMARKS)
    n_components: int = field(default=Default(128), metadata=COMPONENTS)
    n_projections: int = field(
        default=32, metadata=declare_option("projections", "Numbers of a code.")
    )
    metric: str = field(default="distance", metadata=METRIC)

    description = (
        "A code holds float32 numbers: Gaussian projections of the coordinates of kernel PCA."
    )
    source = "Davis, Balzer & Soatto 2014, §3.2"
    size = Size("n_projections", "multiply-adds", MAX_PROJECTIONS, Fraction(32, 8))

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        check_range(
            "projections", self.n_projections, (1, MAX_PROJECTIONS), setting(projections=32)
        )
        check_choice("metric", self.metric, METRICS)
        self.check_landmarks(vectors.rows)

    def code_columns(self) -> list[CodeColumn]:
        """Return the projections, and the number more of the metric ``distance``."""
        return [("projections", "float32", self.n_projections + (self.metric == "distance"))]

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, eigenvalues, and the components times the Gaussian directions."""
        model, components, rng = self.learn_components(vectors, kernel)
        directions = rng.standard_normal((self.n_components, self.n_projections)) / math.sqrt(
            self.n_projections
        )
        return {**model, "projection": (components @ directions).astype(np.float32)}

    def encoder(self, kernel: Kernel, model: Model) -> "Projections":
        """Return the encoder of a model."""
        return Projections(Embedding(kernel, model["landmarks"], model["projection"]), self.metric)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 8 * self.n_landmarks + 24 * dims + 8 * self.n_projections
        return Memory(
            fit=self.gram_bytes(dims) + 16 * self.n_landmarks * self.n_projections,
            shared=self.embedding_bytes(dims, self.n_projections),
            row=row,
            query=row,
        )


class Projections(Encoder):
    """Encode rows as their projected coordinates."""

    def __init__(self, embedding: Embedding, metric: str) -> None:
        self.embedding = embedding
        self.metric = metric
        self.block_rows = embedding.block_rows

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the codes of a block of rows, float32[b, n_projections], or one more."""
        points = self.embedding(rows, first=first)
        if self.metric == "distance":
            points = np.column_stack([points, -_half_squares(points)])
        return {"projections": points}

    def scanner(self, queries: NDArray[Any]) -> "DenseScanner":
        """Return the scanner of queries by ⟨P x̃, P ỹ⟩, or by 1 − ‖P x̃ − P ỹ‖² / 2 (Eq. 6)."""
        from mercore.pipeline.scanners.dense import DenseScanner

        points = self.embedding(queries, label="query")
        if self.metric == "product":
            return DenseScanner(points, "projections")
        with_one = np.column_stack([points, np.ones(len(points), np.float32)])
        return DenseScanner(with_one, "projections", 1 - _half_squares(points))


def _half_squares(points: Float32) -> Float32:
    """Return ‖p‖² / 2 of each point, float32[b], summed in float64."""
    halves: NDArray[np.float64] = np.square(points, dtype=np.float64).sum(axis=1) / 2
    return halves.astype(np.float32)

"""Bounds by kernel PCA, in bytes: K ≤ ⟨x̃, ỹ⟩ + R(x) R(y) (Bourrier et al. 2015, App. A)."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.bounds.rounding import float16_above, float32_above, norms_above
from mercore.pipeline.encoders.bounds.sample import QUERIES, Sample, sample_scores, sample_shares
from mercore.pipeline.encoders.encoder import (
    BoundEncoder,
    CodeColumn,
    Default,
    Memory,
    Model,
    Size,
    draw_rows,
    read_rows,
)
from mercore.pipeline.encoders.kpca import (
    COMPONENTS,
    MAX_LANDMARKS,
    KpcaParams,
    gram_matrix,
    principal_components,
    random_rotation,
)
from mercore.pipeline.kernels import Kernel

if TYPE_CHECKING:
    from mercore.pipeline.scanners.bounds.byte_bounds import BoundScanner
    from mercore.stores.vectors import Vectors

LEAST_EIGENVALUE = 1e-3  # a smaller component explains less than it adds to the rounding
LEAST_SCALE = 2.0**-20  # of a row's bytes, so that a float16 holds it
U = 2.0**-53
BIAS = 128  # added to the bytes of a row, which are unsigned; those of a query are signed
MAX_BYTE = 127
NEAR_ROWS, NEAR = 4096, 32  # rows of a sample, and nearest rows of each sample query
QUANTILES = 257
BLOCK_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class KpcaBoundSpec(KpcaParams):
    """Rows as E coordinates, one byte each, and five numbers for an upper bound."""

    name: str = "kpca-bound"
    version: int = 1
    n_components: int = field(default=Default(128), metadata=COMPONENTS)

    description = (
        "A code is an upper bound: E coordinates of kernel PCA, one byte each, and five numbers."
    )
    source = "Bourrier et al. 2015, App. A"
    size = Size("n_components", "multiply-adds", MAX_LANDMARKS)
    bounds = True

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        self.check_landmarks(vectors.rows)

    def code_columns(self) -> list[CodeColumn]:
        """Return the bytes; the scale, R, the two errors of rounding, and ⟨μ, ỹ − μ⟩."""
        return [("coordinates", "uint8", self.n_components), ("terms", "float16", 5)]

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, projection, centre of the coordinates, and slack for rounding."""
        return self.turned(self.learn(vectors, kernel.ranking), kernel.ranking)

    def learn(self, vectors: "Vectors", kernel: Kernel) -> "Learned":
        """Return the parts that all bounds of at most E components share."""
        rng = np.random.default_rng(self.random_state)
        rows = draw_rows(rng, vectors.rows, self.n_landmarks)
        landmarks = read_rows(vectors, rows)
        gram = gram_matrix(kernel, landmarks)
        eigenvalues, components = principal_components(gram.copy(), self.n_components)
        near = read_rows(
            vectors, rng.permutation(draw_rows(rng, vectors.rows, min(vectors.rows, NEAR_ROWS)))
        )
        prepared = kernel.prepare(near)
        return Learned(
            rows=rows,
            landmarks=landmarks,
            gram=gram,
            components=components[:, eigenvalues >= LEAST_EIGENVALUE],
            sample=Sample(
                landmark_scores(kernel, prepared, landmarks), sample_scores(kernel, prepared)
            ),
        )

    def turned(self, learned: "Learned", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the model of the first E components.

        They are rotated at random, so that one step suits all coordinates.
        """
        kept = learned.components[:, : self.n_components]
        projection = np.zeros((len(kept), self.n_components))
        width = kept.shape[1]
        projection[:, :width] = kept @ random_rotation(
            np.random.default_rng(self.random_state), width
        )
        dims = learned.landmarks.shape[1]
        slack = projection_slack(kernel, learned.gram, projection[:, :width], dims)
        model = {
            "landmarks": learned.landmarks,
            "landmark_rows": learned.rows,
            "projection": projection,
            "centre": (learned.gram @ projection).mean(axis=0),
            "slack": np.array([slack]),
        }
        bound = Projected(model)
        return model | {
            "cosines": bound.near_cosines(learned.sample),
            "shares": sample_shares(bound, learned.sample),
        }

    def encoder(self, kernel: Kernel, model: Model) -> "KpcaBound":
        """Return the encoder of a model."""
        return KpcaBound(kernel, model)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        sample = NEAR_ROWS * (2 * dims + self.n_landmarks + QUERIES + 4 * self.n_components)
        row = 8 * self.n_landmarks + 24 * dims + 48 * self.n_components
        return Memory(
            fit=self.gram_bytes(dims) + 8 * (self.n_landmarks**2 + sample),
            shared=8 * self.n_landmarks * (3 * dims + self.n_components),
            row=row,
            query=row,
        )


class Learned(NamedTuple):
    """Landmarks with row numbers, Gram matrix and components, and a sample as landmark values."""

    rows: NDArray[np.int64]
    landmarks: NDArray[Any]
    gram: Float64
    components: Float64
    sample: Sample


class Relaxation(NamedTuple):
    """The assumed maximum of the cosine, and the estimated probability of a miss."""

    beta: float
    failure_probability: float


class Coordinates(NamedTuple):
    """Rows in the span of the components: x̃ − μ [b, E], R(x) [b] and ⟨μ, x̃ − μ⟩ [b], float64."""

    centred: Float64
    residual: Float64
    along: Float64


class Projected(BoundEncoder):
    """Encode rows, given as their landmark values, as bytes that bound their kernel with any query.

    With B an orthonormal basis, x̃ = Bᵀ Φ(x) and μ a fixed centre, K(x, y) ≤ ⟨x̃, μ⟩ + ⟨μ, ỹ − μ⟩ +
    ⟨x̃ − μ, ỹ − μ⟩ + R(x) R(y). A row's ỹ − μ becomes s v + e, v bytes, and a query's x̃ − μ
    becomes t u + f; then ⟨x̃ − μ, ỹ − μ⟩ ≤ s t ⟨u, v⟩ + ‖f‖ ‖s v‖ + ‖x̃ − μ‖ ‖e‖. ``slack`` covers
    the rounding of products and the deviation of the basis from an orthonormal one.
    """

    def __init__(self, model: Model) -> None:
        self.block_rows = BLOCK_ROWS
        self._panels = projection_panels(model["projection"])
        self._centre = model["centre"]
        self._slack = float(model["slack"][0])

    def encode(self, rows: Float64, *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the bytes v + 128 of rows, and s, R, ‖e‖, ‖s v‖ and ⟨μ, ỹ − μ⟩ rounded up."""
        points = self._coordinates(rows)
        values = points.centred
        scale = float16_above(
            np.maximum(np.abs(values).max(axis=1) / MAX_BYTE, LEAST_SCALE)
        ).astype(np.float64)
        whole = np.rint(values / scale[:, None])
        rounded = whole * scale[:, None]
        lost = norms_above(values - rounded)
        terms = np.column_stack([scale, points.residual, lost, norms_above(rounded), points.along])
        return {"coordinates": (whole + BIAS).astype(np.uint8), "terms": float16_above(terms)}

    def bound_scanner(self, queries: Float64, beta: float = 1.0) -> "BoundScanner":
        """Return the scanner with β R(x) R(y) in place of R(x) R(y) (Eq. 28): no bound if β < 1."""
        from mercore.pipeline.scanners.bounds.byte_bounds import ROUNDING, BoundScanner, QueryTerms

        points = self._coordinates(queries)
        values = points.centred
        step = float32_above(
            np.maximum(np.abs(values).max(axis=1) / MAX_BYTE, LEAST_SCALE**2)
        ).astype(np.float64)
        whole = np.rint(values / step[:, None])
        lost = norms_above(values - whole * step[:, None])
        along = points.along + float(self._centre @ self._centre)
        return BoundScanner(
            column="coordinates",
            codes=whole.astype(np.int8),
            bias=BIAS,
            terms=QueryTerms(
                step=step.astype(np.float32),
                constant=float32_above(along + self._slack + ROUNDING),
                factors=float32_above(
                    np.stack(
                        [
                            beta * points.residual,
                            norms_above(points.centred),
                            lost,
                            np.ones(len(lost)),
                        ]
                    )
                ),
            ),
        )

    def near_cosines(self, sample: Sample) -> Float64:
        """Return the quantiles of cos(x, y) of near rows of a sample (``near_cosines``)."""
        points = self._coordinates(sample.rows)
        return near_cosines(points.centred + self._centre, points.residual, sample.scores)

    def _coordinates(self, values: Float64) -> Coordinates:
        """Return a block of rows in the span of the components.

        The coordinates of a row do not depend on its block, to the bit.
        """
        points = projected(values, self._panels)[:, : len(self._centre)]
        left = np.maximum(1 - np.square(points).sum(axis=1), 0) + self._slack
        centred = points - self._centre
        return Coordinates(centred, np.sqrt(left), (centred * self._centre).sum(axis=1))


class KpcaBound(BoundEncoder):
    """Encode raw rows as ``Projected`` encodes their landmark values."""

    def __init__(self, kernel: Kernel, model: Model) -> None:
        self.kernel = kernel.ranking
        self.block_rows = BLOCK_ROWS
        self._landmarks = np.ascontiguousarray(
            self.kernel.prepare(model["landmarks"], label="landmark").T
        )
        self._projected = Projected(model)

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the bytes and terms of a block of rows."""
        return self._projected.encode(self._values(rows, first=first, label="row"))

    def bound_scanner(self, queries: NDArray[Any], beta: float = 1.0) -> "BoundScanner":
        """Return the scanner that multiplies the residuals by β: no bound if β < 1."""
        return self._projected.bound_scanner(self._values(queries, first=0, label="query"), beta)

    def _values(self, rows: NDArray[Any], *, first: int, label: str) -> Float64:
        """Return K of raw rows with the landmarks, float64[b, M]."""
        return self.kernel.landmark_values(
            self.kernel.prepare(rows, first=first, label=label), self._landmarks
        )


def projection_panels(projection: Float64) -> Float64:
    """Return a projection [M, E] as [⌈E / 32⌉, M, 32], padded with zeros, for ``projected``."""
    from mercore.pipeline.encoders.bounds.kpca_bound_numba import PANEL

    landmarks, width = projection.shape
    panels = np.zeros((-(-width // PANEL), landmarks, PANEL))
    for panel, columns in zip(
        panels, np.split(projection, range(PANEL, width, PANEL), axis=1), strict=True
    ):
        panel[:, : columns.shape[1]] = columns
    return panels


def projected(values: Float64, panels: Float64) -> Float64:
    """Return landmark values [n, M] times a projection in panels, float64[n, 32 ⌈E / 32⌉]."""
    from mercore.pipeline.encoders.bounds.kpca_bound_numba import PANEL, project

    points = np.empty((len(values), len(panels) * PANEL))
    project(values, panels, points)
    return points


def landmark_scores(kernel: Kernel, prepared: Float64, landmarks: NDArray[Any]) -> Float64:
    """Return K of prepared rows with raw landmarks, float64[n, M]."""
    return kernel.landmark_values(
        prepared, np.ascontiguousarray(kernel.prepare(landmarks, label="landmark").T)
    )


def near_cosines(points: Float64, residual: Float64, scores: Float64) -> Float64:
    """Return the quantiles of cos(x, y), float64[257], of near rows of a sample (Eq. 28).

    K(x, y) = ⟨x̃, ỹ⟩ + R(x) R(y) cos(x, y), the cosine of the residuals of both. For a sample of one
    row all quantiles are 1, as for a bound.

    Parameters
    ----------
    points, residual : float64[n, E] and float64[n], x̃ and R
    scores : float64[q, n], K of the first rows with all
    """
    others = len(points) - 1
    if others == 0:
        return np.ones(QUANTILES)
    queries = np.arange(min(len(scores), others))
    scores = scores[queries]
    scores[queries, queries] = -np.inf
    nearest = np.argpartition(scores, -min(NEAR, others), axis=1)[:, -min(NEAR, others) :]
    left = np.take_along_axis(scores, nearest, axis=1) - np.einsum(
        "qe,qne->qn", points[queries], points[nearest]
    )
    cosines = left / (residual[queries, None] * residual[nearest])
    return np.asarray(np.quantile(cosines, np.linspace(0, 1, QUANTILES)))


def relaxation(model: Model, share: float) -> Relaxation:
    """Return the β that held for a share of a sample's near pairs, and its risk (Eq. 28).

    With 95 % confidence the share of such pairs is off by at most √(ln(2 / 0.05) / 2m), where the
    sample has m pairs (Dvoretzky, Kiefer & Wolfowitz): the probability that a neighbour is missed
    is at most that plus 1 − share.
    """
    beta = float(np.interp(share, np.linspace(0, 1, QUANTILES), model["cosines"]))
    confidence = math.sqrt(math.log(2 / 0.05) / (2 * QUERIES * NEAR))
    return Relaxation(beta, min(1.0, 1 - share + confidence))


def projection_slack(kernel: Kernel, gram: Float64, components: Float64, dims: int) -> float:
    """Return the slack of a bound and a squared residual, as a projection is not quite orthogonal.

    For any B with BᵀB = I + Δ and ‖Δ‖ ≤ η, x̃ = BᵀΦ(x): K(x, y) = x̃ᵀỹ − x̃ᵀΔỹ + ⟨h, h'⟩ with h = Φ
    − B x̃ and ‖h‖² = K(x, x) − ‖x̃‖² + x̃ᵀΔx̃. η is measured: the Frobenius norm of AᵀGA − I, plus
    the errors of G (``exact_error``) and of the products, each at most (M + 2) u of Σ|A|, by row
    and column. Each coordinate is off by ε ≤ (error + (M + 2) u) ‖A‖₁, which moves x̃ᵀỹ and ‖x̃‖²
    by 2 ε. The factor 2.5 allows for norms of up to 1.05.
    """
    sums = np.abs(components).sum(axis=0)
    error = kernel.exact_error(dims) + (len(gram) + 2) * U
    squares = float((sums**2).sum())
    measured = float(np.linalg.norm(components.T @ gram @ components - np.eye(len(sums))))
    eta, epsilon = measured + 2 * error * squares, error * math.sqrt(squares)
    return 2.5 * (eta + epsilon) + kernel.exact_error(dims) + 1e-12

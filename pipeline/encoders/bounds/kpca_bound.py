"""Upper bounds by kernel PCA, in bytes: K(x, y) ≤ ⟨x̃, ỹ⟩ + R(x) R(y) (Bourrier et al. 2015, App. A)."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.bounds.kpca_bound_numba import PANEL, project
from mercore.pipeline.encoders.bounds.rounding import float16_above, float32_above, norms_above
from mercore.pipeline.encoders.bounds.sample import QUERIES, Sample, sample_shares, true_scores
from mercore.pipeline.encoders.encoder import Model, draw_rows
from mercore.pipeline.encoders.kpca import Landmarks, gram_matrix, principal_components, random_rotation
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.scanners.bounds import ROUNDING, BoundScanner, QueryTerms
from mercore.stores.part_store.header import column_fields
from mercore.stores.vectors import Vectors, gather

LEAST_EIGENVALUE = 1e-3  # what a component of less explains is less than what it adds to the rounding
LEAST_SCALE = 2.0**-20  # of a row's bytes, so that a float16 holds it
U = 2.0**-53
BIAS = 128  # of a row's bytes, which are unsigned; a query's are not
MOST = 127
NEAR_ROWS, NEAR = 4096, 32  # a sample, and the nearest rows of each that stands for a query
QUANTILES = 257
BLOCK_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class KpcaBoundSpec(Landmarks):
    """Rows as E coordinates of a byte each, and the five numbers that make an upper bound of their product."""

    name: str = "kpca-bound"
    version: int = 1
    n_components: int = 128

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS

    def check(self, vectors: Vectors, kernel: Kernel) -> None:
        """Refuse parameters out of range."""
        self.check_landmarks(vectors.rows)

    def columns(self, compressor: str) -> list[dict[str, Any]]:
        """Return the columns of a code: the bytes; the scale, R, the two errors of rounding, and ⟨μ, ỹ − μ⟩."""
        return [
            column_fields("coordinates", "uint8", self.n_components, compressor),
            column_fields("terms", "float16", 5, compressor),
        ]

    def fit(self, vectors: Vectors, kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return landmarks, the projection to coordinates and their centre, and what its rounding adds to a bound."""
        return self.turned(self.learn(vectors, kernel.ranking), kernel.ranking)

    def learn(self, vectors: Vectors, kernel: Kernel) -> "Learned":
        """Return what all bounds of at most E components share."""
        rng = np.random.default_rng(self.random_state)
        rows = draw_rows(rng, vectors.rows, self.n_landmarks)
        landmarks = gather(vectors, rows)
        gram = gram_matrix(kernel, landmarks)
        eigenvalues, components = principal_components(gram.copy(), self.n_components)
        near = gather(vectors, rng.permutation(draw_rows(rng, vectors.rows, min(vectors.rows, NEAR_ROWS))))
        prepared = kernel.prepare(near)
        return Learned(
            rows=rows,
            landmarks=landmarks,
            gram=gram,
            components=components[:, eigenvalues >= LEAST_EIGENVALUE],
            sample=Sample(landmark_values(kernel, prepared, landmarks), true_scores(kernel, prepared)),
        )

    def turned(self, learned: "Learned", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the model of the first E components, turned at random: so that all coordinates need the same step."""
        kept = learned.components[:, : self.n_components]
        projection = np.zeros((len(kept), self.n_components))
        width = kept.shape[1]
        projection[:, :width] = kept @ random_rotation(np.random.default_rng(self.random_state), width)
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
        return model | {"cosines": bound.near_cosines(learned.sample), "shares": sample_shares(bound, learned.sample)}

    def encoder(self, kernel: Kernel, model: Model) -> "KpcaBound":
        """Return the encoder of a model."""
        return KpcaBound(kernel, model)

    def fit_bytes(self, rows: int, dims: int) -> int:
        """Return the memory that fitting takes."""
        sample = NEAR_ROWS * (2 * dims + self.n_landmarks + QUERIES + 4 * self.n_components)
        return self.gram_bytes(dims) + 8 * (self.n_landmarks**2 + sample)

    def shared_bytes(self, dims: int) -> int:
        """Return the memory that all threads share while encoding."""
        return 8 * self.n_landmarks * (3 * dims + self.n_components)

    def row_bytes(self, dims: int) -> int:
        """Return the memory that a row of a block takes while it is encoded."""
        return 8 * self.n_landmarks + 24 * dims + 48 * self.n_components

    def query_bytes(self, dims: int) -> int:
        """Return the memory that a query takes while codes are scanned."""
        return self.row_bytes(dims)


class Learned(NamedTuple):
    """Landmarks, their numbers, their Gram matrix and components in order, and a sample of rows as landmark values."""

    rows: NDArray[np.int64]
    landmarks: NDArray[Any]
    gram: Float64
    components: Float64
    sample: Sample


class Relaxation(NamedTuple):
    """What the cosine is taken to be at most, and the estimated probability that a neighbour is missed for it."""

    beta: float
    failure_probability: float


class Coordinates(NamedTuple):
    """Rows in the span of the components: x̃ less its centre float64[b, E], R(x) float64[b], ⟨μ, x̃ − μ⟩ float64[b]."""

    centred: Float64
    residual: Float64
    along: Float64


class Projected:
    """Encode rows, given as their landmark values, so that a bound of their kernel with any can be computed from bytes.

    With B an orthonormal basis, x̃ = Bᵀ Φ(x) and μ a fixed centre, K(x, y) ≤ ⟨x̃, μ⟩ + ⟨μ, ỹ − μ⟩ + ⟨x̃ − μ, ỹ − μ⟩ +
    R(x) R(y). A row's ỹ − μ becomes s v + e, v bytes, and a query's x̃ − μ becomes t u + f; then ⟨x̃ − μ, ỹ − μ⟩ ≤
    s t ⟨u, v⟩ + ‖f‖ ‖s v‖ + ‖x̃ − μ‖ ‖e‖. That the basis is not quite orthonormal, and that its products are rounded,
    is in ``slack``.
    """

    def __init__(self, model: Model) -> None:
        self.block_rows = BLOCK_ROWS
        self._panels = projection_panels(model["projection"])
        self._centre = model["centre"]
        self._slack = float(model["slack"][0])

    def prepare_encoding(self) -> None:
        """Do nothing: queries need all that rows need."""

    def encode(self, rows: Float64, *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the bytes v + 128, and s, R, ‖e‖, ‖s v‖ and ⟨μ, ỹ − μ⟩ rounded up, of a block of rows."""
        points = self._coordinates(rows)
        values = points.centred
        scale = float16_above(np.maximum(np.abs(values).max(axis=1) / MOST, LEAST_SCALE)).astype(np.float64)
        whole = np.rint(values / scale[:, None])
        rounded = whole * scale[:, None]
        lost = norms_above(values - rounded)
        terms = np.column_stack([scale, points.residual, lost, norms_above(rounded), points.along])
        return {"coordinates": (whole + BIAS).astype(np.uint8), "terms": float16_above(terms)}

    def scanner(self, queries: Float64) -> BoundScanner:
        """Return queries ready to be bounded."""
        return self.relaxed_scanner(queries, 1.0)

    def relaxed_scanner(self, queries: Float64, beta: float) -> BoundScanner:
        """Return queries ready to be scored with β R(x) R(y) in the place of R(x) R(y) (Eq. 28): no bound if β < 1."""
        points = self._coordinates(queries)
        values = points.centred
        step = float32_above(np.maximum(np.abs(values).max(axis=1) / MOST, LEAST_SCALE**2)).astype(np.float64)
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
                    np.stack([beta * points.residual, norms_above(points.centred), lost, np.ones(len(lost))])
                ),
            ),
        )

    def near_cosines(self, sample: Sample) -> Float64:
        """Return the quantiles 0, 1 / 256, … 1 of cos(x, y), float64[257], of near rows of a sample (Eq. 28).

        K(x, y) = ⟨x̃, ỹ⟩ + R(x) R(y) cos(x, y): the cosine of what the components leave of both. One row has no
        other: then all are one, as for any bound.
        """
        others = len(sample.rows) - 1
        if others == 0:
            return np.ones(QUANTILES)
        points = self._coordinates(sample.rows)
        whole = points.centred + self._centre
        queries = np.arange(min(len(sample.scores), others))
        scores = sample.scores[queries]
        scores[queries, queries] = -np.inf
        nearest = np.argpartition(scores, -min(NEAR, others), axis=1)[:, -min(NEAR, others) :]
        left = np.take_along_axis(scores, nearest, axis=1) - np.einsum("qe,qne->qn", whole[queries], whole[nearest])
        cosines = left / (points.residual[queries, None] * points.residual[nearest])
        return np.asarray(np.quantile(cosines, np.linspace(0, 1, QUANTILES)))

    def _coordinates(self, values: Float64) -> Coordinates:
        """Return a block of rows in the span of the components; a row's coordinates are its own to the bit."""
        points = projected(values, self._panels)[:, : len(self._centre)]
        left = np.maximum(1 - np.square(points).sum(axis=1), 0) + self._slack
        centred = points - self._centre
        return Coordinates(centred, np.sqrt(left), (centred * self._centre).sum(axis=1))


class KpcaBound:
    """Do what ``Projected`` does, of raw rows."""

    def __init__(self, kernel: Kernel, model: Model) -> None:
        self.kernel = kernel.ranking
        self.block_rows = BLOCK_ROWS
        self._landmarks = np.ascontiguousarray(self.kernel.prepare(model["landmarks"], label="landmark").T)
        self._projected = Projected(model)

    def prepare_encoding(self) -> None:
        """Do nothing: queries need all that rows need."""

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the bytes and terms of a block of rows."""
        return self._projected.encode(self._values(rows, first=first, label="row"))

    def scanner(self, queries: NDArray[Any]) -> BoundScanner:
        """Return queries ready to be bounded."""
        return self.relaxed_scanner(queries, 1.0)

    def relaxed_scanner(self, queries: NDArray[Any], beta: float) -> BoundScanner:
        """Return queries ready to be scored: no bound if β < 1."""
        return self._projected.relaxed_scanner(self._values(queries, first=0, label="query"), beta)

    def _values(self, rows: NDArray[Any], *, first: int, label: str) -> Float64:
        """Return K of raw rows with the landmarks, float64[b, M]."""
        return self.kernel.landmark_values(self.kernel.prepare(rows, first=first, label=label), self._landmarks)


def projection_panels(projection: Float64) -> Float64:
    """Return a projection [M, E] as [⌈E / 32⌉, M, 32], zero where no column is: what ``projected`` reads."""
    landmarks, width = projection.shape
    panels = np.zeros((-(-width // PANEL), landmarks, PANEL))
    for panel, columns in zip(panels, np.split(projection, range(PANEL, width, PANEL), axis=1), strict=True):
        panel[:, : columns.shape[1]] = columns
    return panels


def projected(values: Float64, panels: Float64) -> Float64:
    """Return landmark values [n, M] times a projection in panels, float64[n, 32 ⌈E / 32⌉]."""
    points = np.empty((len(values), len(panels) * PANEL))
    project(values, panels, points)
    return points


def landmark_values(kernel: Kernel, prepared: Float64, landmarks: NDArray[Any]) -> Float64:
    """Return K of prepared rows with raw landmarks, float64[n, M]."""
    return kernel.landmark_values(prepared, np.ascontiguousarray(kernel.prepare(landmarks, label="landmark").T))


def relaxation(model: Model, share: float) -> Relaxation:
    """Return the β that held for a share of the near pairs of the sample, and how often it may fail (Eq. 28).

    With 95 % confidence the share of such pairs is off by at most √(ln(2 / 0.05) / 2m), m those of the sample
    (Dvoretzky, Kiefer & Wolfowitz): a neighbour is missed with at most that probability and 1 − share.
    """
    beta = float(np.interp(share, np.linspace(0, 1, QUANTILES), model["cosines"]))
    confidence = math.sqrt(math.log(2 / 0.05) / (2 * QUERIES * NEAR))
    return Relaxation(beta, min(1.0, 1 - share + confidence))


def projection_slack(kernel: Kernel, gram: Float64, components: Float64, dims: int) -> float:
    """Return what a bound must add, and a squared residual too, because a projection is not quite one.

    For any B with BᵀB = I + Δ and ‖Δ‖ ≤ η, x̃ = BᵀΦ(x): K(x, y) = x̃ᵀỹ − x̃ᵀΔỹ + ⟨h, h'⟩ with h = Φ − B x̃ and
    ‖h‖² = K(x, x) − ‖x̃‖² + x̃ᵀΔx̃. η is measured: the Frobenius norm of AᵀGA − I, plus the errors of G
    (``exact_error``) and of the products, each at most (M + 2) u of Σ|A|, by row and column. Coordinates are off by
    ε ≤ (error + (M + 2) u) ‖A‖₁ each, which moves x̃ᵀỹ by 2 ε and ‖x̃‖² by as much. Norms of at most 1.05 make the
    factor 2.5.
    """
    sums = np.abs(components).sum(axis=0)
    error = kernel.exact_error(dims) + (len(gram) + 2) * U
    squares = float((sums**2).sum())
    measured = float(np.linalg.norm(components.T @ gram @ components - np.eye(len(sums))))
    eta, epsilon = measured + 2 * error * squares, error * math.sqrt(squares)
    return 2.5 * (eta + epsilon) + kernel.exact_error(dims) + 1e-12

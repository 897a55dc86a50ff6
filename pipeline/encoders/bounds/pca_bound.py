"""Bounds of Euclidean distances and inner products by principal components, in bytes.

With P an orthonormal basis, a = Pᵀ(x − c) and R the norm of what a leaves of x − c:
⟨x − c, y − c⟩ ≤ ⟨a, b⟩ + R(x) R(y), and so ‖x − y‖² ≥ ‖a − b‖² + (R(x) − R(y))².
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.bounds.kpca_bound import projected, projection_panels
from mercore.pipeline.encoders.bounds.rounding import float32_above, norms_above
from mercore.pipeline.encoders.bounds.sample import QUERIES, Sample, sample_scores, sample_shares
from mercore.pipeline.encoders.encoder import (
    TRAINING_ROWS,
    BoundEncoder,
    CodeColumn,
    EncoderSpec,
    Memory,
    Model,
    Size,
    check_random_state,
    check_range,
    draw_rows,
    read_rows,
)
from mercore.pipeline.encoders.kpca import COMPONENTS, random_rotation
from mercore.pipeline.kernels import Kernel
from mercore.stores.errors import InputError
from mercore.stores.wording import option, setting

if TYPE_CHECKING:
    from mercore.pipeline.scanners.bounds.byte_bounds import BoundScanner
    from mercore.stores.vectors import Vectors

U = 2.0**-53
BIAS, MAX_BYTE = 128, 127  # added to the bytes of a row; the greatest byte of a query
LEAST_SCALE = 2.0**-100
MAX_COMPONENTS = 1 << 12
BLOCK_ROWS = 256
SAMPLE_ROWS = 4096  # rows whose bounds are measured at fitting
LARGEST = 1e36  # of squared norms: float32 sums of a few of them do not overflow
TINY = 1e-37  # what float32 products may lose by underflow

# Share of ‖x − c‖² + ‖y − c‖² + ‖c‖² that covers the rounding of a float32 bound. Its addends are
# at most 7.5 times that in all: |s t ⟨u, v⟩| ≤ 2.9, ‖f‖ ‖s v‖ ≤ 1.2, ‖a‖ ‖e‖ ≤ 0.8 and R R ≤ 1 of
# ‖x − c‖ ‖y − c‖, twice, and the two terms of their own. Seven roundings are off by 2⁻²⁴ each:
# 3.2e-6. The rest covers float64, whose errors are below 1e-8 of the same.
SHARE = 4e-6


@dataclass(frozen=True, kw_only=True)
class PcaBoundSpec(EncoderSpec):
    """Rows as E principal components, one byte each, and five numbers for an upper bound."""

    name: str = "pca-bound"
    version: int = 1
    n_components: int = field(default=64, metadata=COMPONENTS)
    n_training: int = field(default=8192, metadata=TRAINING_ROWS)

    description = (
        "A code is an upper bound: E principal components, one byte each, and five numbers."
    )
    source = "PCA residuals; Cauchy-Schwarz inequality, as App. A of Bourrier et al. 2015"
    needs = "a similarity of raw rows: euclidean or inner_product"
    size = Size("n_components", "multiply-adds", MAX_COMPONENTS)
    bounds = True

    @classmethod
    def serves(cls, kernel: Kernel) -> bool:
        """Return whether the kernel is a distance or an inner product of raw rows."""
        return not kernel.normalised and bool(kernel.raw_metrics)

    @property
    def block_rows(self) -> int:
        """Rows that are best encoded at once."""
        return BLOCK_ROWS

    def check_kernel(self, kernel: Kernel) -> None:
        """Refuse a kernel with a feature space of its own: components of rows do not bound it."""
        if kernel.normalised:
            raise InputError(
                f"encoder {self.name} needs {self.needs}: found kernel {kernel.name}. "
                f"Fix: {setting(encoder='kpca-bound')}"
            )
        super().check_kernel(kernel)

    def check(self, vectors: "Vectors", kernel: Kernel) -> None:
        """Refuse parameters out of range; components beyond the dimensions are zero."""
        check_range("components", self.n_components, (1, MAX_COMPONENTS), setting(components=64))
        check_range(
            "training rows", self.n_training, (1, 1 << 20), f"leave {option('training_rows')} out."
        )
        check_random_state(self.random_state)

    def code_columns(self) -> list[CodeColumn]:
        """Return the bytes; the scale, R, the errors of rounding, and the row's own addend."""
        return [("coordinates", "uint8", self.n_components), ("terms", "float32", 5)]

    def fit(self, vectors: "Vectors", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the centre, the projection, its slack, and the shares that a sample leaves."""
        return self.turned(self.learn(vectors, kernel), kernel)

    def learn(self, vectors: "Vectors", kernel: Kernel) -> "Principal":
        """Return the centre, the axes and the sample that bounds of at most E components share."""
        rng = np.random.default_rng(self.random_state)
        count = min(self.n_training, vectors.rows)
        rows = rng.permutation(read_rows(vectors, draw_rows(rng, vectors.rows, count)))
        prepared = kernel.prepare(rows)
        centre = prepared.mean(axis=0)
        components = principal_axes(prepared - centre, min(self.n_components, vectors.dims))
        scores = sample_scores(kernel, prepared[:SAMPLE_ROWS])
        return Principal(centre, components, Sample(rows[:SAMPLE_ROWS], scores))

    def turned(self, learned: "Principal", kernel: Kernel) -> dict[str, NDArray[Any]]:
        """Return the model of the first E components, rotated so that one step suits them all."""
        kept = learned.components[:, : self.n_components]
        width = kept.shape[1]
        rotation = random_rotation(np.random.default_rng(self.random_state), width)
        projection = np.zeros((len(kept), self.n_components))
        projection[:, :width] = kept @ rotation
        model = {
            "centre": learned.centre,
            "projection": projection,
            "slack": np.array([projection_slack(projection[:, :width])]),
        }
        bound = self.encoder(kernel, model)
        return model | {"shares": sample_shares(bound, learned.sample)}

    def encoder(self, kernel: Kernel, model: Model) -> "PcaBound":
        """Return the encoder of a model."""
        return PcaBound(kernel, model)

    def memory(self, dims: int, rows: int = 0) -> Memory:
        """Return the memory that rows of ``dims`` numbers take."""
        row = 40 * dims + 48 * self.n_components
        sample = min(rows, self.n_training) * (24 * dims + 8 * QUERIES)
        return Memory(
            fit=sample + 40 * dims**2,
            shared=16 * dims * (self.n_components + 32),
            row=row,
            query=row,
        )


class Principal(NamedTuple):
    """The mean of a sample, its principal axes float64[d, ≤ E], and rows with true scores."""

    centre: Float64
    components: Float64
    sample: Sample


class Centred(NamedTuple):
    """Rows in the span of the axes: a [b, E], R [b], ‖x − c‖² [b] and ⟨c, x − c⟩ [b], float64."""

    points: Float64
    residual: Float64
    squared: Float64
    along: Float64


class PcaBound(BoundEncoder):
    """Encode rows as bytes that bound their score with any query from above.

    A row's b becomes s v + e, v bytes, and a query's a becomes t u + f. So ⟨a, b⟩ ≤ s t ⟨u, v⟩ +
    ‖f‖ ‖s v‖ + ‖a‖ ‖e‖. The bound of −‖x − y‖² is twice that of ⟨x − c, y − c⟩, less ‖x − c‖² and
    ‖y − c‖²; that of ⟨x, y⟩ adds ⟨c, y − c⟩, ⟨c, x − c⟩ and ‖c‖². A row or query too large for
    float32 has the bound ∞.
    """

    def __init__(self, kernel: Kernel, model: Model) -> None:
        self.kernel = kernel
        self.block_rows = BLOCK_ROWS
        self._distance = kernel.ascending
        self._weight = 2.0 if self._distance else 1.0
        self._panels = projection_panels(model["projection"])
        self._width = model["projection"].shape[1]
        self._centre = model["centre"]
        self._slack = float(model["slack"][0])

    def encode(self, rows: NDArray[Any], *, first: int = 0) -> dict[str, NDArray[Any]]:
        """Return the bytes v + 128 of rows, and s, R, ‖e‖, ‖s v‖ and their own addend."""
        points, residual, squared, along = self._coordinates(rows, first=first, label="row")
        scale, whole = _steps(points)
        rounded = whole * scale[:, None]
        own = (-squared if self._distance else along) + SHARE * squared
        terms = np.column_stack(
            [scale, residual, norms_above(points - rounded), norms_above(rounded), own]
        )
        beyond = _beyond(squared, own)
        terms[beyond] = [0, 0, 0, 0, np.inf]
        whole[beyond] = 0
        return {"coordinates": (whole + BIAS).astype(np.uint8), "terms": float32_above(terms)}

    def bound_scanner(self, queries: NDArray[Any], beta: float = 1.0) -> "BoundScanner":
        """Return the scanner of queries that bounds the score; it cannot be relaxed."""
        from mercore.pipeline.scanners.bounds.byte_bounds import BoundScanner, QueryTerms

        assert beta == 1
        points, residual, squared, along = self._coordinates(queries, first=0, label="query")
        step, whole = _steps(points)
        lost = norms_above(points - whole * step[:, None])
        centre = 0.0 if self._distance else float(self._centre @ self._centre)
        own = (-squared if self._distance else along + centre) + SHARE * (squared + centre) + TINY
        factors = self._weight * np.stack([residual, norms_above(points), lost])
        beyond = _beyond(squared, own)
        factors[:, beyond], step[beyond], own[beyond] = 0, 0, np.inf
        return BoundScanner(
            column="coordinates",
            codes=whole.astype(np.int8),
            bias=BIAS,
            terms=QueryTerms(
                step=(self._weight * step).astype(np.float32),
                constant=float32_above(own),
                factors=float32_above(np.concatenate([factors, np.ones((1, len(lost)))])),
            ),
        )

    def _coordinates(self, rows: NDArray[Any], *, first: int, label: str) -> Centred:
        """Return a block of raw rows in the span of the axes; no row depends on its block."""
        centred = self.kernel.prepare(rows, first=first, label=label) - self._centre
        points = projected(centred, self._panels)[:, : self._width]
        squared = np.square(centred).sum(axis=1)
        left = np.maximum(squared - np.square(points).sum(axis=1), 0) + self._slack * squared
        along = (centred * self._centre).sum(axis=1)
        return Centred(points, np.sqrt(left) * (1 + 1e-12), squared, along)


def principal_axes(centred: Float64, count: int) -> Float64:
    """Return the axes of greatest variance of centred rows [n, d], float64[d, count].

    The sign of an axis makes its greatest entry positive.
    """
    from scipy.linalg import eigh
    from threadpoolctl import threadpool_limits

    d = centred.shape[1]
    scaled = centred / max(float(np.abs(centred).max(initial=0)), 1e-300)
    with threadpool_limits(1):  # after the import: SciPy brings a BLAS of its own
        _, axes = eigh(scaled.T @ scaled, subset_by_index=(d - count, d - 1), check_finite=False)
    axes = axes[:, ::-1]
    return np.asarray(axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(count)]))


def projection_slack(projection: Float64) -> float:
    """Return the slack of a squared residual, as a share of ‖x − c‖².

    With PᵀP = I + Δ and ‖Δ‖ ≤ η, the residual is ‖x − c‖² − ‖a‖² + aᵀΔa. η is the Frobenius norm
    of PᵀP − I as computed, plus (d + 2) u per entry. The E coordinates are off by (d + 3) u
    ‖x − c‖ each, which moves ‖a‖² by 2.1 √E (d + 3) u ‖x − c‖²; the norms are off by (d + 2) u.
    """
    d, width = projection.shape
    measured = float(np.linalg.norm(projection.T @ projection - np.eye(width)))
    eta = measured + width * (d + 2) * U
    return float(4 * (eta + math.sqrt(width) * (d + 4) * U))


def _steps(points: Float64) -> tuple[Float64, Float64]:
    """Return the step of each row's coordinates, a float32 as float64, and their multiples of it.

    Rows beyond float32 have multiples of 0; their step has no meaning.
    """
    largest = np.abs(points).max(axis=1)
    largest = np.where(largest < math.sqrt(LARGEST), largest, 0)
    step = float32_above(np.maximum(largest / MAX_BYTE, LEAST_SCALE)).astype(np.float64)
    return step, np.clip(np.rint(points / step[:, None]), -MAX_BYTE, MAX_BYTE)


def _beyond(squared: Float64, own: Float64) -> NDArray[np.bool_]:
    """Return which rows are too large for float32 bounds, bool[b]."""
    return ~((squared < LARGEST) & (np.abs(own) < 10 * LARGEST))

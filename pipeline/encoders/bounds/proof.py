"""What product-quantisation codes carry to prove answers: e, R and a cell of both per row.

ŷ is the point of a row's code on a grid, and e ≥ ‖ỹ − ŷ‖. So a row is at least
√(max(0, ‖x̃ − ŷ‖ − e)² + (R(x) − R(y))²) away from a query (``scanners.bounds.grid``).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.encoders.bounds.cells import boxes_of, cells_of, learn_cells
from mercore.pipeline.encoders.bounds.kpca_bound import near_cosines
from mercore.pipeline.encoders.bounds.points import BoundedEmbedding, EmbeddedRows
from mercore.pipeline.encoders.bounds.rounding import (
    LARGEST_FLOAT16,
    float16_above,
    float32_above,
    norms_above,
)
from mercore.pipeline.encoders.bounds.sample import QUERIES, Sample, measured_shares
from mercore.pipeline.encoders.codebooks import CENTROIDS
from mercore.pipeline.encoders.encoder import CodeColumn, Model
from mercore.pipeline.kernels import Kernel

if TYPE_CHECKING:
    from mercore.pipeline.scanners.bounds.grid import Grid, PqBoundScanner, ScoreByDistance

SimilarityOf = Callable[[EmbeddedRows], "ScoreByDistance"]
BLOCK_ROWS = 256
LEAST_STEP = 2.0**-500  # of a grid: its square is no denormal number
SAMPLE_ROWS = 8192  # rows that the cells are learned from
ROUNDING = {"float16": 2.0**-11, "float32": 2.0**-24}  # of a stored R, at most, as a share of it
LEAST = {"float16": 2.0**-24, "float32": 2.0**-126}  # what a tiny R may be off by instead


def proof_columns(kind: str, form: str) -> list[CodeColumn]:
    """Return the columns beside the code: the cell, and e with R or the norm."""
    return [("cell", "uint8", None), ("numbers", kind, 1 if form == "none" else 2)]


@dataclass(frozen=True, kw_only=True)
class ErrorBounds:
    """The numbers that prove, for one space and its codebooks.

    Parameters
    ----------
    space : the map of raw rows to points
    kind : "float16" or "float32", of the numbers
    model : the grid and, once they are learned, the cells
    """

    space: BoundedEmbedding
    kind: str
    model: Model

    @cached_property
    def grid(self) -> "Grid":
        """The grid."""
        from mercore.pipeline.scanners.bounds.grid import Grid

        step = float(self.model["step"][0])
        grid = self.model["grid"]
        books = grid.reshape(-1, CENTROIDS, grid.shape[1])
        return Grid(centre=self.model["centre"], step=step, books=books)

    def columns(self, points: EmbeddedRows, code: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """Return cells and numbers of rows with their codes."""
        numbers = self.numbers(points, code)
        stored = numbers.astype(np.float64)
        apart = np.zeros(len(stored)) if self.space.form == "none" else stored[:, 1]
        return {"cell": cells_of(self.model, stored[:, 0], apart), "numbers": numbers}

    def numbers(self, points: EmbeddedRows, code: NDArray[np.uint8]) -> NDArray[Any]:
        """Return e, rounded up, and R, rounded to the nearest, or the norm, rounded up."""
        errors = self.errors(points, code)
        if self.kind == "float16":
            assert errors.max(initial=0, where=errors < np.inf) < LARGEST_FLOAT16
        above = float16_above if self.kind == "float16" else float32_above
        if self.space.form == "none":
            return np.asarray(above(errors)[:, None])
        with np.errstate(over="ignore"):  # such rows have no bound
            norms = self.space.form == "norm"
            second = above(points.apart) if norms else points.apart.astype(self.kind)
        return np.column_stack([above(errors), second])

    def errors(self, points: EmbeddedRows, code: NDArray[np.uint8]) -> Float64:
        """Return bounds of ‖ỹ − ŷ‖, float64[b]."""
        with np.errstate(over="ignore"):
            return norms_above(points.coordinates - self.grid.decoded(code)) + points.error

    def scanner(
        self, points: EmbeddedRows, similarity: "ScoreByDistance", *, beta: float = 1.0
    ) -> "PqBoundScanner":
        """Return the scanner of queries that bounds their scores; with β < 1 (Eq. 28), nearly."""
        from mercore.pipeline.scanners.bounds.grid import ErrorCells, GridQueries, PqBoundScanner

        whole = self.grid.nearest(points.coordinates)
        fine = self.grid.rest(points.coordinates, whole)
        with np.errstate(over="ignore"):
            moved = norms_above(points.coordinates - self.grid.points(whole))
            left = norms_above(points.coordinates - self.grid.points(self.grid.finely(whole, fine)))
        queries = GridQueries(
            points=whole,
            fine=fine,
            moved=moved + points.error,
            margin=left + points.error,
            apart=points.apart,
            spread=2 * self.space.apart_error + LEAST[self.kind] + points.error,
            rounding=ROUNDING[self.kind],
            crossed=1 - beta,
        )
        boxes = ErrorCells(*boxes_of(self.model))
        return PqBoundScanner(queries, self.grid, boxes, similarity, self.space.form)


def grid_of(codebooks: Float32) -> dict[str, NDArray[Any]]:
    """Return the grid of codebooks [M, 256, E / M] as model arrays.

    ``centre`` float64[E] is the middle of the centroids' range, ``step`` float64[1] a 127th of the
    greatest half range, and ``grid`` int8[M · 256, E / M] the nearest points.
    """
    from mercore.pipeline.scanners.bounds.grid import MAX_COORDINATE, Grid

    books = codebooks.astype(np.float64)
    low, high = books.min(axis=1), books.max(axis=1)
    step = max(float((high / 2 - low / 2).max()) / MAX_COORDINATE, LEAST_STEP)
    with np.errstate(invalid="ignore"):  # NaN beyond float32: such codes bound nothing
        centre = low / 2 + high / 2
    grid = Grid(centre=centre[:, None], step=step, books=np.empty((0, 0, 0), np.int8))
    return {
        "centre": centre.reshape(-1),
        "step": np.array([step]),
        "grid": grid.nearest(books).reshape(-1, codebooks.shape[2]),
    }


def learn_proof(
    proof: ErrorBounds,
    codebooks: Float32,
    sample: Sample,
    similarity: SimilarityOf,
    kernel: Kernel | None,
) -> dict[str, NDArray[Any]]:
    """Return the cells, and the shares of rows that the proof leaves of a sample of raw rows.

    With the kernel of the space, also the cosines of residuals, by which bounds can be relaxed.
    """
    size = BLOCK_ROWS
    blocks = [sample.rows[start : start + size] for start in range(0, len(sample.rows), size)]
    made = [proof.space(block) for block in blocks]
    points = EmbeddedRows(*map(np.concatenate, zip(*made, strict=True)))
    code = assigned(points.coordinates, codebooks)
    numbers = proof.numbers(points, code).astype(np.float64)
    bounded = numbers[:, 0] < np.inf
    numbers = numbers[bounded] if bounded.any() else np.zeros((1, 2))
    apart = None if proof.space.form == "none" else numbers[:, 1]
    cells = learn_cells(numbers[:, 0], apart)
    proof = replace(proof, model={**proof.model, **cells})
    columns = {"code": code, **proof.columns(points, code)}
    count = min(QUERIES, max(1, len(code) // 8))
    first = min(count, len(code) - 1)  # the only row of a store is query and row
    queries = EmbeddedRows(*(values[:count] for values in points))
    scanner = proof.scanner(queries, similarity(queries))
    bounds = scanner.bounds({name: values[first:] for name, values in columns.items()})
    learned = {**cells, "shares": measured_shares(bounds.T, sample.scores[:count, first:])}
    if kernel is not None:
        scores = kernel.from_ranking(sample.scores.copy())
        residual = np.maximum(points.apart, proof.space.apart_error)
        coordinates = points.coordinates
        if proof.space.form == "ratio":
            norms = 1 / np.sqrt(1 + np.square(points.apart))
            residual, coordinates = residual * norms, coordinates * norms[:, None]
        learned["cosines"] = near_cosines(coordinates, residual, scores)
    return learned


def assigned(coordinates: Float64, codebooks: Float32) -> NDArray[np.uint8]:
    """Return the codes of points, uint8[b, M]."""
    from mercore.pipeline.encoders.pq_numba import assign, lay_out_codebooks

    code = np.empty((len(coordinates), len(codebooks)), np.uint8)
    with np.errstate(over="ignore"):  # such rows have no bound
        points = coordinates.astype(np.float32)
    assign(points, lay_out_codebooks(codebooks), code)
    return code

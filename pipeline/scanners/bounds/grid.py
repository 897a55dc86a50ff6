"""Scan product-quantisation codes for the rows that may be within reach of a query.

A code stands for a point ŷ of a grid, and e bounds the distance from ŷ to the row's coordinates ỹ.
R is what the coordinates leave out of the row. So ‖Φ(x) − Φ(y)‖² ≥ max(0, ‖x̃ − ŷ‖ − e)² +
(R(x) − R(y))². A byte per row, its cell, names a box of the (e, R) plane. So a query has a greatest
‖x̃ − ŷ‖² per cell. Points of the form "ratio" are divided by their norms, and so is R
(``grid_numba.possible``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.scanners.bounds.byte_bounds import SCANNED_ROWS
from mercore.pipeline.scanners.bounds.grid_numba import (
    BIAS,
    FINE,
    NONE,
    NORM,
    RATIO,
    RESIDUAL,
    Near,
    QueryPoints,
    Tests,
    list_near,
)
from mercore.pipeline.scanners.bounds.grid_one_numba import (
    CODES,
    LookUps,
    beats_decoding,
    list_near_one,
)
from mercore.pipeline.scanners.bounds.layout import FEW_ROWS
from mercore.pipeline.scanners.bounds.queries import pack_queries
from mercore.pipeline.scanners.dense import float32_rows, insert_scores
from mercore.pipeline.scanners.scanner import GiveUp, Pairs, joined
from mercore.pipeline.topk import TopK

BLOCK_ROWS, FEW_BLOCK_ROWS = 1 << 13, 1 << 16  # rows per list of pairs; for few queries
FEW = 6  # queries that are looked up one by one, at most: eight are faster together
PAIRS_PER_SLOT = 16  # a list has room for one in 16 pairs at first
SAFE = 1 + 1e-9  # more than float64 can round in a limit
MAX_COORDINATE = 127  # the greatest coordinate on the grid
LIMITS = np.iinfo(np.int32)
FINEST, MAX_BYTE = 255, 255  # high bytes of limits; the greatest takes all sums
SPREAD = 2  # cells whose limit exceeds the median by this factor take all rows
FORMS = {"none": NONE, "residual": RESIDUAL, "norm": NORM, "ratio": RATIO}
LARGEST = 1e300  # of norms that have no bound


class ErrorCells(NamedTuple):
    """The cells as boxes, float64[256] each: the greatest e, the least and the greatest R.

    The cell of the rows outside of all boxes has no limit: its greatest e is ∞.
    """

    error: Float64
    least: Float64
    greatest: Float64


class ScoreByDistance(Protocol):
    """A score as a function of the squared distance of two points."""

    def squared_reach(self, least: Float64) -> Float64:
        """Return the greatest squared distance at which a score may be ``least``, float64[nq]."""
        ...

    def most(self, squared: Float64, queries: NDArray[np.int64]) -> Float64:
        """Return upper bounds of the scores of pairs at least so far apart, float64[p]."""
        ...


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The grid of a code: points are centre + step · v, v whole and at most 127 in size.

    ``centre`` float64[E]; ``books`` int8[M, 256, E / M], v of the centroids.
    """

    centre: Float64
    step: float
    books: NDArray[np.int8]

    def nearest(self, points: Float64) -> NDArray[np.int8]:
        """Return the nearest points on the grid, int8[n, E]."""
        with np.errstate(over="ignore", invalid="ignore"):
            whole = np.rint((points - self.centre) / self.step)
        return np.asarray(np.nan_to_num(np.clip(whole, -MAX_COORDINATE, MAX_COORDINATE)), np.int8)

    def rest(self, points: Float64, whole: NDArray[np.int8]) -> NDArray[np.int8]:
        """Return the distance of points from their grid points, in parts of a step, int8[n, E]."""
        with np.errstate(over="ignore", invalid="ignore"):
            left = ((points - self.centre) / self.step - whole) * FINE
        return np.asarray(
            np.nan_to_num(np.clip(np.rint(left), -MAX_COORDINATE, MAX_COORDINATE)), np.int8
        )

    @staticmethod
    def finely(whole: NDArray[np.int8], rest: NDArray[np.int8]) -> Float64:
        """Return u + w / 254, float64[n, E]."""
        return np.asarray(whole + rest / FINE)

    def points(self, whole: NDArray[Any]) -> Float64:
        """Return points with coordinates in steps, float64[n, E]."""
        with np.errstate(invalid="ignore"):  # NaN where codes bound nothing
            return self.centre + self.step * whole

    def decoded(self, codes: NDArray[np.uint8]) -> Float64:
        """Return the points of codes, float64[n, E]."""
        whole = self.books[np.arange(len(self.books)), codes]
        return self.points(whole.reshape(len(codes), -1))


@dataclass(frozen=True, kw_only=True)
class GridQueries:
    """Queries on the grid: ``points`` and ``fine`` int8[nq, E], u and w of ``QueryPoints``.

    ``moved`` is the distance of a query from u; ``crossed`` is 1 − β of relaxed bounds. The other
    fields are those of ``Tests``.
    """

    points: NDArray[np.int8]
    fine: NDArray[np.int8]
    moved: Float64
    margin: Float64
    apart: Float64
    spread: Float64
    rounding: float
    crossed: float = 0.0

    def tests(self, reach: Float64) -> Tests:
        """Return the tests of pairs."""
        return Tests(
            reach=reach,
            margin=self.margin,
            apart=self.apart,
            spread=self.spread,
            crossed=2 * self.crossed * self.apart,
            rounding=self.rounding,
        )


class Limits(NamedTuple):
    """The limits of a batch for some k-th scores: ``least`` int32[256 · lanes] and the tests.

    ``tables`` are those of queries that are looked up one by one.
    """

    least: NDArray[np.int32]
    tests: Tests
    tables: tuple[LookUps, ...] = ()


class PqBoundScanner:
    """The scanner of upper bounds by product-quantisation codes; see the module.

    Parameters
    ----------
    queries : the queries
    grid : the grid of the codes
    boxes : the cells
    similarity : what a squared distance says about a score
    form : "none", "residual", "norm" or "ratio": what the second number of a row is
    """

    names: tuple[str, ...] = ("code", "cell", "numbers")

    def __init__(
        self,
        queries: GridQueries,
        grid: Grid,
        boxes: ErrorCells,
        similarity: ScoreByDistance,
        form: str,
    ) -> None:
        self.nq = len(queries.points)
        self.similarity, self._queries, self._boxes = similarity, queries, boxes
        self._form, self._step = FORMS[form], grid.step
        self._books = _in_units(grid.books)
        self._points = _packed(queries, grid.step)
        self._squares = np.square(queries.points, dtype=np.int64).sum(axis=1)
        one_by_one = self.nq <= FEW and len(grid.books) % CODES == 0 and beats_decoding()
        self._look_ups = _look_ups(grid.books, queries) if one_by_one else None
        self._limits = lru_cache(2)(self._limits_of)

    def scan(self, columns: Mapping[str, NDArray[Any]], first: int, best: TopK) -> None:
        """Insert the bounds of one part, whose first row is ``first``, into the top-k lists."""
        rows, start, few = len(columns["code"]), 0, max(FEW_ROWS, best.ids.shape[1])
        while start < rows:
            if np.isneginf(best.kth).any():  # lists that are not full take all pairs
                stop = start + few
                insert_scores(self.bounds(_rows(columns, start, stop)), first + start, best)
            else:
                stop = start + SCANNED_ROWS
                least = best.kth.astype(np.float32)
                pairs, _ = self.collect(_rows(columns, start, stop), first + start, least, _never)
                best.insert(pairs.queries, pairs.rows, pairs.bounds)
            start = stop

    def collect(
        self, columns: Mapping[str, NDArray[Any]], first: int, least: Float32, give_up: GiveUp
    ) -> tuple[Pairs, NDArray[np.bool_]]:
        """Return one part's pairs with bounds ≥ ``least[query]``, and the queries given up.

        See ``Bounds``.
        """
        codes, numbers = np.ascontiguousarray(columns["code"]), float32_rows(columns["numbers"])
        limits, lists, total = self._limits(least.tobytes()), list[Pairs](), 0
        given_up = np.zeros(self.nq, np.bool_)
        size = BLOCK_ROWS if self._look_ups is None else FEW_BLOCK_ROWS
        for start in range(0, len(codes), size):
            block = slice(start, start + size)
            near = self._near(codes[block], columns["cell"][block], numbers[block], limits)
            bounds = _float32_above(self.similarity.most(near.squared, near.queries))
            lists.append(Pairs(near.queries, near.rows + (first + start), bounds))
            total += len(bounds)
            if total > start + size:  # else no query has too many; counting is slow
                counts = np.bincount(
                    np.concatenate([each.queries for each in lists]), minlength=self.nq
                )
                more = give_up(counts, min(start + size, len(codes))) & ~given_up
                if more.any():
                    given_up |= more
                    least = np.where(given_up, np.float32(np.inf), least)
                    limits = self._limits(least.tobytes())
        return joined(lists), given_up

    def bounds(self, columns: Mapping[str, NDArray[Any]]) -> Float32:
        """Return the bounds of all rows, float32[n, nq]."""
        codes, numbers = np.ascontiguousarray(columns["code"]), float32_rows(columns["numbers"])
        every = np.full((256, self._points.start.size), LIMITS.min, np.int32)
        every[:, self.nq :] = LIMITS.max
        tests = self._queries.tests(np.full(self.nq, np.inf))
        near = self._near(codes, columns["cell"], numbers, Limits(every.reshape(-1), tests))
        out = np.empty((len(codes), self.nq), np.float32)
        bounds = self.similarity.most(near.squared, near.queries)
        out[near.rows, near.queries] = _float32_above(bounds)
        return out

    def _near(
        self,
        codes: NDArray[np.uint8],
        cells: NDArray[np.uint8],
        numbers: Float32,
        limits: Limits,
    ) -> Near:
        """Return the pairs within reach."""
        room, points = max(1024, len(codes) * self.nq // PAIRS_PER_SLOT), self._points
        least, tests, tables = limits
        while True:
            near, count = (
                Near(np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)),
                0,
            )
            for query, table in enumerate(tables):
                count = list_near_one(
                    self._form, codes, cells, numbers, query, table, points, tests, near, count
                )
            if not tables:
                count = list_near(
                    self._form, codes, self._books, cells, numbers, points, least, tests, near
                )
            if count <= room:
                return Near(near.rows[:count], near.queries[:count], near.squared[:count])
            room = count

    def _limits_of(self, least: bytes) -> Limits:
        """Return the limits for k-th scores, float32[nq]."""
        scores = np.frombuffer(least, np.float32).astype(np.float64)
        with np.errstate(invalid="ignore"):
            reach = self.similarity.squared_reach(scores)
            reach = np.where(scores == np.inf, -np.inf, reach + np.abs(reach) * (SAFE - 1))
        tests = self._queries.tests(reach)
        with np.errstate(over="ignore", invalid="ignore"):
            whole = np.floor(self._greatest(tests) / self._step**2 * SAFE)
            whole[np.isnan(whole)] = np.inf  # nothing is known of the query: all rows may reach
            own = self._squares - np.clip(whole, 0, 2.0**31)
        limits = np.full((256, self._points.start.size), LIMITS.max, np.int32)
        limits[:, : self.nq] = np.where(whole < 0, LIMITS.max, np.maximum(own, LIMITS.min))
        tables: tuple[LookUps, ...] = ()
        if self._look_ups is not None:
            tables = tuple(
                _with_limits(*tables, limits[:, query].copy())
                for query, tables in enumerate(self._look_ups)
            )
        return Limits(limits.reshape(-1), tests, tables)

    def _greatest(self, tests: Tests) -> Float64:
        """Return the greatest ‖x̃ − ŷ‖² of rows of a cell within reach, float64[256, nq]; or −∞."""
        error, least, greatest = (values[:, None] for values in self._boxes)
        left = np.broadcast_to(tests.reach, (len(error), self.nq))
        with np.errstate(invalid="ignore"):
            if self._form in (RESIDUAL, RATIO):
                widening = tests.spread + greatest * tests.rounding
                gap = np.maximum(least - tests.apart, tests.apart - greatest) - widening
                apart = np.square(np.maximum(gap, 0)) / SAFE
                crossed = tests.crossed * least * (1 - tests.rounding) / SAFE
            if self._form == RESIDUAL:
                left = left - apart - crossed
            elif self._form == RATIO:
                mine, other = tests.apart + tests.spread, greatest + widening
                norms = np.sqrt((1 + np.square(mine)) * (1 + np.square(other)))
                norms = np.minimum(norms, LARGEST)  # 0 · ∞ would be no number
                left = left * norms * SAFE - 2 * apart / (norms + mine * other + 1) - crossed
            elif self._form == NORM:
                left = left + np.square(greatest) * SAFE
            left = np.where(np.isinf(error) & (tests.reach > -np.inf), np.inf, left)
            distance = np.sqrt(np.maximum(left, 0)) + error + self._queries.moved
        return np.asarray(np.where(left < 0, -np.inf, np.square(distance)))


def _rows(columns: Mapping[str, NDArray[Any]], start: int, stop: int) -> dict[str, NDArray[Any]]:
    """Return some rows of a part."""
    return {name: values[start:stop] for name, values in columns.items()}


def _never(counts: NDArray[np.int64], _: int) -> NDArray[np.bool_]:
    """Return the queries that are given up: none, bool[nq]."""
    return np.zeros(len(counts), np.bool_)


def _packed(queries: GridQueries, step: float) -> QueryPoints:
    """Return queries on the grid in panels."""
    points, nq = queries.points, len(queries.points)
    one = np.ones(nq, np.float32)
    start = np.asarray(-BIAS * points.sum(axis=1, dtype=np.int32), np.int32)
    packed = pack_queries(points, start=start, step=one, const=one, factors=one[None])
    fine = np.ascontiguousarray(queries.fine)
    squares = np.square(Grid.finely(points, fine)).sum(axis=1)
    return QueryPoints(
        packed.words, packed.start, fine, squares, packed.wide, packed.form.depth, step
    )


def _look_ups(
    books: NDArray[np.int8], queries: GridQueries
) -> list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]]:
    """Return each query's tables ``own``, ``fine`` and ``norms`` of ``LookUps``."""
    v = books.astype(np.int32)
    norms = np.square(v).sum(axis=2)

    def products(query: NDArray[np.int8]) -> NDArray[np.int32]:
        own = query.astype(np.int32).reshape(len(books), 1, -1)
        return np.asarray((v * own).sum(axis=2), np.int32)

    return [
        ((2 * products(u) - norms).reshape(-1), products(w).reshape(-1), norms.reshape(-1))
        for u, w in zip(queries.points, queries.fine, strict=True)
    ]


def _with_limits(
    own: NDArray[np.int32],
    fine: NDArray[np.int32],
    norms: NDArray[np.int32],
    least: NDArray[np.int32],
) -> LookUps:
    """Return a query's tables, whose steps are as fine as its limits, int32[256], allow."""
    by_code = own.reshape(-1, 256).astype(np.int64)
    greatest = by_code.max(axis=1, keepdims=True)
    room = np.maximum(greatest.sum() - least.astype(np.int64), 0)  # of a sum below the greatest
    low_bits = (1 + MAX_BYTE // len(by_code)).bit_length() - 1
    finest = (FINEST << low_bits) - 1
    step = max(1, -(-int(min(room.max(), SPREAD * np.median(room))) // finest))
    high, low = _in_bytes((greatest - by_code) // step, low_bits)
    high_limit, low_limit = _in_bytes(room // step, low_bits)
    low_limit[high_limit == MAX_BYTE] = MAX_BYTE
    return LookUps(own, fine, norms, high, low, low_bits, high_limit, low_limit, least)


def _in_bytes(
    values: NDArray[np.int64], low_bits: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the high and the low bytes of numbers of steps, flat; high ones are at most 255."""
    high = np.minimum(values >> low_bits, MAX_BYTE).astype(np.uint8)
    low = (values & ((1 << low_bits) - 1)).astype(np.uint8)
    return high.reshape(-1), low.reshape(-1)


def _in_units(books: NDArray[np.int8]) -> NDArray[Any]:
    """Return the bytes of v + 128 as the widest unsigned integers that share a centroid out."""
    count, entries, width = books.shape
    size = next(size for size in (8, 4, 2, 1) if width % size == 0)
    flat = (books.astype(np.int16) + BIAS).astype(np.uint8).reshape(-1)
    return flat.view(f"u{size}").reshape(count, entries, width // size)


def _float32_above(values: Float64) -> Float32:
    """Return the float32 above each value."""
    with np.errstate(over="ignore"):
        return np.nextafter(values.astype(np.float32), np.float32(np.inf))

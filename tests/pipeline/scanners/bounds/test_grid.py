"""The scan of codes on a grid against plain NumPy: whole squared distances, limits of cells, and the
tests of rows by their own numbers."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.scanners.bounds import grid_numba
from mercore.pipeline.scanners.bounds.grid import (
    FORMS,
    ErrorCells,
    Grid,
    GridQueries,
    PqBoundScanner,
    _in_units,
    _look_ups,
    _packed,
    _with_limits,
)
from mercore.pipeline.scanners.bounds.grid_numba import BIAS, FINE, Near, list_near
from mercore.pipeline.scanners.bounds.grid_one_numba import list_near_one
from mercore.testing.cases import loop_over

Block = NDArray[Any]
STEP = 0.25
NONE_WITHIN = np.iinfo(np.int32).max


class Case:
    """Random codes and queries on a grid, with everything that plain NumPy makes of them."""

    def __init__(self, rows: int, nq: int, count: int, width: int, form: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.form = form
        self.books = rng.integers(-127, 128, (count, 256, width), np.int8)
        self.codes = rng.integers(0, 256, (rows, count), np.uint8)
        self.cells = rng.integers(0, 256, rows, np.uint8)
        self.numbers = rng.random((rows, 1 if form == "none" else 2)).astype(np.float32)
        self.queries = GridQueries(
            points=rng.integers(-127, 128, (nq, count * width), np.int8),
            fine=rng.integers(-127, 128, (nq, count * width), np.int8),
            moved=rng.random(nq),
            margin=rng.random(nq),
            apart=rng.random(nq),
            spread=rng.random(nq) / 100,
            rounding=2.0**-11,
            crossed=0.3,
        )
        self.whole = self.books[np.arange(count), self.codes].reshape(rows, -1).astype(np.int64)

    def squared(self) -> Block:
        """The least squared distances of all pairs, float64[n, nq]."""
        queries, own = self.queries, self.numbers.astype(np.float64)
        points = queries.points + queries.fine / FINE
        apart = np.square(points[None] - self.whole[:, None]).sum(axis=2)
        left = np.maximum(np.sqrt(apart) * STEP - own[:, :1] - queries.margin, 0) ** 2
        if self.form == "none":
            return np.asarray(left)
        other = own[:, 1:]
        if self.form == "norm":
            return np.asarray(left - other**2)
        gap = np.abs(queries.apart - other) - queries.spread - other * queries.rounding
        crossed = 2 * queries.crossed * queries.apart * other * (1 - queries.rounding)
        if self.form == "ratio":
            q, p = queries.apart + queries.spread, other * (1 + queries.rounding) + queries.spread
            norms = np.sqrt((1 + q**2) * (1 + p**2))
            between = 2 * np.maximum(gap, 0) ** 2 / (norms + 1 + q * p)
            return np.asarray((left + between + crossed) / norms)
        return np.asarray(left + np.maximum(gap, 0) ** 2 + crossed)

    def within(self, limits: Block) -> Block:
        """Which pairs have a 2 ⟨u, v⟩ − ‖v‖² of at least the limit [256, nq] of the row's cell."""
        products = self.whole @ self.queries.points.astype(np.int64).T
        norms = np.square(self.whole).sum(axis=1)[:, None]
        return np.asarray(2 * products - norms >= limits[self.cells])

    def listed(self, limits: Block, reach: Block, room: int = 1 << 16) -> tuple[int, Near]:
        points = _packed(self.queries, STEP)
        every = np.full((256, points.start.size), NONE_WITHIN, np.int32)
        every[:, : limits.shape[1]] = limits
        near = Near(np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room))
        count = list_near(
            FORMS[self.form],
            self.codes,
            _in_units(self.books),
            self.cells,
            self.numbers,
            points,
            every.reshape(-1),
            self.queries.tests(reach),
            near,
        )
        return count, near

    def looked_up(self, limits: Block, reach: Block, room: int = 1 << 16) -> tuple[int, Near]:
        """The same list from look-ups, query by query."""
        points, tests = _packed(self.queries, STEP), self.queries.tests(reach)
        near, count = Near(np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)), 0
        for query, tables in enumerate(_look_ups(self.books, self.queries)):
            count = list_near_one(
                FORMS[self.form],
                self.codes,
                self.cells,
                self.numbers,
                query,
                _with_limits(*tables, limits[:, query].astype(np.int32)),
                points,
                tests,
                near,
                count,
            )
        return count, near


@loop_over("form", ["none", "residual", "norm", "ratio"])
@loop_over(
    ("rows", "nq", "count", "width"),
    [
        (1, 1, 1, 1),
        (300, 17, 3, 1),
        (257, 33, 4, 2),
        (40, 100, 5, 3),
        (600, 5, 2, 8),
        (70, 48, 9, 4),
    ],
)
@pytest.mark.promise(
    "Codes of `kpca-pq`, `map-pq`, `pca-pq` and `pq` prove answers: no pair that reaches a threshold is left out"
)
def test_pairs_are_those_of_plain_numpy(
    form: str, rows: int, nq: int, count: int, width: int
) -> None:
    case = Case(rows, nq, count, width, form, seed=rows + nq)
    squared = case.squared()
    middle = np.median(2 * case.whole @ case.queries.points.T.astype(np.int64)).astype(np.int64)
    limits = np.random.default_rng(1).integers(-(10**5), 10**5, (256, nq)) + middle
    reach = np.quantile(squared, 0.6, axis=0)
    expected = case.within(limits) & (squared <= reach)
    found, near = case.listed(limits, reach)
    assert found == expected.sum()
    pairs = np.zeros_like(expected)
    pairs[near.rows[:found], near.queries[:found]] = True
    np.testing.assert_array_equal(pairs, expected)
    values = squared[near.rows[:found], near.queries[:found]]
    np.testing.assert_allclose(near.squared[:found], values, rtol=1e-9, atol=1e-6)
    short, part = case.listed(limits, reach, room=found // 2)
    assert short == found
    np.testing.assert_array_equal(part.rows, near.rows[: found // 2])


@loop_over("form", ["none", "residual", "norm", "ratio"])
@loop_over(
    ("rows", "nq", "count", "width", "spread"),
    [
        (1, 1, 8, 1, 10**5),
        (300, 2, 8, 2, 10**5),
        (257, 1, 16, 1, 10),
        (64, 3, 24, 2, 10**9),
        (2000, 1, 64, 2, 10**4),
    ],
)
def test_look_ups_list_the_pairs_of_the_batch_to_the_bit(
    form: str, rows: int, nq: int, count: int, width: int, spread: int
) -> None:
    case = Case(rows, nq, count, width, form, seed=rows + nq)
    products = 2 * case.whole @ case.queries.points.T.astype(np.int64)
    sums = products - np.square(case.whole).sum(axis=1)[:, None]
    rng = np.random.default_rng(1)
    limits = rng.integers(-spread, spread, (256, nq)) + int(np.quantile(sums, 0.8))
    limits[7], limits[8] = NONE_WITHIN, np.iinfo(np.int32).min
    case.cells[: rows // 10] = 8
    reach = np.quantile(case.squared(), 0.9, axis=0)
    expected, batch = case.listed(limits, reach)
    found, near = case.looked_up(limits, reach)
    assert found == expected
    assert found or rows == 1
    order = np.lexsort((batch.rows[:found], batch.queries[:found]))
    mine = np.lexsort((near.rows[:found], near.queries[:found]))
    for one, other in zip(near, batch, strict=True):
        np.testing.assert_array_equal(one[:found][mine], other[:found][order])
    short, part = case.looked_up(limits, reach, room=found // 2)
    assert short == found
    np.testing.assert_array_equal(part.rows, near.rows[: found // 2])


class Plain:
    """A score that is the squared distance itself, with its sign turned."""

    def squared_reach(self, least: Block) -> Block:
        return -least

    def most(self, squared: Block, queries: Block) -> Block:
        return -squared


@pytest.mark.parametrize("form", ["none", "residual", "ratio"])
def test_limits_of_cells_lose_no_pair_and_most_others(form: str) -> None:
    """Rows that keep what their boxes say: then a limit is no stricter than the test of the row."""
    case = Case(2000, 20, 4, 2, form, seed=5)
    error = np.sort(np.random.default_rng(2).random(256))
    least = np.random.default_rng(3).random(256)
    boxes = ErrorCells(error=error, least=least, greatest=least + 0.05)
    share = np.random.default_rng(4).random(2000)
    case.numbers[:, 0] = error[case.cells] * share
    case.numbers[:, -1] += (form != "none") * (
        least[case.cells] + 0.05 * share - case.numbers[:, -1]
    )
    grid = Grid(centre=np.zeros(8), step=STEP, books=case.books)
    queries = case.queries
    margin = queries.moved  # the distance of a query from its point on the grid
    fine = np.zeros_like(queries.fine)
    case.queries = GridQueries(
        points=queries.points,
        fine=fine,
        moved=margin,
        margin=margin,
        apart=queries.apart,
        spread=queries.spread,
        rounding=queries.rounding,
    )
    scanner = PqBoundScanner(case.queries, grid, boxes, Plain(), form)
    squared = case.squared()
    reach = np.quantile(squared, 0.02, axis=0)
    limits = scanner._limits((-reach).astype(np.float32).tobytes()).least
    within = case.within(limits.reshape(256, -1)[:, :20])
    assert within[squared <= reach * (1 - 1e-6)].all()
    assert within.mean() < 0.1


@pytest.mark.loops
def test_codes_are_decoded_to_bytes_and_norms() -> None:
    for width in (1, 2, 3, 4, 8):
        case = Case(20, 2, 3, width, "none", seed=width)
        books = _in_units(case.books)
        out = np.zeros((5, 3 * books.shape[2]), books.dtype)
        grid_numba.decode(case.codes, 10, 15, books, out)
        points = out.view(np.uint8)
        np.testing.assert_array_equal(points.astype(np.int64) - BIAS, case.whole[10:15])
        norms, fine = np.empty(5, np.int32), case.queries.fine[1]
        grid_numba.squared_norms(points, 5, points.shape[1], norms)
        np.testing.assert_array_equal(norms, np.square(case.whole[10:15]).sum(axis=1))
        product = grid_numba.fine_product(fine, points[4])
        assert product == case.whole[14] @ fine.astype(np.int64)


@pytest.mark.loops
def test_a_pair_is_as_near_as_its_numbers_allow() -> None:
    for form, code in FORMS.items():
        case = Case(6, 3, 2, 2, form, seed=11)
        whole = np.square(
            case.queries.points[2] + case.queries.fine[2] / FINE - case.whole[5]
        ).sum()
        tests = case.queries.tests(np.zeros(3))
        error, own = float(case.numbers[5, 0]), float(case.numbers[5, -1])
        found = grid_numba.possible(code, whole * STEP**2, 2, tests, error, own)
        assert found == pytest.approx(case.squared()[5, 2], rel=1e-9)

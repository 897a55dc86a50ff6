"""The quantised filter: the hits and scores of the float32 loops, to the bit, on every shape and in
every build."""

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import METRICS
from mercore.pipeline.scanners import sparse
from mercore.pipeline.scanners.sparse import QueryGroup, SparseScanner
from mercore.pipeline.scanners.sparse_filter import PackedTable, QuantisedTable, Rows
from mercore.pipeline.scanners.sparse_filter_numba import (
    half_reaching_of_eight,
    reaching_of_eight,
    row_bounds,
    row_sums,
)
from mercore.pipeline.scanners.sparse_layout import GROUP
from mercore.pipeline.simd.bytes import COLUMNS
from mercore.pipeline.topk import TopK
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from tests.independent import reference
from tests.support.processors import assert_passed_on

Columns = dict[str, NDArray[Any]]
every_metric = pytest.mark.parametrize("metric", METRICS)


def made_codes(
    n: int, m: int, alpha: int, *, seed: int, metric: str = "product", wild: bool = False
) -> Columns:
    """Codes as ASKA makes them; or wild ones, with every weight at its limit and scales from 0 to
    subnormal to huge.

    They have residuals if these count: wild ones are above one too, or zero.
    """
    rng = np.random.default_rng(seed)
    weights = (
        rng.integers(-127, 128, (n, alpha))
        if wild
        else rng.normal(35, 30, (n, alpha)).clip(-127, 127)
    )
    scale = rng.uniform(0.001, 0.01, n)
    if wild:
        weights[rng.random(n) < 0.2] = rng.choice([-127, 0, 127])
        scale = 10.0 ** rng.uniform(-8, 4, n) * (rng.random(n) > 0.1)
    atoms = rng.integers(0, m, (n, alpha))
    code: Columns = {
        "atoms": atoms.astype(np.uint16),
        "weights": weights.astype(np.int8),
        "factor": scale.astype(np.float32),
    }
    if metric == "distance":
        residual = rng.normal(0.3, 0.1, n).clip(0, None)
        if wild:
            residual = 10.0 ** rng.uniform(-8, rng.choice([0.2, 4]), n) * (rng.random(n) > 0.1)
        code["residual"] = residual.astype(np.float16)
    return code


def made_table(m: int, nq: int, *, signed: bool, seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    table = rng.uniform(-1 if signed else 0, 1, (m, nq)) * rng.uniform(0.01, 3, nq)
    return np.ascontiguousarray(table.astype(np.float32))


def scanned(
    columns: Columns, table: NDArray[np.float32], k: int, *, filtered: bool, parts: int = 1
) -> TopK:
    nq, alpha = table.shape[1], columns["atoms"].shape[1]
    starts = range(0, nq, GROUP)
    groups = [
        QueryGroup(
            slice(at, min(at + GROUP, nq)),
            np.ascontiguousarray(table[:, at : at + GROUP]),
            alpha=alpha,
            int8=filtered,
        )
        for at in starts
    ]
    scanner = SparseScanner(groups, metric="distance" if "residual" in columns else "product")
    best = TopK(nq, k, np.float32)
    edges = np.linspace(0, len(columns["atoms"]), parts + 1).astype(int)
    for first, last in pairwise(edges):
        if last > first:
            scanner.scan(
                {name: values[first:last] for name, values in columns.items()}, int(first), best
            )
    return TopK.merge([best])


def same(found: TopK, expected: TopK) -> None:
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


@steady(120)
@given(
    n=st.integers(1, 6000),
    m=st.integers(1, 300),
    alpha=st.sampled_from([1, 2, 3, 7, 8, 9, 16, 31, 64]),
    nq=st.sampled_from([1, 2, 5, 32, 33, 63, 64, 65, 130]),
    signed=st.booleans(),
    wild=st.booleans(),
    metric=st.sampled_from(METRICS),
    parts=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@pytest.mark.promise("Filtered scans of codes give the ids and scores of plain float32 scans")
def test_filtered_scans_equal_the_float32_scan(
    n: int,
    m: int,
    alpha: int,
    nq: int,
    signed: bool,
    wild: bool,
    metric: str,
    parts: int,
    seed: int,
) -> None:
    columns = made_codes(n, m, alpha, seed=seed, metric=metric, wild=wild)
    table = made_table(m, nq, signed=signed, seed=seed)
    k = min(n, 1 + seed % 20)
    same(
        scanned(columns, table, k, filtered=True, parts=parts),
        scanned(columns, table, k, filtered=False),
    )


@pytest.mark.parametrize("style", ["equal", "near_one", "few", "some_zero", "no_scale"])
@given(
    n=st.integers(200, 3000),
    alpha=st.sampled_from([3, 8, 9]),
    nq=st.sampled_from([1, 5, 33, 64]),
    signed=st.booleans(),
    k=st.sampled_from([1, 10, 60, 200]),
    seed=st.integers(0, 999),
)
@steady(20)
def test_residuals_of_every_kind_are_filtered_as_the_float32_scan_scores_them(
    style: str, n: int, alpha: int, nq: int, signed: bool, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = made_codes(n, 30, alpha, seed=seed, metric="distance", wild=bool(rng.integers(2)))
    table = made_table(30, nq, signed=signed, seed=seed) * np.float32(rng.choice([1, 1e-9]))
    if style == "equal":
        columns["residual"][:] = rng.uniform(0, 1.2)
    elif style == "near_one":  # and hardly any weight: every score is next to a half
        columns["residual"] = (1 - 10.0 ** rng.uniform(-4, -1, n)).astype(np.float16)
        columns["factor"] *= np.float32(0.01)
    elif style == "few":  # and sums that are exact: scores tie
        columns["residual"] = rng.choice([0, 0.25, 0.5, 1], n).astype(np.float16)
        columns["factor"][:] = rng.choice([2.0**-8, 2.0**-24])
        table = np.round(4 * table) / 4
    elif style == "some_zero":
        columns["residual"][rng.random(n) < 0.02] = 0
    else:
        columns["factor"][rng.random(n) < 0.5] = 0
    with patch.object(sparse, "FIRST_ROWS", 64), patch.object(sparse, "BLOCK_ROWS", 500):
        same(scanned(columns, table, k, filtered=True), scanned(columns, table, k, filtered=False))


def slow_truth(columns: Columns, table: NDArray[np.float32]) -> NDArray[np.float32]:
    weights = columns["weights"].astype(np.float32) * columns["factor"][:, None]
    return reference.aska_scores_float32(columns["atoms"], weights, table, columns.get("residual"))


@every_metric
@loop_over("wild", [False, True])
@loop_over("nq", [1, 6])
def test_float32_scan_equals_the_slow_truth(nq: int, wild: bool, metric: str) -> None:
    columns = made_codes(5000, 40, 8, seed=2, metric=metric, wild=wild)
    table = made_table(40, nq, signed=False, seed=2)
    scores, ids = reference.top_k(slow_truth(columns, table), 10)
    found = scanned(columns, table, 10, filtered=True)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.scores, scores)


@every_metric
def test_the_bound_alone_decides_what_is_rescored(metric: str) -> None:
    columns, table = (
        made_codes(60_000, 500, 8, seed=3, metric=metric),
        made_table(500, 64, signed=False, seed=3),
    )
    found = scanned(columns, table, 10, filtered=True)
    assert 64 * 10 < found.rescored < 64 * 60_000 * 0.02, found.rescored


@every_metric
def test_a_million_rows_with_many_ties(metric: str) -> None:
    columns = made_codes(4000, 8192, 8, seed=4, metric=metric)
    columns = {
        name: np.concatenate([values] * 260) for name, values in columns.items()
    }  # 260 equal rows of each
    table = made_table(8192, 65, signed=False, seed=4)
    whole = scanned(columns, table, 100, filtered=False)
    same(scanned(columns, table, 100, filtered=True), whole)
    same(scanned(columns, table, 100, filtered=True, parts=7), whole)
    assert (np.diff(whole.ids[0]) == 4000).all()  # one row's copies, lower ids first


@steady(40)
@given(
    seed=st.integers(0, 999),
    alpha=st.sampled_from([3, 8, 16]),
    signed=st.booleans(),
    wild=st.booleans(),
    metric=st.sampled_from(METRICS),
)
def test_the_bound_is_never_below_the_float32_score(
    seed: int, alpha: int, signed: bool, wild: bool, metric: str
) -> None:
    columns = made_codes(300, 50, alpha, seed=seed, metric=metric, wild=wild)
    table = made_table(50, 5, signed=signed, seed=seed)
    rows = Rows(columns, 0)
    quantised = QuantisedTable(table, rows)
    u = quantised.bytes.reshape(50, -1)[:, quantised.columns[:5]].astype(np.int64)
    weights = columns["weights"].astype(np.int64)
    sums = (
        np.einsum("na,naq->nq", weights, u[columns["atoms"]])
        + quantised.zero * weights.sum(axis=1)[:, None]
    )
    scale = columns["factor"].astype(np.float64)[:, None]
    bound = scale * quantised.steps * (sums + quantised.half * np.abs(weights).sum(axis=1)[:, None])
    scores = slow_truth(columns, table).T.astype(np.float64)
    if metric == "distance":
        assert (quantised.steps == quantised.steps[0]).all()
        bound += columns["residual"].astype(np.float64)[:, None] ** 2 / 2
        scores *= np.where(scores > 0, 1 - 2.0**-24, 1 + 2.0**-24)
    assert (bound >= scores).all()


@steady(40)
@given(
    seed=st.integers(0, 999),
    alpha=st.sampled_from([3, 8, 16]),
    signed=st.booleans(),
    wild=st.booleans(),
)
def test_what_is_added_to_a_row_covers_its_bias(
    seed: int, alpha: int, signed: bool, wild: bool
) -> None:
    columns = made_codes(300, 50, alpha, seed=seed, metric="distance", wild=wild)
    rows = Rows(columns, 0)
    quantised = QuantisedTable(made_table(50, 5, signed=signed, seed=seed), rows)
    usual, per_step = np.float32(quantised.usual), np.float32(1 / quantised.steps[0])
    half, zero, levels = (
        np.float32(value) for value in (quantised.half, quantised.zero, quantised.levels)
    )
    sums, (lifts, gaps, inverses) = np.empty((2, 300), np.int16), np.empty((3, 300), np.uint16)
    row_sums(rows.weights.reshape(-1), rows.weights.shape[1], 0, 300, sums[0], sums[1])
    limits = half, zero, levels, np.float32(2**16), per_step, usual
    row_bounds(
        sums[0], sums[1], rows.factors, rows.residuals, 0, 300, limits, lifts, gaps, inverses
    )
    magnitude, total = sums.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        above = (
            (columns["residual"].astype(np.float64) ** 2 / 2 - usual)
            / columns["factor"]
            / quantised.steps[0]
        )
    fits = inverses > 0  # the others are scored whatever they add up to
    added = lifts.astype(np.float64) - gaps
    assert (added >= quantised.half * magnitude + quantised.zero * total + above)[fits].all()
    assert wild or fits.all()


def test_rows_are_summed_exactly() -> None:
    for alpha in (5, 8, 24):
        columns = made_codes(200, 9, alpha, seed=alpha, wild=True)
        weights = columns["weights"].astype(np.int64)
        for start, stop in ((0, 200), (3, 42)):
            sums = np.empty((2, stop - start), np.int16)
            row_sums(columns["weights"].reshape(-1), alpha, start, stop, sums[0], sums[1])
            expected = np.abs(weights).sum(axis=1), weights.sum(axis=1)
            np.testing.assert_array_equal(sums, np.array(expected)[:, start:stop])


@loop_over("wide", [False, True])
@loop_over("count", [1, 3, 4, 7, 40, 301])
def test_rows_of_eight_atoms_that_reach_a_threshold_are_listed_once(count: int, wide: bool) -> None:
    lanes, start, stop, at = 64 if wide else 32, 5, 5 + count, 3
    rng = np.random.default_rng(count)
    table = rng.integers(0, 128, (9, lanes)).astype(np.int8)
    atoms = rng.integers(0, 9, (stop, 8)).astype(np.uint16)
    weights = rng.integers(-2, 127, (stop, 8)).astype(np.int8)
    lifts, gaps, inverses = rng.integers(3000, 9000, (3, count)).astype(np.uint16)
    least = rng.integers(0, 65536, 64).astype(np.uint16)
    columns = np.array(COLUMNS) if wide else np.arange(lanes)
    sums = np.einsum(
        "na,naq->nq", weights.astype(np.int64), table[atoms][:, :, columns].astype(np.int64)
    )[start:]
    limits = np.minimum(
        (least[:lanes].astype(np.int64) * inverses[:, None] >> 16) + gaps[:, None], 65535
    )
    limits[rng.random(count) < 0.5] = 0  # such a row is a hit, whatever its sums
    inverses[limits[:, 0] == 0] = gaps[limits[:, 0] == 0] = 0
    reached = (sums + lifts[:, None]) % 2**16 >= limits
    rows, bits = np.empty(at + count, np.int64), np.empty(at + count, np.uint64)
    arrays = atoms.reshape(-1), weights.reshape(-1).view(np.int16), start, stop, table.reshape(-1)
    loop = reaching_of_eight if wide else half_reaching_of_eight
    found = loop(*arrays, (lifts, gaps, inverses), least, rows, bits, at)
    expected = np.flatnonzero(reached.any(axis=1))
    np.testing.assert_array_equal(rows[at : at + found], start + expected)
    powers = np.uint64(1) << np.arange(lanes, dtype=np.uint64)
    np.testing.assert_array_equal(
        bits[at : at + found], (reached * powers).sum(axis=1, dtype=np.uint64)[expected]
    )


def test_a_table_row_is_one_cache_line_and_bytes_fill_seven_bits() -> None:
    table = made_table(33, 7, signed=False, seed=1)
    rows = Rows(made_codes(100, 33, 8, seed=1), 0)
    assert QuantisedTable(table, rows).bytes.ctypes.data % 64 == 0
    assert PackedTable(table[:, 0]).bytes.max() == 127
    assert sorted(COLUMNS) == list(range(64))


@pytest.mark.soak
@pytest.mark.parametrize(("cpu", "features"), [("x86-64", ""), ("haswell", "+avx2")])
@pytest.mark.promise("Processors with fewer instructions give the same bits")
def test_builds_for_lesser_processors_find_the_same(cpu: str, features: str) -> None:
    """The same property in a process whose code is made for a processor without AVX-512, or without
    AVX2."""
    assert_passed_on(cpu, features, __file__, "test_a_million_rows_with_many_ties")

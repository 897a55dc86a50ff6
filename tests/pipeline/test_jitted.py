"""Every numba loop against its slow twin; the same tests run a second time with the JIT off."""

import math
import os
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encoders import weights_numba
from mercore.pipeline.ingest import row_digests
from mercore.pipeline.ingest_numba import hash_rows, row_ranges
from mercore.pipeline.kernels import pair_sums_numba, terms_numba
from mercore.pipeline.kernels.pair_sums_numba import TILE
from mercore.pipeline.scanners.sparse_numba import PANEL, half_squares, scan_batch, scan_one
from mercore.pipeline.simd.aligned import in_panels
from mercore.pipeline.topk import TopK, top_k_of
from mercore.pipeline.topk_numba import LONGEST_SORTED, insert, insert_pairs, survivors
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from tests.independent import reference
from tests.support.strategies import code_arrays

pytestmark = pytest.mark.loops

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ids = NDArray[np.int64]
TERMS = {
    "PRODUCT": "cosine",
    "CHI2": "chi2",
    "INTERSECTION": "intersection",
    "JENSEN_SHANNON": "jensen_shannon",
}
TERMS["SQUARED"] = "rbf"
CROSSED = TERMS | {"CHI2_BY_TWOS": "chi2"}
TINY = 1e-30
seeds = st.integers(0, 2**32 - 1)
compiled = pytest.mark.skipif(
    bool(os.environ.get("NUMBA_DISABLE_JIT")),
    reason="vector instructions exist in compiled code only",
)
every_terms = pytest.mark.parametrize("terms", TERMS)
every_crossed = pytest.mark.parametrize("terms", CROSSED)


def as_the_machine_does() -> np.errstate:
    """With the JIT off loops run on NumPy's scalars, which warn where the machine divides by zero
    or wraps around."""
    return np.errstate(divide="ignore", over="ignore")


# Kernels


def log2_inputs() -> list[float]:
    """Numbers of every magnitude, and those around 1, powers of two, and the √½ · 2^e at which the
    exponent changes."""
    rng = np.random.default_rng(0)
    wide = 2.0 ** rng.uniform(-1022, 1023.9, 400)
    middle = 10.0 ** rng.uniform(-3, 3, 400)
    edges = np.concatenate(
        [2.0 ** np.arange(-1020, 1021, 68) * root for root in (1, math.sqrt(0.5), math.sqrt(2))]
    )
    corners = [
        1.0,
        np.nextafter(1, 0),
        np.nextafter(1, 2),
        float(np.finfo(float).tiny),
        float(np.finfo(float).max),
    ]
    near = [np.nextafter(edge, side) for edge in edges for side in (0, np.inf)]
    return [float(value) for value in (*wide, *middle, *edges, *near, *corners)]


def test_log2_is_within_4_ulp() -> None:
    for value in log2_inputs():
        found, true = Decimal(float(terms_numba.log2(value))), reference.log2(value)
        assert abs(found - true) <= 4 * Decimal(math.ulp(float(true))), value


def test_log2_of_powers_of_two_is_exact_and_of_infinity_1024() -> None:
    assert [terms_numba.log2(2.0**power) for power in range(-1022, 1024)] == list(
        range(-1022, 1024)
    )
    assert terms_numba.log2(np.inf) == 1024


def cross(terms: str, X: NDArray[Any], Y: NDArray[Any]) -> NDArray[Any]:
    out = np.full((len(X), len(Y)), np.nan, X.dtype)
    with as_the_machine_does():
        pair_sums_numba.sum_terms(
            getattr(terms_numba, terms), X, np.ascontiguousarray(Y.T), X.dtype.type(TINY), out
        )
    return out


def pairs(terms: str, X: Floats, Y: Floats, x_rows: Ids, y_rows: Ids) -> Floats:
    out = np.full(len(x_rows), np.nan)
    with as_the_machine_does():
        pair_sums_numba.pairs(getattr(terms_numba, terms), X, Y, x_rows, y_rows, TINY, out)
    return out


def dtypes(terms: str) -> list[str]:
    """The types that terms are summed in: the product of two denominators may be too small for a
    float32."""
    return ["float64"] if terms == "CHI2_BY_TWOS" else ["float64", "float32"]


def shares(n: int, d: int, seed: int) -> Floats:
    """Rows that sum to one, a third of them zeros, one row a single bin."""
    rng = np.random.default_rng(seed)
    rows = rng.gamma(0.5, size=(n, d)) * (rng.random((n, d)) < 0.67)
    rows[0] = 0
    rows[:, -1] += 1e-3
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


@every_crossed
@loop_over("d", [1, 3, 4, 5, 8, 23])
def test_cross_sums_the_terms(terms: str, d: int) -> None:
    for dtype in dtypes(terms):
        X, Y = shares(4, d, seed=d).astype(dtype), shares(6, d, seed=d + 1).astype(dtype)
        error = (d + 12) * float(np.finfo(dtype).eps) / 2
        np.testing.assert_allclose(
            cross(terms, X, Y), reference.term_sums(CROSSED[terms], X, Y), rtol=0, atol=error
        )


@every_crossed
def test_cross_passes_from_tile_to_tile(terms: str) -> None:
    X, Y = shares(1, 6, seed=1), shares(TILE + 9, 6, seed=2)
    found = cross(terms, X, Y)
    np.testing.assert_allclose(found, reference.term_sums(CROSSED[terms], X, Y), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(
        found[:, TILE - 2 : TILE + 2], cross(terms, X, Y[TILE - 2 : TILE + 2])
    )


@every_terms
@given(n=st.integers(1, 4), m=st.integers(1, 4), d=st.integers(1, 10), seed=seeds)
@steady(25)
def test_pairs_are_to_the_bit_what_cross_gives(
    terms: str, n: int, m: int, d: int, seed: int
) -> None:
    X, Y = shares(n, d, seed), shares(m, d, seed + 1)
    rng = np.random.default_rng(seed)
    x_rows, y_rows = rng.integers(0, n, 7), rng.integers(0, m, 7)
    np.testing.assert_array_equal(
        pairs(terms, X, Y, x_rows, y_rows), cross(terms, X, Y)[x_rows, y_rows]
    )
    np.testing.assert_array_equal(
        pairs(terms, Y, X, y_rows, x_rows), cross(terms, X, Y)[x_rows, y_rows]
    )


@every_terms
def test_no_pairs_and_no_dimensions_in_common_are_nothing(terms: str) -> None:
    X = np.eye(3)
    assert pairs(terms, X, X, np.empty(0, np.int64), np.empty(0, np.int64)).size == 0
    apart = 2.0 if terms == "SQUARED" else 0.0
    assert cross(terms, X[:1], X[1:]).tolist() == [[apart, apart]]
    assert cross(terms, np.zeros((1, 3)), X[1:]).tolist() == [[apart / 2, apart / 2]]


@pytest.mark.parametrize("terms", ["CHI2", "CHI2_BY_TWOS", "JENSEN_SHANNON", "INTERSECTION"])
def test_the_least_of_numbers_are_no_trouble(terms: str) -> None:
    X = np.array([[5e-324, 1.0, 0.0, 3e-320, 1e-310], [2e-310, 5e-324, 1.0, 5e-324, 1.0]])
    for dtype in dtypes(terms):
        rows = X.astype(dtype)
        np.testing.assert_allclose(
            cross(terms, rows, rows),
            reference.term_sums(CROSSED[terms], rows, rows),
            rtol=0,
            atol=1e-15,
        )


# The k best


def empty_best(nq: int, k: int, dtype: str = "float64") -> tuple[NDArray[Any], Ids]:
    return np.full((nq, k), -np.inf, dtype), np.full((nq, k), -1, np.int64)


@compiled
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(n=st.integers(1, 30), k=st.integers(1, 12), values=st.integers(1, 9), seed=seeds)
@steady(40)
def test_insert_keeps_the_k_best_in_whatever_order_they_come(
    dtype: str, n: int, k: int, values: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = (rng.integers(-values, values + 1, n) / 4).astype(dtype)
    found, ids = empty_best(1, k, dtype)
    for row in rng.permutation(n):
        insert(found, ids, 0, scores[row], int(row))
    best, true = reference.top_k(scores[None], min(k, n))
    np.testing.assert_array_equal(found[0, :n], best[0])
    np.testing.assert_array_equal(ids[0, :n], true[0])
    assert (ids[0, n:] == -1).all()
    assert np.isneginf(found[0, n:]).all()


@compiled
@loop_over("k", [LONGEST_SORTED + 1, 150, 255, 256])
@loop_over("values", [3, 10**6])
def test_a_long_list_has_its_worst_last_whatever_the_order(k: int, values: int) -> None:
    rng = np.random.default_rng(k)
    scores = rng.integers(0, values, 700).astype(np.float32)
    order = rng.permutation(700)
    found, ids = empty_best(2, k, "float32")
    for count, row in enumerate(order, 1):
        insert(found, ids, 1, scores[row], int(row))
        seen = np.sort(order[:count])
        best, true = reference.top_k(scores[None, seen], min(k, count))
        if count >= k:
            assert (found[1, -1], ids[1, -1]) == (best[0, -1], seen[true[0, -1]])
        else:
            assert ids[1, -1] == -1 - count
            assert np.isneginf(found[1, -1])
    merged = top_k_of(found[1:], ids[1:], k)
    np.testing.assert_array_equal(merged.scores, best)
    np.testing.assert_array_equal(merged.ids, true)
    assert (ids[0] == -1).all()


@compiled
@loop_over("k", [1, 7, 40, LONGEST_SORTED + 1, 200])
@loop_over("values", [3, 10**6])
def test_rows_enter_a_list_only_if_they_reach_its_least_score(k: int, values: int) -> None:
    rng = np.random.default_rng(k)
    scores = rng.integers(0, values, 400).astype(np.float32)
    for least in (np.median(scores), scores.max(), np.float32(values)):
        lists = TopK(1, k, np.float32, np.array([least], np.float32))
        for row in rng.permutation(400):
            insert(lists.scores, lists.ids, 0, scores[row], int(row))
        near = np.flatnonzero(scores >= least)
        best, true = reference.top_k(scores[None, near], min(k, len(near)))
        merged = TopK.merge([lists])
        np.testing.assert_array_equal(merged.scores[0, : len(near)], best[0])
        np.testing.assert_array_equal(merged.ids[0, : len(near)], near[true[0]])
        assert (merged.ids[0, len(near) :] == -1).all()
        assert np.isneginf(merged.scores[0, len(near) :]).all()
        assert len(near) >= k or lists.kth == least


@compiled
@given(n=st.integers(1, 20), nq=st.integers(1, 5), k=st.integers(1, 20), seed=seeds)
@steady(25)
def test_insert_pairs_sorts_them_to_their_queries(n: int, nq: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (nq, n)) / 2
    order = rng.permutation(nq * n)
    queries, rows = order // n, order % n
    found, ids = empty_best(nq, min(k, n))
    insert_pairs(found, ids, queries, rows, scores[queries, rows])
    best, true = reference.top_k(scores, min(k, n))
    np.testing.assert_array_equal(ids, true)
    np.testing.assert_array_equal(found, best)


@given(n=st.integers(0, 8), nq=st.integers(1, 6), room=st.integers(0, 60), seed=seeds)
@steady(30)
def test_survivors_lists_what_reaches_the_least_and_counts_what_does_not_fit(
    n: int, nq: int, room: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    block = rng.integers(0, 4, (n, nq)).astype(np.float32)
    least = rng.integers(0, 6, nq).astype(np.float32)
    least[least == 5] = -np.inf
    rows, queries = np.full(room, -7, np.int64), np.full(room, -7, np.int64)
    expected = np.argwhere(block >= least)
    assert survivors(block, least, rows, queries) == len(expected)
    listed = min(room, len(expected))
    np.testing.assert_array_equal(np.column_stack([rows, queries])[:listed], expected[:listed])
    assert (rows[listed:] == -7).all()


# Scan


Codes = tuple[Any, Singles, Singles | None]  # atoms, weights and biases


def blocks_of(codes: Codes, threshold: int) -> list[tuple[Codes, int]]:
    """Rows up to ``threshold``, then the others, as two blocks of a store that starts at row
    1000."""
    atoms, weights, biases = codes
    rows = (slice(threshold), slice(threshold, None))
    return [
        (
            (atoms[some], weights[some], None if biases is None else biases[some]),
            1000 + (some.start or 0),
        )
        for some in rows
    ]


def batch_scan(codes: Codes, table: Singles, k: int, threshold: int) -> tuple[Singles, Ids]:
    """Scan two blocks for all queries at once."""
    scores, ids = empty_best(table.shape[1], k, "float32")
    for block, first in blocks_of(codes, threshold):
        scan_batch(*block, in_panels(table, PANEL), first, scores, ids)
    return scores, ids


def single_scan(codes: Codes, table: Singles, k: int, threshold: int) -> tuple[Singles, Ids]:
    """The same, query by query."""
    scores, ids = empty_best(table.shape[1], k, "float32")
    for q in range(table.shape[1]):
        column = np.ascontiguousarray(table[:, q])
        for block, first in blocks_of(codes, threshold):
            scan_one(*block, column, first, scores[q : q + 1], ids[q : q + 1])
    return scores, ids


def residuals_of(n: int) -> NDArray[np.float16]:
    """Of every size, and often the same, so that scores tie."""
    return (
        np.random.default_rng(n)
        .choice([0, 6e-8, 0.25, 0.25, 0.5, 1, 1.7, 6e4], n)
        .astype(np.float16)
    )


def biases_of(residuals: NDArray[np.float16]) -> Singles:
    biases = np.full(len(residuals), np.nan, np.float32)
    half_squares(residuals.view(np.uint16), biases)
    return biases


def check_scan(codes: tuple[Any, Singles, Singles], k: int, threshold: int) -> None:
    """Both scans give the bits and the ids that float32 arithmetic in the stated order gives, near
    the true scores."""
    atoms, weights, table = codes
    for residuals in (None, residuals_of(len(atoms))):
        true = reference.aska_scores_float32(*codes, residuals)
        _, best = reference.top_k(true, k)
        biased = atoms, weights, None if residuals is None else biases_of(residuals)
        for scores, ids in (
            batch_scan(biased, table, k, threshold),
            single_scan(biased, table, k, threshold),
        ):
            np.testing.assert_array_equal(ids, best + 1000)
            np.testing.assert_array_equal(
                scores.view(np.int32), np.take_along_axis(true, best, 1).view(np.int32)
            )
        size = np.abs(weights).sum(axis=1).max() * np.abs(table).max()
        atol = float(size) * (atoms.shape[1] + 1) * 2.0**-24 * 1.01
        expected = reference.aska_scores(*codes, residuals)
        np.testing.assert_allclose(true, expected, rtol=2.0**-24 * 1.01, atol=1.01 * atol)


@compiled
@given(codes=code_arrays(), k=st.integers(1, 40), threshold=st.integers(0, 40))
@steady(25)
def test_scans_agree_to_the_bit_with_each_other_and_with_the_stated_order(
    codes: tuple[Any, Singles, Singles], k: int, threshold: int
) -> None:
    n = len(codes[0])
    check_scan(codes, min(k, n), min(threshold, n))


@compiled
@loop_over("k", [1, 17])
@loop_over("nq", [1, 2, 63, 64, 65, 70])
@loop_over("alpha", [1, 4, 6, 8])
def test_scans_of_any_batch_and_sparsity_keep_one_or_all(alpha: int, nq: int, k: int) -> None:
    rng = np.random.default_rng(alpha * nq)
    atoms = rng.integers(0, 30, (17, alpha)).astype(np.uint16)
    weights, table = rng.normal(size=(17, alpha)), rng.random((30, nq))
    check_scan((atoms, weights.astype(np.float32), table.astype(np.float32)), k, 9)


@compiled
def test_massive_ties_go_to_the_lowest_rows() -> None:
    atoms, weights, table = (
        np.zeros((50, 3), np.uint16),
        np.ones((50, 3), np.float32),
        np.ones((2, 5), np.float32),
    )
    for scan in (batch_scan, single_scan):
        for biases in (None, np.full(50, 0.125, np.float32)):
            scores, ids = scan((atoms, weights, biases), table, 7, 20)
            assert (scores == (3 if biases is None else 3.125)).all()
            np.testing.assert_array_equal(ids, np.tile(np.arange(1000, 1007), (5, 1)))


def test_half_squares_of_every_residual_are_exact() -> None:
    residuals = np.arange(0x7C00, dtype=np.uint16).view(
        np.float16
    )  # all that are finite and not negative
    with as_the_machine_does():
        np.testing.assert_array_equal(biases_of(residuals), residuals.astype(np.float64) ** 2 / 2)


# Weights and residuals


def dictionary(m: int, rows: int, seed: int, d: int = 24) -> tuple[Singles, Singles]:
    """K(D, D) and K(y, D) of χ² on random histograms, float32[m, m] and float32[rows, m]."""
    rng = np.random.default_rng(seed)
    prepared = reference.prepare("chi2", rng.gamma(0.3, size=(m + rows, d)) + 1e-6)
    atoms, others = prepared[:m], prepared[m:]
    gram, start = reference.kernel("chi2", atoms, atoms), reference.kernel("chi2", others, atoms)
    return gram.astype(np.float32), start.astype(np.float32)


@given(
    alpha=st.integers(1, 33),
    style=st.sampled_from(["normal", "halves", "one_great", "sparse", "equal"]),
    seed=seeds,
)
@steady(120)
def test_quantised_weights_keep_their_sum_and_each_is_a_unit_off_at_most(
    alpha: int, style: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    styles: dict[str, Callable[[], NDArray[np.floating]]] = {
        "normal": lambda: rng.normal(size=(3, alpha)),
        "halves": lambda: rng.integers(-6, 7, (3, alpha)) + 0.5,
        "one_great": lambda: np.where(np.arange(alpha) == 0, 100.0, rng.normal(size=(3, alpha))),
        "sparse": lambda: rng.normal(size=(3, alpha)) * (rng.random((3, alpha)) < 0.4),
        "equal": lambda: np.full((3, alpha), rng.normal()),
    }
    weights = styles[style]().astype(np.float64)
    scales = np.abs(weights).max(axis=1) / 127 * rng.choice([1.0, 1.001, 13.7], 3)
    rounded = np.full(weights.shape, 99, np.int8)
    weights_numba.quantise_int8(weights, scales, rounded)
    scaled = np.divide(
        weights, scales[:, None], out=np.zeros_like(weights), where=scales[:, None] > 0
    )
    assert np.abs(rounded - scaled).max() <= 1 + 1e-9
    assert np.abs(rounded.sum(axis=1, dtype=int) - scaled.sum(axis=1)).max() <= 0.5 + 1e-9
    assert np.abs(rounded.astype(int)).max() <= 127
    assert not rounded[scaled == 0].any()


def test_those_nearest_to_a_half_give_way() -> None:
    rounded = np.zeros(4, np.int8)
    weights_numba.round_keeping_sum(np.array([1.4, 2.45, 3.3, 0.0]), 127, rounded)
    assert rounded.tolist() == [1, 3, 3, 0]  # 7.15 is 7, not 1 + 2 + 3
    weights_numba.round_keeping_sum(np.array([-1.6, -2.55, 126.9, 0.0]), 127, rounded)
    assert rounded.tolist() == [-2, -2, 127, 0]  # 122.75 is 123, not −2 − 3 + 127
    weights_numba.round_keeping_sum(np.array([127.0, -127.0, 0.4, 0.4]), 127, rounded)
    assert rounded.tolist() == [127, -127, 1, 0]


@given(m=st.integers(1, 20), alpha=st.integers(1, 8), seed=seeds)
@steady(30)
def test_residuals_are_the_norms_of_what_the_weights_leave(m: int, alpha: int, seed: int) -> None:
    gram, start = dictionary(m, rows=3, seed=seed)
    rng = np.random.default_rng(seed)
    atoms, weights = (
        rng.integers(0, m, (3, alpha)),
        rng.normal(size=(3, alpha)) * (rng.random((3, alpha)) < 0.7),
    )
    out = np.full(3, np.nan)
    weights_numba.residuals(start, gram, atoms, weights, out)
    expected = [
        reference.residual(*row) for row in zip(start, [gram] * 3, atoms, weights, strict=True)
    ]
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)


def test_a_residual_below_zero_is_zero() -> None:
    out = np.full(1, np.nan)
    start = np.array([[1.0000001]], np.float32)
    weights_numba.residuals(
        start, np.eye(1, dtype=np.float32), np.zeros((1, 1), np.int64), np.ones((1, 1)), out
    )
    assert out.tolist() == [0]


# Digests


@given(
    words=st.lists(
        st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3), min_size=1, max_size=5
    )
)
@steady(40)
def test_digests_multiply_and_fold(words: list[list[int]]) -> None:
    out = np.zeros(len(words), np.uint64)
    with as_the_machine_does():
        hash_rows(np.array(words, np.uint64), out)
    assert out.tolist() == [reference.digest_words(row) for row in words]


@pytest.mark.parametrize(
    ("dtype", "d"), [("uint8", 1), ("uint8", 13), ("uint8", 16), ("float16", 3), ("float32", 5)]
)
def test_rows_have_the_digest_of_their_bytes_padded_with_zeros(dtype: str, d: int) -> None:
    rows = np.random.default_rng(0).integers(0, 99, (6, d)).astype(dtype)
    rows[4] = rows[1]
    with as_the_machine_does():
        digests = row_digests(rows)
        np.testing.assert_array_equal(row_digests(rows[::2]), digests[::2])
    padded = [row.tobytes().ljust(-(-row.nbytes // 8) * 8, b"\0") for row in rows]
    words = [
        [int.from_bytes(row[at : at + 8], "little") for at in range(0, len(row), 8)]
        for row in padded
    ]
    assert digests.tolist() == [reference.digest_words(row) for row in words]
    assert digests[4] == digests[1]


def test_rows_a_bit_apart_have_other_digests() -> None:
    rows = np.packbits(np.eye(256, dtype=np.uint8), axis=1)
    with as_the_machine_does():
        assert len(set(row_digests(rows).tolist())) == 256


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32"])
@pytest.mark.parametrize("d", [1, 2, 31, 128])
def test_row_ranges_are_the_least_and_the_greatest_integers(dtype: str, d: int) -> None:
    info = np.iinfo(dtype)
    rows = np.random.default_rng(d).integers(info.min, info.max, (40, d), dtype, endpoint=True)
    rows[0], rows[1, -1], rows[2, 0] = 0, info.min, info.max
    low, high = np.empty(40, dtype), np.empty(40, dtype)
    with as_the_machine_does():
        row_ranges(rows, low, high)
    assert low.tolist() == [min(row) for row in rows.tolist()]
    assert high.tolist() == [max(row) for row in rows.tolist()]

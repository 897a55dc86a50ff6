"""Pairs are ruled out in float32 only where float64 would do so: scores within their error, cuts
that lose none."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from numpy.typing import NDArray

from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.pipeline.kernels.blocks_numba import VECTOR
from mercore.pipeline.kernels.prefilter_numba import widen_row
from mercore.pipeline.search.rerank import PAIRS, Prepared, Threshold, pair_scores
from mercore.testing.cases import loop_over
from mercore.testing.rows import STYLES, kernel_blocks, kernel_rows, steady
from mercore.testing.stores import histograms

KERNELS: list[dict[str, Any]] = [
    *({"name": name} for name in ("cosine", "hellinger", "chi2", "intersection", "jensen_shannon")),
    *({"name": "rbf", "gamma": gamma} for gamma in (1e-30, 1e-12, 1e-4, 0.7, 40.0, 1e30)),
]
every_kernel = pytest.mark.parametrize(
    "kernel",
    [make_kernel(**each) for each in KERNELS],
    ids=["-".join(map(str, each.values())) for each in KERNELS],
)
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


def is_signed(kernel: Kernel) -> bool:
    return kernel.name in ("cosine", "rbf")


def all_pairs(n: int, m: int) -> Pairs:
    at, of = np.indices((n, m))
    return at.ravel(), of.ravel()


def errors(
    kernel: Kernel, rows: NDArray[Any], queries: NDArray[Any]
) -> tuple[NDArray[np.float64], float]:
    """How far the screened scores of all pairs are off, NaN where there is none, and how far they
    may be."""
    prepared = kernel.prepare(queries)
    prefilter, pairs = kernel.prefilter(prepared), all_pairs(len(rows), len(queries))
    assert prefilter is not None
    return np.abs(
        prefilter.scores(rows, pairs) - kernel.exact_pairs(kernel.prepare(rows), prepared, *pairs)
    ), prefilter.error


@every_kernel
@given(data=st.data())
@steady(150)
@pytest.mark.promise("Float32 prefilters lose nothing that counts")
def test_a_screened_score_is_within_its_error(kernel: Kernel, data: st.DataObject) -> None:
    rows, queries = data.draw(kernel_blocks(signed=is_signed(kernel)))
    off, error = errors(kernel, rows, queries)
    assert not (off > error).any()


@every_kernel
@loop_over("style", STYLES)
@loop_over("d", [1, 15, 16, 17, 128, 384, 1000])
def test_many_dimensions_and_pairs_of_few_values_round_no_more_than_that(
    kernel: Kernel, style: str, d: int
) -> None:
    rows = kernel_rows(style, "float32", (40, d), signed=is_signed(kernel), seed=d)
    queries = kernel_rows("dense", "float32", (9, d), signed=is_signed(kernel), seed=d + 1)
    queries[:3] = rows[:3]
    off, error = errors(kernel, rows, queries)
    assert not (off > error).any()


@pytest.mark.parametrize("name", ["cosine", "hellinger", "chi2", "intersection", "jensen_shannon"])
@loop_over("scale", [1e-45, 1e-38, 1e-25, 1e-9, 1.0, 1e9, 1e25, 3e38])
def test_rows_as_small_or_large_as_float32_has_them(name: str, scale: float) -> None:
    kernel, rng = make_kernel(name), np.random.default_rng(0)
    rows = (rng.random((20, 100)) * scale).astype(np.float32)
    rows[:, 3] = scale
    off, error = errors(kernel, rows, rng.random((5, 100), np.float32))
    assert not (off > error).any()
    assert np.isnan(off).all() or 1e-30 < scale < 1e30
    assert (
        not np.isnan(off).any() or not 1e-10 < scale < 1e10
    )  # ordinary ones are not left to float64


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize(
    "name", ["cosine", "hellinger", "chi2", "intersection", "jensen_shannon", "rbf"]
)
def test_the_error_is_small_enough_to_be_of_use(name: str, dtype: str) -> None:
    kernel, rng = make_kernel(name, gamma=1e-5 if name == "rbf" else None), np.random.default_rng(1)
    rows, queries = (rng.integers(0, 256, (n, 128)).astype(dtype) for n in (300, 50))
    off, error = errors(kernel, rows, queries)
    assert off.max() <= error < 1.5e-5
    assert name == "rbf" or off.max() > error / 1000  # whole numbers' distances are exact


@njit
def widen(rows: NDArray[Any], out: NDArray[np.float32]) -> None:
    rest, d = np.zeros(VECTOR, rows.dtype), np.uint64(rows.shape[1])
    for i in range(len(rows)):
        widen_row(rows.reshape(-1), np.uint64(i) * d, d, rest, out[i])


@loop_over("d", [1, 15, 16, 37, 384])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16", "float32"])
def test_rows_are_widened_as_numpy_does(dtype: str, d: int) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)  # of every float16 that there is
    values = (
        bits.view(np.float16)
        if dtype == "float16"
        else (bits >> 8)
        .astype(np.uint8)
        .view(np.uint8 if dtype == "float32" else dtype)
        .astype(dtype)
    )
    every = np.resize(values, (-(-(1 << 16) // d), d))
    out = np.full((len(every), -(-d // VECTOR) * VECTOR), 7, np.float32)
    widen(every.view(np.uint16) if dtype == "float16" else every, out)
    with np.errstate(invalid="ignore"):
        expected = every.astype(np.float32)
    np.testing.assert_array_equal(out[:, :d], expected)
    np.testing.assert_array_equal(np.signbit(out[:, :d]), np.signbit(expected))
    assert not out[:, d:].any()


def made_pairs(
    kernel: Kernel, rows: NDArray[Any], queries: NDArray[Any], seed: int
) -> tuple[Pairs, Any]:
    """Some of all pairs, in no order, and their true scores."""
    rng, (at, of) = np.random.default_rng(seed), all_pairs(len(rows), len(queries))
    chosen = rng.permutation(len(at))[: 2 * len(at) // 3]
    pairs = at[chosen], of[chosen]
    return pairs, kernel.exact_pairs(kernel.prepare(rows), kernel.prepare(queries), *pairs)


@every_kernel
@loop_over("threads", [1, 2])
@pytest.mark.promise("Float32 prefilters lose nothing that counts")
def test_a_cut_loses_nothing_that_is_of_account(kernel: Kernel, threads: int) -> None:
    queries = kernel_rows("dense", "float32", (7, 24), signed=is_signed(kernel), seed=3)
    rows = kernel_rows("dense", "float32", (2 * PAIRS // 7, 24), signed=is_signed(kernel), seed=4)
    rows[100:140] = rows[20]  # many that tie
    rows[200:240] = np.nextafter(rows[20], np.float32(0))  # and many that nearly do
    pairs, true = made_pairs(kernel, rows, queries, seed=5)
    least = np.array(
        [np.quantile(true[pairs[1] == query], 0.1 * query) for query in range(7)], np.float32
    )
    ties = 2 * kernel.exact_error(24)
    for k in (1, 5, 60):
        found = pair_scores(
            Prepared(kernel, queries, rows.dtype), rows, pairs, Threshold(k, least), threads=threads
        )
        left = found > -np.inf
        np.testing.assert_array_equal(found[left], true[left])
        for query in range(7):
            of_it = pairs[1] == query
            kth = np.sort(true[of_it])[-k]
            must = of_it & (true >= least[query]) & (true >= kth - ties)
            assert left[must].all()


def test_a_cut_leaves_little_that_is_of_no_account() -> None:
    kernel, rows, queries = (
        make_kernel("chi2"),
        histograms(4000, 64, seed=6),
        histograms(5, 64, seed=7),
    )
    pairs = all_pairs(len(rows), len(queries))
    found = pair_scores(
        Prepared(kernel, queries, rows.dtype),
        rows,
        pairs,
        Threshold(10, np.zeros(5, np.float32)),
        threads=1,
    )
    assert 50 <= (found > -np.inf).sum() < 60


class Screened:
    """Scores that are off by all of their error: those that must not be lost too low, the others
    too high."""

    def __init__(self, scores: NDArray[np.float64], error: float) -> None:
        self.of, self.error = scores, error

    def scores(self, rows: NDArray[Any], pairs: Pairs) -> NDArray[np.float64]:
        return self.of[pairs]

    def error_at(self, scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        return np.full(scores.shape, self.error)


@pytest.mark.parametrize("lost", ["too low", "not known"])
@pytest.mark.parametrize("by", ["k", "least"])
def test_a_cut_loses_nothing_however_far_off_screened_scores_are(
    by: str, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, k, error = make_kernel("chi2"), 5, 1e-5
    noise = 1e-5 * np.random.default_rng(1).standard_normal((400, 16))
    rows, queries = (
        (histograms(1, 16, seed=3) * (1 + noise)).astype(np.float32),
        histograms(3, 16, seed=2),
    )
    prepared, pairs = Prepared(kernel, queries, rows.dtype), all_pairs(400, 3)
    true = kernel.exact_pairs(kernel.prepare(rows), prepared.values, *pairs).reshape(400, 3)
    best = np.argsort(np.argsort(-true, axis=0), axis=0) < k
    off = true + error * (1 - 1e-6) * np.where(best, -1, 1)
    off[best & (lost == "not known")] = np.nan
    monkeypatch.setattr(prepared, "prefilter", Screened(off, error))
    kth = np.sort(true, axis=0)[-k].astype(np.float32)
    threshold = (
        Threshold(k, np.zeros(3, np.float32))
        if by == "k"
        else Threshold(400, np.nextafter(kth, np.float32(-1)))
    )
    found = pair_scores(prepared, rows, pairs, threshold, threads=1).reshape(400, 3)
    np.testing.assert_array_equal(found[best], true[best])


def test_a_cut_leaves_all_that_may_tie_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, pairs = make_kernel("chi2"), all_pairs(100, 2)
    noise = 1e-15 * np.random.default_rng(4).standard_normal((100, 16))
    rows = histograms(1, 16, dtype="float64", seed=5) * (1 + noise)
    prepared = Prepared(kernel, histograms(2, 16, seed=6), rows.dtype)
    true = kernel.exact_pairs(kernel.prepare(rows), prepared.values, *pairs).reshape(100, 2)
    assert (np.ptp(true, axis=0) > 0).all()
    assert (np.ptp(true, axis=0) < 2 * kernel.exact_error(16)).all()
    monkeypatch.setattr(prepared, "prefilter", Screened(true, 0.0))
    found = pair_scores(prepared, rows, pairs, Threshold(5, np.zeros(2, np.float32)), threads=1)
    np.testing.assert_array_equal(found.reshape(100, 2), true)


def test_no_pairs() -> None:
    kernel, none = make_kernel("chi2"), np.empty(0, np.int64)
    prepared = Prepared(kernel, histograms(2, 8), np.dtype(np.float32))
    threshold = Threshold(3, np.zeros(2, np.float32))
    assert pair_scores(prepared, histograms(4, 8), (none, none), threshold, threads=1).shape == (0,)

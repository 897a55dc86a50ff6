"""Groups of bins: nested, of every bin once, merged where merging costs least; near pairs are the
nearest."""

from itertools import pairwise

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encoders.bounds import bin_groups as grouping
from mercore.pipeline.encoders.bounds.bin_bound import RootBound
from mercore.pipeline.encoders.bounds.bin_groups import learn_groups, merging_costs, near_pairs
from mercore.pipeline.kernels import make_kernel
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from mercore.testing.stores import histograms
from tests.independent import reference

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 7))


def pairs(count: int, d: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    first, second = (reference.l1_shares(histograms(count, d, seed=seed + side)) for side in (0, 1))
    return first, second


@pytest.mark.loops
@given(differences=hnp.arrays(np.float32, SHAPES, elements=st.floats(-1, 1, width=32)))
@steady(60)
def test_the_costs_of_merging_are_what_it_adds_to_the_minima(
    differences: NDArray[np.float32],
) -> None:
    found = merging_costs(differences)
    assert found.dtype == np.float32
    expected = reference.merging_costs(np.maximum(differences, 0), np.maximum(-differences, 0))
    away = ~np.eye(differences.shape[1], dtype=bool)
    np.testing.assert_allclose(found[away], expected[away], rtol=0, atol=1e-6)


def test_rows_that_both_have_the_same_elsewhere_cost_the_same() -> None:
    first, second = pairs(30, 9)
    shared = np.minimum(first, second)
    np.testing.assert_allclose(
        reference.merging_costs(first, second),
        reference.merging_costs(first - shared, second - shared),
        atol=1e-12,
    )


@pytest.mark.parametrize(
    ("d", "counts"), [(40, [40, 32, 16, 5, 1]), (7, [3]), (1, [1]), (300, [256, 64, 9])]
)
def test_groups_hold_every_bin_once_and_are_nested(d: int, counts: list[int]) -> None:
    levels = learn_groups(*pairs(50, d), counts)
    assert [len(groups) for groups in levels] == counts
    for groups in levels:
        assert sorted(np.concatenate(groups).tolist()) == list(range(d))
        assert all((np.diff(group) > 0).all() for group in groups)
    for finer, coarser in pairwise(levels):
        for group in finer:
            assert sum(set(group.tolist()) <= set(wider.tolist()) for wider in coarser) == 1


def test_groups_reached_in_one_step_or_several_are_the_same_sizes_and_bins() -> None:
    differences = pairs(50, 24)
    (alone,) = learn_groups(*differences, [6])
    *_, last = learn_groups(*differences, [23, 6])
    assert len(alone) == len(last) == 6


def test_bins_that_rise_together_are_merged() -> None:
    rng = np.random.default_rng(1)
    parts = rng.random((2, 200, 4))
    first, second = (
        np.repeat(side, 3, axis=1) / side.sum(axis=1, keepdims=True) / 3 for side in parts
    )
    (groups,) = learn_groups(first, second, [4])
    assert sorted(group.tolist() for group in groups) == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
        [9, 10, 11],
    ]


def test_many_differences_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "PAIR_VALUES", 100)
    (groups,) = learn_groups(*pairs(50, 12), [4])
    assert sorted(np.concatenate(groups).tolist()) == list(range(12))


@pytest.mark.parametrize("name", ["intersection", "hellinger"])
@loop_over("n", [1, 2, 5, 80])
def test_near_pairs_are_each_querys_nearest_but_itself(name: str, n: int) -> None:
    rows, kernel = histograms(n, 12, seed=4), make_kernel(name)
    first, second = near_pairs(kernel, rows)
    shares = kernel.histograms(kernel.prepare(rows))
    np.testing.assert_allclose(shares, reference.l1_shares(rows), rtol=1e-12)
    count, near = max(1, n // 2), max(1, min(grouping.NEAR, n - 1))
    np.testing.assert_array_equal(first, np.repeat(shares[:count], near, axis=0))
    if n == 1:
        return
    prepared = reference.prepare(name, rows)
    scores = reference.kernel(name, prepared[:count], prepared)
    np.fill_diagonal(scores, -np.inf)
    for query in range(count):
        found = second[query * near : (query + 1) * near]
        at = [int(np.flatnonzero((shares == row).all(axis=1))[0]) for row in found]
        assert sorted(at) == sorted(np.argsort(-scores[query])[:near].tolist())


@pytest.mark.parametrize("groups", [40, 39])
def test_sums_of_groups_lie_row_by_row_in_memory_on_which_the_rounding_of_their_sums_depends(
    groups: int,
) -> None:
    rows, order = histograms(300, 40, seed=1), np.random.default_rng(2).permutation(40)
    encoder = RootBound(
        make_kernel("chi2"), {"order": order, "starts": np.arange(groups), "cap": np.array([0.1])}
    )
    summed = encoder._merged(rows, first=0, label="row")
    assert summed.flags.c_contiguous
    expected = make_kernel("chi2").prepare(rows)[:, order]
    if groups < 40:
        expected = np.column_stack([expected[:, :38], expected[:, 38] + expected[:, 39]])
    np.testing.assert_array_equal(summed, expected, strict=True)

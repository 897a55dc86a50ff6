"""Normalised rows are those of the NumPy formula, to the bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.kernels.preparation import l1_normalised
from mercore.pipeline.kernels.preparation_numba import pairwise_sum
from mercore.testing.cases import loop_over
from mercore.testing.rows import STYLES, kernel_rows, steady
from tests.independent import reference

pytestmark = pytest.mark.loops

DIMS = (
    *range(1, 20),
    *range(62, 67),
    *range(126, 138),
    255,
    256,
    257,
    263,
    300,
    511,
    520,
    1000,
    1025,
    2049,
    4099,
)


def same_bits(found: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64), strict=True)


@loop_over("style", STYLES)
def test_rows_are_normalised_as_numpy_does_it(style: str) -> None:
    for d in DIMS:
        rows = kernel_rows(style, "float32", (4, d), signed=False, seed=d).astype(np.float64)
        same_bits(l1_normalised(rows), reference.l1_shares(rows))


@loop_over("d", [1, 2, 8, 9, 127, 128, 129, 200, 1000])
@loop_over("scale", [5e-324, 1e-310, 1e-300, 1.0, 1e300, 1.7e308])
def test_rows_as_small_or_large_as_float64_has_them(d: int, scale: float) -> None:
    rng = np.random.default_rng(d)
    rows = np.minimum(rng.gamma(0.5, size=(3, d)), 1) * scale
    rows[:, d // 2] = scale
    found = l1_normalised(rows)
    same_bits(found, reference.l1_shares(rows))
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-14)


def test_a_row_is_the_same_alone_and_among_others() -> None:
    rows = kernel_rows("dense", "float32", (9, 300), signed=False, seed=1).astype(np.float64)
    together = l1_normalised(rows)
    for i in range(len(rows)):
        same_bits(l1_normalised(rows[i : i + 1]), together[i : i + 1])
    assert l1_normalised(rows[:0]).shape == (0, 300)


@given(count=st.integers(0, 1500), start=st.integers(0, 20), seed=st.integers(0, 2**32 - 1))
@steady(60)
def test_sums_are_added_in_the_order_of_numpy(count: int, start: int, seed: int) -> None:
    values = 10.0 ** np.random.default_rng(seed).uniform(-12, 12, start + count)
    assert pairwise_sum(values, start, count) == values[start:].sum()

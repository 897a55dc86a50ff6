"""The contract of kernels of raw rows: the true score against rational numbers, the same bits
everywhere, and proven errors of the float32 scores."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.kernels import Kernel, kernel_from_spec, make_kernel
from mercore.pipeline.kernels.decimals import decimal_score
from mercore.stores.errors import InputError
from mercore.testing.cases import loop_over
from mercore.testing.rows import STYLES, kernel_blocks, kernel_rows, steady

Rows = NDArray[Any]

every_kernel = pytest.mark.parametrize("kernel", [make_kernel("euclidean"), make_kernel("ip")])


def exact(kernel: Kernel, rows: Rows, others: Rows) -> NDArray[np.float64]:
    X, Y = kernel.prepare(rows), kernel.prepare(others)
    return kernel.exact(X, np.ascontiguousarray(Y.T))


def real(kernel: Kernel, x: Rows, y: Rows) -> Fraction:
    """The score in rational numbers."""
    pairs = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(x, y, strict=True)]
    if kernel.ascending:
        return -sum(((a - b) ** 2 for a, b in pairs), Fraction(0))
    return sum((a * b for a, b in pairs), Fraction(0))


def check(kernel: Kernel, rows: Rows, others: Rows) -> None:
    """All scores of two blocks, exact and fast, are within their errors."""
    scores = exact(kernel, rows, others)
    share = Fraction(kernel.exact_error(rows.shape[1]))
    X, Y = kernel.prepare(rows), kernel.prepare(others)
    block = kernel.block(X.astype(np.float32), np.ascontiguousarray(Y.T).astype(np.float32))
    assert not np.isnan(block).any()
    error = np.broadcast_to(kernel.block_error(X, Y), block.shape)
    assert (np.abs(block - scores) <= error)[np.isfinite(error)].all()
    i, j = (indices.ravel() for indices in np.indices(scores.shape))
    prefilter = kernel.prefilter(Y)
    if prefilter is not None:
        fast, true = prefilter.scores(rows, (i, j)), scores.ravel()
        known = ~np.isnan(fast)
        assert (np.abs(fast - true) <= prefilter.error_at(true))[known].all()
    for row, other in zip(i, j, strict=True):
        truth = real(kernel, rows[row], others[other])
        assert abs(Fraction(float(scores[row, other])) - truth) <= share * abs(truth)


@every_kernel
class TestRawKernel:
    """What holds for each of them."""

    @given(data=st.data())
    @steady(60)
    def test_scores_are_within_their_errors_of_rational_numbers(
        self, kernel: Kernel, data: st.DataObject
    ) -> None:
        rows, others = data.draw(kernel_blocks(signed=True))
        check(kernel, rows, np.concatenate([others, -rows if rows.dtype.kind == "f" else rows]))

    @loop_over("style", STYLES)
    def test_of_every_style_and_of_cancelling_rows(self, kernel: Kernel, style: str) -> None:
        rows = kernel_rows(style, "float32", (6, 33), signed=True, seed=1)
        others = rows[:, ::-1] * np.where(np.arange(33) < 16, 1, -1).astype(np.float32)
        check(kernel, rows, np.concatenate([rows, others]))

    def test_rows_that_cancel_to_a_last_digit_keep_it(self, kernel: Kernel) -> None:
        rows = np.array([[3e38, 1e-45, -3e38], [1, 2.0**-100, -1]], np.float32)
        check(kernel, rows, np.ones((1, 3), np.float32))
        if not kernel.ascending:
            tiny = np.float64(np.float32(1e-45))
            assert exact(kernel, rows, np.ones((1, 3), np.float32))[:, 0].tolist() == [
                tiny,
                2.0**-100,
            ]

    @given(data=st.data())
    @steady(30)
    def test_bits_do_not_depend_on_the_block_the_pairs_or_the_order(
        self, kernel: Kernel, data: st.DataObject
    ) -> None:
        rows, others = data.draw(kernel_blocks(signed=True))
        X, Y = kernel.prepare(rows), kernel.prepare(others)
        together = exact(kernel, rows, others)
        i, j = (indices.ravel() for indices in np.indices(together.shape))
        pairs = kernel.exact_pairs(X, Y, i, j).reshape(together.shape)
        swapped = exact(kernel, others, rows).T
        for found in (pairs, swapped):
            np.testing.assert_array_equal(
                np.ascontiguousarray(found).view(np.int64), together.view(np.int64)
            )

    def test_integers_are_exact_and_halves_score_as_float32(self, kernel: Kernel) -> None:
        rng = np.random.default_rng(2)
        rows = rng.integers(0, 256, (20, 128), np.uint8)
        wide = rows.astype(np.int64)
        squares = np.square(wide[:, None] - wide[None]).sum(axis=2)
        true = -squares if kernel.ascending else wide @ wide.T
        np.testing.assert_array_equal(exact(kernel, rows, rows), true)
        for dtype in ("float16", "float32"):
            np.testing.assert_array_equal(exact(kernel, rows.astype(dtype), rows), true)

    def test_rows_of_zeros_are_taken_and_infinite_ones_refused(self, kernel: Kernel) -> None:
        rows = np.zeros((2, 3), np.float32)
        scores = exact(kernel, rows, rows)
        assert (scores == 0).all()
        assert not np.signbit(kernel.shown(scores)).any()
        rows[1, 1] = np.inf
        with pytest.raises(InputError, match="row 1 has a NaN or infinite value"):
            kernel.prepare(rows)

    def test_decimals_are_the_real_scores(self, kernel: Kernel) -> None:
        rows = kernel_rows("huge_range", "float32", (5, 9), signed=True, seed=3)
        for x in rows:
            for y in rows:
                found = decimal_score(kernel, x, y)
                assert found is not None
                truth = real(kernel, x, y)
                assert abs(Fraction(found) - truth) <= Fraction(1, 10**120) * abs(truth)

    def test_the_spec_makes_the_kernel_again_and_transforms_are_refused(
        self, kernel: Kernel
    ) -> None:
        again = kernel_from_spec(json.loads(json.dumps(kernel.spec())))
        assert (type(again), again.spec()) == (type(kernel), kernel.spec())
        with pytest.raises(InputError) as refusal:
            make_kernel(kernel.name, transform=2.0)
        assert str(refusal.value) == (
            f"kernel {kernel.name} takes no transform, which needs K(x, x) = 1: found 2.0. Fix: "
            "leave transform out."
        )


@pytest.mark.promise(
    "Scores of `euclidean` are distances; exact scores are within their stated share of themselves"
)
def test_distances_are_shown_ascending_and_in_the_dtype_of_the_scores() -> None:
    kernel = make_kernel("euclidean")
    for dtype in (np.float32, np.float64):
        scores: NDArray[np.floating[Any]] = np.array([[0.5, -0.0, -4.0, -np.inf]], dtype)
        shown = kernel.shown(scores)
        assert shown.dtype == dtype
        assert shown.tolist() == [[0.0, 0.0, 2.0, np.inf]]

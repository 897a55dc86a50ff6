"""Scores in decimal numbers: against rationals, against other formulas, and float64 scores within
their error."""

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encoders.kpca import EmbeddedCosine
from mercore.pipeline.kernels import UNIT_KERNELS, Kernel, make_kernel
from mercore.pipeline.kernels.decimals import TIE, decimal_score
from mercore.pipeline.kernels.sums import JensenShannon
from mercore.pipeline.kernels.transform import Transformed
from mercore.testing.cases import loop_over
from mercore.testing.rows import kernel_blocks, kernel_rows, one_ulp_apart, steady
from tests.independent import reference

Row = NDArray[Any]
PARAMETERS: list[dict[str, Any]] = [
    *({"name": name, "gamma": 0.7 if name == "rbf" else None} for name in UNIT_KERNELS),
    *(
        {"name": name, "gamma": 0.7 if name == "rbf" else None, "transform": 3.0}
        for name in UNIT_KERNELS
    ),
    {"name": "exp_chi2", "gamma": 40.0},
    {"name": "chi2", "transform": 250.0},
    {"name": "hellinger", "transform": 1e30},
    {"name": "rbf", "gamma": 1e-12},
    {"name": "rbf", "gamma": 1e-30, "transform": 1e30},
    {"name": "rbf", "gamma": 1e30},
]
every_kernel = pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(
            make_kernel(**options),
            id="-".join(str(value) for value in options.values() if value is not None),
        )
        for options in PARAMETERS
    ],
)
FLOATS = st.floats(0, 2.0**100, width=32)
LENGTHS = (1, 128, 1000)
ROUNDINGS: dict[
    str, tuple[float, float, float]
] = {  # of u, what the docstrings of the kernels add up to
    "cosine": (11, 265, 2009),
    "hellinger": (7, 160, 1034.965),
    "chi2": (11, 164, 1038.965),
    "intersection": (4, 157, 1031.965),
    "jensen_shannon": (17, 170, 1044.965),
    "rbf": (9.48, 56.47, 379.11),
}
HARD: dict[str, tuple[list[float], list[float]]] = {
    "one dimension": ([3], [0.1]),
    "subnormal": ([1e-40, 2e-45, 0, 3e-42], [1e-45, 1e-41, 1e-45, 0]),
    "huge": ([1e30, 3e38, 1e30, 1], [2e30, 2e38, 0, 1e-30]),
    "huge against subnormal": ([3e38, 1e38], [1e-45, 3e-45]),
    "a peak": ([1, 1e-40, 1e-30, 1e-20], [1, 3e-40, 2e-30, 1e-38]),
    "a value each, the same": ([0, 0, 7], [0, 0, 1e-40]),
    "a value each, another": ([0, 1e-40, 0], [0, 0, 1e30]),
    "nearly nothing shared": ([1, 1e-45], [1e-45, 1]),
    "in proportion": ([1, 2, 3, 4], [1e-3, 2e-3, 3e-3, 4e-3]),
}


def score(kernel: Kernel, x: Row, y: Row) -> Decimal:
    found = decimal_score(kernel, x, y)
    assert found is not None
    return found


def signed(kernel: Kernel) -> bool:
    return (kernel.kernel if isinstance(kernel, Transformed) else kernel).name in ("cosine", "rbf")


def check_exact(kernel: Kernel, x: Row, y: Row) -> None:
    """What float64 computes is within its error, as a block, of a landmark and as a pair."""
    X, Y = kernel.prepare(x[None]), kernel.prepare(y[None])
    real, error = score(kernel, x, y), kernel.exact_error(x.size)
    YT, zero = np.ascontiguousarray(Y.T), np.zeros(1, np.int64)
    pair = kernel.exact_pairs(X, Y, zero, zero)[0]
    for found in (kernel.exact(X, YT)[0, 0], kernel.landmark_values(X, YT)[0, 0], pair):
        assert abs(Decimal(float(found)) - real) <= Decimal(error)


@every_kernel
class TestExactError:
    """What float64 computes of raw rows, and what real numbers do."""

    @given(data=st.data())
    @steady(30)
    @pytest.mark.promise("Float64 scores are within their proven error")
    def test_exact_scores_are_within_their_error(self, kernel: Kernel, data: st.DataObject) -> None:
        rows, others = data.draw(kernel_blocks(signed=signed(kernel)))
        for x, y in list(zip(rows, others, strict=False))[:2]:
            check_exact(kernel, x, y)

    @loop_over("hard", HARD)
    @pytest.mark.promise("Float64 scores are within their proven error")
    def test_hard_rows_score_within_their_error(self, kernel: Kernel, hard: str) -> None:
        x, y = (np.array(row, np.float32) for row in HARD[hard])
        check_exact(kernel, x, y)
        check_exact(kernel, x, x)
        if signed(kernel):
            check_exact(kernel, x, -y)

    @loop_over("style", ["dense", "huge_range", "one_peak"])
    def test_long_rows_score_within_their_error(self, kernel: Kernel, style: str) -> None:
        rows = kernel_rows(style, "float32", (2, 1000), signed=signed(kernel), seed=1)
        check_exact(kernel, rows[0], rows[1])
        check_exact(kernel, rows[0], one_ulp_apart(rows, 2)[0])

    def test_rows_of_float64_count_to_their_last_bit(self, kernel: Kernel) -> None:
        rng = np.random.default_rng(2)
        x, y = rng.random((2, 9)) * 10.0 ** rng.uniform(-150, 3, (2, 9))
        check_exact(kernel, x, y)

    def test_the_error_is_small_enough_to_be_of_use(self, kernel: Kernel) -> None:
        scale = 1.0
        inner = kernel
        while isinstance(inner, Transformed):
            scale, inner = scale * max(1, inner.scale), inner.kernel
        assert 2.0**-53 < kernel.exact_error(128) < min(3.2e-14 * scale, 1.02)

    def test_a_score_is_the_same_with_its_rows_swapped_and_its_dimensions_in_another_order(
        self, kernel: Kernel
    ) -> None:
        x, y = kernel_rows("dense", "float32", (2, 40), signed=signed(kernel), seed=3)
        order = np.random.default_rng(4).permutation(40)
        real = score(kernel, x, y)
        assert abs(score(kernel, y, x) - real) <= TIE / 1000
        assert abs(score(kernel, x[order], y[order]) - real) <= TIE / 1000

    def test_a_row_scores_one_with_itself(self, kernel: Kernel) -> None:
        for x in kernel_rows("dense", "float32", (3, 20), signed=signed(kernel), seed=5):
            assert abs(score(kernel, x, x) - 1) <= TIE / 1000


@pytest.mark.parametrize("name", ROUNDINGS)
def test_the_error_is_no_less_than_its_roundings(name: str) -> None:
    gamma = 0.7 if name == "rbf" else None
    plain, transformed = (make_kernel(name, gamma=gamma, transform=scale) for scale in (None, 3.0))
    for d, roundings in zip(LENGTHS, ROUNDINGS[name], strict=True):
        least = 1.01 * roundings
        assert plain.exact_error(d) / 2.0**-53 >= least * (1 - 1e-9)
        assert transformed.exact_error(d) / 2.0**-53 >= 1.01 * (9 + 3 * least) * (1 - 1e-9)


@pytest.mark.parametrize("d", LENGTHS)
def test_the_error_of_exp_chi2_is_that_of_its_transform(d: int) -> None:
    assert make_kernel("exp_chi2", gamma=1.5).exact_error(d) == make_kernel(
        "chi2", transform=3.0
    ).exact_error(d)


def test_logarithms_of_rows_of_one_shape_are_taken_once() -> None:
    kernel, rng = make_kernel("jensen_shannon"), np.random.default_rng(6)
    x, y = rng.integers(0, 9, (2, 30)).astype(np.float32)
    order = rng.permutation(30)
    JensenShannon.decimal_of_shape.cache_clear()
    first = score(kernel, x, y)
    assert all(
        score(kernel, *rows) == first for rows in ((3 * x, y), (x, y / 8), (x[order], y[order]))
    )
    assert JensenShannon.decimal_of_shape.cache_info().misses == 1
    assert first not in (score(kernel, x, y[order]), score(kernel, 3 * x + 1, y))
    assert JensenShannon.decimal_of_shape.cache_info().misses == 3


@pytest.mark.parametrize("name", ["chi2", "intersection"])
@given(data=st.data())
@steady(100)
def test_rational_kernels_are_the_rationals_that_they_are(name: str, data: st.DataObject) -> None:
    values = data.draw(st.sampled_from((st.integers(0, 3), st.integers(0, 255), FLOATS)))
    d = data.draw(st.integers(1, 6))
    rows = [data.draw(st.lists(values, min_size=d, max_size=d).filter(any)) for _ in range(2)]
    x, y = (np.array(row, np.uint8 if isinstance(row[0], int) else np.float32) for row in rows)
    real = reference.exact_additive(name, reference.exact_l1(rows[0]), reference.exact_l1(rows[1]))
    assert abs(Fraction(score(make_kernel(name), x, y)) - real) <= Fraction(TIE) / 1000


def test_ties_of_other_rows_are_ties() -> None:
    # 1/2 · 2/3 · 2 / (7/6) = 4/7 and 1/2 · 1/3 · 2 / (5/6) = 2/5: rows of other sizes, in another
    # order
    chi2 = make_kernel("chi2")
    x = np.array([1, 1], np.uint8)
    for y in (
        np.array([2, 1], np.uint8),
        np.array([43, 86], np.uint8),
        np.array([0.5, 0.25], np.float32),
    ):
        assert (
            abs(Fraction(score(chi2, x, y)) - Fraction(4, 7) - Fraction(2, 5))
            <= Fraction(TIE) / 1000
        )


def test_formulas_with_roots_and_logarithms_are_those_of_the_kernels() -> None:
    x, y = np.array([1, 0, 3], np.uint8), np.array([2, 5, 1], np.uint8)
    with localcontext(prec=100):
        pairs = [(Decimal(a) / 4, Decimal(b) / 8) for a, b in ((1, 2), (3, 1))]
        gains = [a * ((a + b) / a).ln() + b * ((a + b) / b).ln() for a, b in pairs]
        expected = {
            "cosine": Decimal(5) / (Decimal(10) * 30).sqrt(),
            "hellinger": sum((a * b).sqrt() for a, b in pairs),
            "jensen_shannon": sum(gains, Decimal(0)) / 2 / Decimal(2).ln(),
            "exp_chi2": (-sum((a - b) ** 2 / (a + b) for a, b in pairs) - Decimal(5) / 8).exp(),
        }
        for name, real in expected.items():
            assert abs(score(make_kernel(name), x, y) - real) <= TIE / 1000
        assert (
            abs(score(make_kernel("rbf", gamma=0.25), x, y) - Decimal("-7.5").exp()) <= TIE / 1000
        )
        nested = make_kernel("chi2", transform=1e30)
        assert score(nested, x, x) == 1


def test_rows_of_integers_score_as_the_same_values_in_floats_do() -> None:
    x, y = np.array([1, 0, 255], np.uint8), np.array([2, 5, 1], np.uint8)
    for name in UNIT_KERNELS:
        kernel = make_kernel(name, gamma=1e-4 if name == "rbf" else None)
        floats = [
            score(kernel, x.astype(dtype), y.astype(dtype))
            for dtype in ("float16", "float32", "float64")
        ]
        assert floats == [score(kernel, x, y)] * 3


def test_a_kernel_without_a_formula_has_no_decimal_score() -> None:
    other, x = object.__new__(EmbeddedCosine), np.ones(3, np.uint8)
    assert decimal_score(other, x, x) is None
    assert decimal_score(Transformed(other, 2.0), x, x) is None

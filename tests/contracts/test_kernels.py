"""The contract of every kernel: the true score, to the bit the same everywhere, and a proven error
of the fast one."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.kernels import KERNELS, UNIT_KERNELS, Kernel, kernel_from_spec, make_kernel
from mercore.pipeline.kernels.pair_sums_numba import TILE
from mercore.stores.errors import FormatError, InputError
from tests.independent import reference
from tests.support.cases import loop_over
from tests.support.strategies import STYLES, kernel_blocks, kernel_rows, steady

Floats = NDArray[np.float64]
PARAMETERS: list[dict[str, Any]] = [
    *({"name": name, "gamma": 0.7} if name == "rbf" else {"name": name} for name in UNIT_KERNELS),
    *(
        {"name": name, "gamma": 0.7 if name == "rbf" else None, "transform": 3.0}
        for name in UNIT_KERNELS
    ),
    {"name": "exp_chi2", "gamma": 40.0},
    {"name": "chi2", "transform": 250.0},
    {"name": "intersection", "transform": 1e-3},
    {"name": "rbf", "gamma": 1e-30},
    {"name": "rbf", "gamma": 1e-12},
    {"name": "rbf", "gamma": 1e30},
]


class Case(NamedTuple):
    """A kernel, and what the slow truth needs to compute it."""

    kernel: Kernel
    name: str
    gamma: float
    scale: float | None

    @property
    def signed(self) -> bool:
        return self.name in ("cosine", "rbf")

    @property
    def takes_zero_rows(self) -> bool:
        return self.name == "rbf"

    @property
    def said(self) -> str:
        """The name in messages: that of the kernel whose domain it is."""
        return "chi2" if self.name == "exp_chi2" else self.name

    def truth(self, X: NDArray[Any], Y: NDArray[Any]) -> Floats:
        A, B = reference.prepare(self.name, X), reference.prepare(self.name, Y)
        with np.errstate(over="ignore"):
            return reference.kernel(self.name, A, B, gamma=self.gamma, s=self.scale)


def case(name: str, gamma: float | None = None, transform: float | None = None) -> Any:
    kernel = make_kernel(name, gamma=gamma, transform=transform)
    parts = [name] + [
        f"{key}={value:g}"
        for key, value in (("gamma", gamma), ("s", transform))
        if value is not None
    ]
    return pytest.param(
        Case(kernel, name, 1.0 if gamma is None else gamma, transform), id="-".join(parts)
    )


every_kernel = pytest.mark.parametrize("case", [case(**parameters) for parameters in PARAMETERS])


def exact(kernel: Kernel, X: Floats, Y: Floats) -> Floats:
    return kernel.exact(X, np.ascontiguousarray(Y.T))


def block(kernel: Kernel, X: Floats, Y: Floats) -> NDArray[np.float32]:
    return kernel.block(X.astype(np.float32), np.ascontiguousarray(Y.T).astype(np.float32))


def all_pairs(kernel: Kernel, X: Floats, Y: Floats) -> Floats:
    x_rows, y_rows = (rows.ravel() for rows in np.indices((len(X), len(Y))))
    return kernel.exact_pairs(X, Y, x_rows, y_rows).reshape(len(X), len(Y))


def same_bits(found: Floats, expected: Floats) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))


@every_kernel
class TestKernel:
    """What holds for each of them."""

    @given(data=st.data())
    @steady(60)
    def test_exact_is_the_truth_and_a_block_is_within_its_error(
        self, case: Case, data: st.DataObject
    ) -> None:
        rows, others = data.draw(kernel_blocks(signed=case.signed))
        X, Y = case.kernel.prepare(rows), case.kernel.prepare(others)
        true, fast = exact(case.kernel, X, Y), block(case.kernel, X, Y)
        assert true.dtype == np.float64
        assert fast.dtype == np.float32
        np.testing.assert_allclose(true, case.truth(rows, others), rtol=0, atol=1e-12)
        assert np.abs(fast - true).max() <= case.kernel.block_error(X, Y)

    @given(data=st.data())
    @steady(40)
    def test_a_score_is_the_same_bits_alone_in_pairs_and_with_its_rows_swapped(
        self, case: Case, data: st.DataObject
    ) -> None:
        rows, others = data.draw(kernel_blocks(signed=case.signed))
        X, Y = case.kernel.prepare(rows), case.kernel.prepare(others)
        together = exact(case.kernel, X, Y)
        same_bits(all_pairs(case.kernel, X, Y), together)
        same_bits(np.ascontiguousarray(exact(case.kernel, Y, X).T), together)
        same_bits(np.ascontiguousarray(all_pairs(case.kernel, Y, X).T), together)
        for i, j in np.ndindex(together.shape):
            same_bits(
                exact(case.kernel, X[i : i + 1], Y[j : j + 1]), together[i : i + 1, j : j + 1]
            )

    @loop_over("style", ["dense", "sparse"])
    def test_a_score_is_the_same_bits_however_wide_the_block_is(
        self, case: Case, style: str
    ) -> None:
        rows = kernel_rows(style, "float32", (2 * TILE + 7, 13), signed=case.signed, seed=1)
        Y = case.kernel.prepare(rows)
        X = Y[::150]
        together = exact(case.kernel, X, Y)
        for first, last in (
            (0, 1),
            (TILE - 3, TILE + 2),
            (5, 2 * TILE + 7),
            (2 * TILE, 2 * TILE + 1),
        ):
            same_bits(exact(case.kernel, X, Y[first:last]), together[:, first:last].copy())
        same_bits(all_pairs(case.kernel, X, Y), together)

    @given(data=st.data())
    @steady(20)
    def test_what_prepare_gives_does_not_depend_on_the_other_rows(
        self, case: Case, data: st.DataObject
    ) -> None:
        rows, _ = data.draw(kernel_blocks(signed=case.signed))
        together = case.kernel.prepare(rows)
        for i in range(len(rows)):
            same_bits(case.kernel.prepare(rows[i : i + 1]), together[i : i + 1])

    @loop_over("style", STYLES)
    def test_a_row_is_its_own_nearest_and_the_gram_matrix_is_positive_semi_definite(
        self, case: Case, style: str
    ) -> None:
        rows = kernel_rows(style, "float32", (30, 12), signed=case.signed, seed=2)
        X = case.kernel.prepare(rows)
        G = exact(case.kernel, X, X)
        np.testing.assert_allclose(np.diag(G), 1, rtol=0, atol=1e-12)
        same_bits(np.ascontiguousarray(G.T), G)
        assert np.linalg.eigvalsh(G).min() > -1e-11

    def test_the_error_of_ordinary_rows_is_small_enough_to_be_of_use(self, case: Case) -> None:
        X = case.kernel.prepare(
            kernel_rows("dense", "float32", (10, 128), signed=case.signed, seed=3)
        )
        scale = max(1.0, case.scale or 0, 2 * case.gamma if case.name == "exp_chi2" else 0)
        if case.gamma <= 1:
            assert 0 < case.kernel.block_error(X, X) < 2e-5 * scale

    def test_integers_and_halves_score_as_the_same_values_in_float32_do(self, case: Case) -> None:
        bytes_ = kernel_rows("dense", "uint8", (6, 20), signed=False, seed=4)
        for dtype in ("uint8", "float16"):
            same_bits(
                case.kernel.prepare(bytes_.astype(dtype)),
                case.kernel.prepare(bytes_.astype(np.float32)),
            )

    @loop_over("bad", [np.nan, np.inf, -np.inf])
    def test_a_value_that_is_no_number_is_refused(self, case: Case, bad: float) -> None:
        rows = np.ones((5, 3), np.float32)
        rows[2, 1] = rows[4, 0] = bad
        shown = {"nan": "[ 1., nan,  1.]", "inf": "[ 1., inf,  1.]", "-inf": "[  1., -inf,   1.]"}[
            str(bad)
        ]
        self.refused(
            case,
            rows,
            f"query 1002 has a NaN or infinite value: found {shown}, "
            f"but kernel {case.said} needs finite ones. Fix: clean the data.",
        )

    @pytest.mark.promise("Rows that a kernel does not take are refused by number")
    def test_a_negative_value_is_refused_where_it_has_no_score(self, case: Case) -> None:
        rows = np.full((4, 6), 0.5, np.float16)
        rows[3, 0] = -1
        if case.signed:
            assert np.isfinite(case.kernel.prepare(rows)).all()
            return
        self.refused(
            case,
            rows,
            "query 1003 has a negative value: found [-1. ,  0.5,  0.5,  0.5, …], but kernel "
            f"{case.said} "
            "is defined for values ≥ 0. Fix: use cosine or rbf, or shift the data.",
        )

    @loop_over("dtype", ["uint8", "float32"])
    def test_a_row_of_zeros_is_refused_where_it_has_no_score(self, case: Case, dtype: str) -> None:
        rows = np.ones((4, 2), dtype)
        rows[1] = 0
        if case.takes_zero_rows:
            X = case.kernel.prepare(rows)
            np.testing.assert_array_equal(np.diag(exact(case.kernel, X, X)), np.ones(4))
            return
        shown = "[0, 0]" if dtype == "uint8" else "[0., 0.]"
        self.refused(
            case,
            rows,
            f"query 1001 is all zero: found {shown}, but kernel {case.said} needs a non-zero row. "
            "Fix: mercore.ingest(drop_zero_rows=True) drops such rows and keeps the ids of the others.",
        )

    def test_the_spec_makes_the_kernel_again(self, case: Case) -> None:
        again = kernel_from_spec(json.loads(json.dumps(case.kernel.spec())))
        assert (type(again), again.spec()) == (type(case.kernel), case.kernel.spec())
        X = again.prepare(kernel_rows("dense", "float32", (4, 9), signed=False, seed=5))
        same_bits(exact(again, X, X), exact(case.kernel, X, X))

    @loop_over(
        "newer",
        [
            {"name": "arc_cosine"},
            {"version": 2},
            {"configuration": {"normalise": "l2"}},
            {"configuration": None},
        ],
    )
    def test_a_spec_that_says_more_or_something_else_is_refused(
        self, case: Case, newer: dict[str, Any]
    ) -> None:
        spec = {**case.kernel.spec(), **newer}
        if newer.get("configuration"):
            spec["configuration"] = {**case.kernel.configuration, **newer["configuration"]}
        with pytest.raises(FormatError) as refusal:
            kernel_from_spec(spec)
        assert str(refusal.value) == (
            f"a kernel of the store is unknown: found {spec}. Fix: use the version of mercore "
            "that wrote it."
        )

    @staticmethod
    def refused(case: Case, rows: NDArray[Any], message: str) -> None:
        with pytest.raises(InputError) as refusal:
            case.kernel.prepare(rows, first=1000, label="query")
        assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "chi",
            {},
            f"unknown kernel: found 'chi', expected one of {', '.join(KERNELS)}. Fix: "
            'kernel="chi2"',
        ),
        (
            "rbf",
            {},
            'kernel rbf needs a gamma: found none. Fix: gamma="median", which is 1 / (median '
            "squared distance), or a number.",
        ),
        (
            "chi2",
            {"gamma": 1.0},
            "kernel chi2 takes no gamma: found 1.0. Fix: leave gamma out, or use exp_chi2 or rbf.",
        ),
        (
            "rbf",
            {"gamma": 0.0},
            "gamma is out of range: found 0.0, expected 1e-30 to 1e+30. Fix: gamma=1",
        ),
        (
            "rbf",
            {"gamma": 1e31},
            "gamma is out of range: found 1e+31, expected 1e-30 to 1e+30. Fix: gamma=1",
        ),
        (
            "chi2",
            {"transform": float("nan")},
            "transform is out of range: found nan, expected 1e-30 to 1e+30. Fix: transform=1",
        ),
        (
            "chi2",
            {"transform": -2.0},
            "transform is out of range: found -2.0, expected 1e-30 to 1e+30. Fix: transform=1",
        ),
    ],
)
def test_parameters_that_make_no_kernel_are_refused(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refusal:
        make_kernel(name, **options)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "kernel", [make_kernel("chi2", transform=1e30), make_kernel("exp_chi2", gamma=1e30)]
)
def test_a_transform_without_measure_stays_between_0_and_1(kernel: Kernel) -> None:
    X = kernel.prepare(kernel_rows("dense", "float32", (20, 50), signed=False, seed=6))
    for scores in (exact(kernel, X, X), block(kernel, X, X)):
        assert ((scores >= 0) & (scores <= 1)).all()
    assert 1 <= kernel.block_error(X, X) < 2


@pytest.mark.parametrize("transform", [None, 5.0])
@loop_over("offset", [0.0, 1.0, 1e2, 1e4, 1e6])
def test_the_error_of_rbf_allows_for_rows_far_from_the_origin(
    offset: float, transform: float | None
) -> None:
    rng = np.random.default_rng(7)
    kernel = make_kernel("rbf", gamma=0.7, transform=transform)
    rows = (offset * rng.normal(size=17) + rng.normal(size=(60, 17)) / 4).astype(np.float32)
    X = kernel.prepare(rows + rng.normal(size=17) / 97)  # float64 rows that float32 must round
    assert np.abs(block(kernel, X, X) - exact(kernel, X, X)).max() <= kernel.block_error(X, X)


def test_distances_beyond_float32_score_zero() -> None:
    kernel = make_kernel("rbf", gamma=1e30)
    X = kernel.prepare(np.array([[3e38, -3e38], [-3e38, 3e38], [0, 0]], np.float32))
    np.testing.assert_array_equal(exact(kernel, X, X), np.eye(3))
    np.testing.assert_array_equal(block(kernel, X, X), np.eye(3))

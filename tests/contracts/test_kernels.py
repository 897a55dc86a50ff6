"""The contract of every kernel: the true score, to the bit the same everywhere, and a proven error
of the fast one."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.kernels import KERNELS, UNIT_KERNELS, Kernel, make_kernel
from mercore.pipeline.kernels.pair_sums_numba import TILE
from mercore.stores.errors import InputError
from mercore.testing import KernelCase, KernelContract
from mercore.testing.cases import loop_over
from mercore.testing.kernels import WIDE, block, exact
from mercore.testing.rows import kernel_rows
from tests.independent import reference
from tests.support.tiers import first_of, slow_unless

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


def case(name: str, gamma: float | None = None, transform: float | None = None) -> Any:
    kernel = make_kernel(name, gamma=gamma, transform=transform)

    def truth(X: NDArray[Any], Y: NDArray[Any]) -> Floats:
        A, B = reference.prepare(name, X), reference.prepare(name, Y)
        with np.errstate(over="ignore"):
            return reference.kernel(name, A, B, gamma=gamma or 1.0, s=transform)

    given = {"gamma": gamma, "s": transform}
    words = [name, *(f"{key}={value:g}" for key, value in given.items() if value is not None)]
    domain = make_kernel("chi2") if name == "exp_chi2" else make_kernel(name, gamma=gamma)
    return pytest.param(KernelCase(kernel=kernel, truth=truth, domain=domain), id="-".join(words))


@pytest.mark.promise("Rows that a kernel does not take are refused by number")
class TestKernel(KernelContract):
    """What holds for each of them."""

    @pytest.fixture(
        scope="module",
        params=slow_unless(
            first_of(lambda case: case.values[0].takes.name), [case(**each) for each in PARAMETERS]
        ),
    )
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> KernelCase:
        found: KernelCase = request.param
        return found

    def test_the_error_of_ordinary_rows_is_small_enough_to_be_of_use(
        self, case: KernelCase
    ) -> None:
        X = case.kernel.prepare(
            kernel_rows("dense", "float32", (10, 128), signed=case.signed, seed=3)
        )
        spec = case.kernel.configuration
        gamma, scale = spec.get("gamma", 1.0), spec.get("scale", 0.0)
        factor = max(1.0, scale, 2 * gamma if case.takes.name == "chi2" and "gamma" in spec else 0)
        if gamma <= 1:
            assert 0 < case.kernel.block_error(X, X) < 2e-5 * factor

    def test_the_wide_blocks_have_several_tiles(self) -> None:
        assert 2 * TILE < WIDE


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

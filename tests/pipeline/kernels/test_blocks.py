"""Float32 blocks: within their proven error, the same to the bit however rows and columns are cut,
in every build."""

# mypy: disable-error-code="call-arg, no-untyped-call, var-annotated"

import hashlib
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.pipeline.kernels.blocks import transform
from mercore.pipeline.kernels.blocks_numba import CHUNK_ROWS, GROUP, PANEL, VECTOR
from mercore.pipeline.kernels.elementary_numba import LEAST, exponential, log2_vector
from mercore.pipeline.simd.vectors import load_float32, store
from mercore.testing.cases import loop_over
from mercore.testing.rows import STYLES, kernel_rows
from tests.independent import reference
from tests.support.processors import output_on
from tests.support.tiers import slow_then_soak

Singles = NDArray[np.float32]
Floats = NDArray[np.float64]

U = 2.0**-24
DIMENSIONS = (1, 2, 3, 7, 16, 31, 128, 384)
KERNELS: dict[str, dict[str, Any]] = {
    "chi2": {},
    "intersection": {},
    "jensen_shannon": {},
    "hellinger": {},
    "cosine": {},
    "exp_chi2": {"gamma": 2.0},
    "rbf": {"gamma": 0.7},
}
TRANSFORMED = {
    f"{name}-transformed": {**options, "transform": 3.0} for name, options in KERNELS.items()
}
every_kernel = pytest.mark.parametrize("name", [*KERNELS, *TRANSFORMED])
of_loops = pytest.mark.parametrize(
    "name",
    [name for name in (*KERNELS, *TRANSFORMED) if not name.startswith(("cosine", "hellinger"))],
)


def made(name: str) -> Kernel:
    return make_kernel(name.removesuffix("-transformed"), **(KERNELS | TRANSFORMED)[name])


def made_rows(kernel: Kernel, style: str, shape: tuple[int, int], seed: int) -> Floats:
    """Prepared rows that are hard on rounding, some of them equal, and one of a single peak."""
    signed = "rbf" in str(kernel.spec()) or "cosine" in str(kernel.spec())
    if style == "tiny":
        rng = np.random.default_rng(seed)
        rows = np.where(rng.random(shape) < 0.3, 0.0, 1e-30 * rng.random(shape)).astype(np.float32)
        rows[:, shape[1] // 2] = 1
    elif style == "far":
        rng = np.random.default_rng(seed)
        rows = (1e6 * (2 if signed else 1) + rng.random(shape)).astype(np.float32)
    else:
        rows = kernel_rows(style, "float32", shape, signed=signed, seed=seed)
    rows[1:2] = rows[:1]
    rows[2:3] = np.eye(shape[1], dtype=np.float32)[0]
    return kernel.prepare(rows)


def block(kernel: Kernel, X: Floats, Y: Floats) -> Singles:
    return kernel.block(X.astype(np.float32), np.ascontiguousarray(Y.T.astype(np.float32)))


def same_bits(found: Singles, expected: Singles) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(
        np.ascontiguousarray(found).view(np.int32), expected.copy().view(np.int32)
    )


@every_kernel
@loop_over("style", [*STYLES, "tiny", "far"])
def test_a_block_is_within_its_error_of_the_truth(name: str, style: str) -> None:
    kernel = made(name)
    for d in DIMENSIONS:
        X, Y = (
            made_rows(kernel, style, (7, d), seed=d),
            made_rows(kernel, style, (PANEL + 19, d), seed=d),
        )
        for columns in (Y, Y[:1], Y[:PANEL], Y[: VECTOR + 1]):
            found, true = (
                block(kernel, X, columns),
                kernel.exact(X, np.ascontiguousarray(columns.T)),
            )
            assert np.isfinite(found).all()
            assert (found >= 0).all() or name in ("cosine", "hellinger")
            assert np.abs(found - true).max() <= kernel.block_error(X, columns), d


@pytest.mark.parametrize("name", ["chi2", "intersection", "jensen_shannon", "rbf"])
def test_a_block_is_what_the_slow_truth_says(name: str) -> None:
    kernel = made(name)
    X, Y = (
        made_rows(kernel, "dense", (40, 50), seed=1),
        made_rows(kernel, "sparse", (3 * PANEL, 50), seed=2),
    )
    true = reference.kernel(name, X, Y, gamma=0.7)
    assert np.abs(block(kernel, X, Y) - true).max() <= kernel.block_error(X, Y) + 1e-12


@pytest.mark.parametrize("name", ["chi2", "intersection", "jensen_shannon"])
def test_what_rows_do_not_share_counts_nothing(name: str) -> None:
    kernel, apart = made(name), np.eye(9)
    np.testing.assert_array_equal(block(kernel, apart, apart), np.eye(9, dtype=np.float32))


@of_loops
def test_a_score_is_the_same_bits_however_rows_and_columns_are_cut(name: str) -> None:
    kernel = made(name)
    dense, sparse = (
        made_rows(kernel, style, (CHUNK_ROWS, 21), seed=3) for style in ("dense", "sparse")
    )
    X = np.concatenate([sparse, dense[:40], sparse[:7]])  # chunks of either kind, and of both
    Y = np.concatenate([dense, sparse, dense[:100]])
    whole = block(kernel, X, Y)
    for first, last in (
        (0, 1),
        (1, 3),
        (CHUNK_ROWS - 1, CHUNK_ROWS + 2),
        (CHUNK_ROWS + 30, len(X)),
    ):
        same_bits(block(kernel, X[first:last], Y), whole[first:last])
    for first, last in ((0, 1), (63, 65), (3, PANEL + 20), (GROUP - 1, GROUP + 1), (17, len(Y))):
        same_bits(block(kernel, X, Y[first:last]), whole[:, first:last])
    order = np.random.default_rng(4).permutation(len(X))
    same_bits(block(kernel, X[order], Y), whole[order])


@every_kernel
def test_blocks_without_rows_or_columns_are_empty(name: str) -> None:
    kernel = made(name)
    X = made_rows(kernel, "dense", (3, 5), seed=5)
    assert block(kernel, X[:0], X).shape == (0, 3)
    assert block(kernel, X, X[:0]).shape == (3, 0)


@of_loops
def test_rows_need_not_be_contiguous(name: str) -> None:
    kernel = made(name)
    X = made_rows(kernel, "dense", (30, 12), seed=6).astype(np.float32)
    whole = kernel.block(X, np.ascontiguousarray(X.T))
    same_bits(kernel.block(np.asfortranarray(X), X.T), whole)
    same_bits(
        kernel.block(X[::2], np.ascontiguousarray(X.T)[:, ::3]),
        np.ascontiguousarray(whole[::2, ::3]),
    )


# Exponential and logarithm


@njit(nogil=True)
def exponentials(values: Singles, out: Singles) -> None:
    for j in range(0, values.size, VECTOR):
        store(out, j, exponential(load_float32(values, j)))


@njit(nogil=True)
def logarithms(values: Singles, out: Singles) -> None:
    for j in range(0, values.size, VECTOR):
        store(out, j, log2_vector(load_float32(values, j)))


def test_exponentials_are_within_three_units() -> None:
    near = -np.logspace(-12, np.log10(-LEAST), 1 << 20)
    t = np.concatenate([np.linspace(LEAST, 0, 1 << 22), near]).astype(np.float32)
    t, out = np.maximum(t, LEAST), np.empty(t.size, np.float32)
    exponentials(t, out)
    true = np.exp(t.astype(np.float64))
    assert (np.abs(out - true) <= 3 * U * true).all()
    assert out.max() <= 1


def test_the_exponential_of_what_is_far_below_zero_is_zero() -> None:
    t = np.full(VECTOR, -np.inf, np.float32)
    t[:4] = 0, -0.0, np.nextafter(LEAST, np.float32(-100)), -3e38
    out = np.empty(VECTOR, np.float32)
    exponentials(t, out)
    assert out.tolist() == [1, 1] + [0] * (VECTOR - 2)


@pytest.mark.parametrize("exponent", [-126, -30, -2, -1, 0, 1, 60])
def test_logarithms_of_all_fractions_are_as_near_as_the_error_of_jensen_shannon_says(
    exponent: int,
) -> None:
    bits = np.arange(1 << 23, dtype=np.int32) + np.int32((exponent + 127) << 23)
    values, out = bits.view(np.float32), np.empty(bits.size, np.float32)
    logarithms(values, out)
    true = np.log2(values.astype(np.float64))
    assert (np.abs(out - true) <= U * (1.3 + np.abs(true))).all()


def test_logarithms_of_zero_and_subnormals_are_finite() -> None:
    values = np.zeros(VECTOR, np.float32)
    values[:3] = -0.0, 1e-45, 1e-38
    out = np.empty(VECTOR, np.float32)
    logarithms(values, out)
    assert np.isfinite(out).all()
    assert (np.abs(out) < 200).all()


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 7), (4, 16)])
def test_scores_are_transformed_in_place(shape: tuple[int, int]) -> None:
    scores = np.random.default_rng(7).random(shape).astype(np.float32) * np.float32(1.2)
    expected = np.exp(3.0 * (np.minimum(scores.astype(np.float64), 1) - 1))
    transform(scores, 3.0)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=6 * U)


# Bytes


# Builds


def scores_digest() -> str:
    """Return a digest of every kernel's bits, BLAS apart."""
    digest = hashlib.sha256()
    for name in (*KERNELS, *TRANSFORMED):
        if not name.startswith(("cosine", "hellinger")):
            X = made_rows(made(name), "dense", (20, 33), seed=9)
            Y = made_rows(made(name), "sparse", (PANEL + 9, 33), seed=10)
            digest.update(block(made(name), X, Y).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("cpu", "features"), slow_then_soak([("x86-64", ""), ("haswell", "+avx2,+fma")])
)
@pytest.mark.promise("Processors with fewer instructions give the same bits")
def test_builds_for_lesser_processors_score_the_same_bits(cpu: str, features: str) -> None:
    """A process whose code is made for a processor without AVX-512, or without AVX2 and
    multiply-add."""
    printed = output_on(
        cpu, features, "-c", f"import {__name__} as these; print(these.scores_digest())"
    )
    assert printed.strip() == scores_digest()

"""Rows that are hard on kernels, encoders and bounds, and settings of hypothesis."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

STYLES = (
    "dense",
    "sparse",
    "one_hot",
    "constant",
    "one_peak",
    "huge_range",
    "subnormal",
    "near_zero",
)
MOST = {"uint8": 255.0, "int8": 127.0, "float16": 6e4, "float32": 3e38}


def steady(max_examples: int) -> settings:
    """Settings of tests whose first example may compile a loop: the same examples every time, and
    no deadline."""
    fixture = [HealthCheck.function_scoped_fixture]
    return settings(
        deadline=None, derandomize=True, max_examples=max_examples, suppress_health_check=fixture
    )


def kernel_rows(
    style: str, dtype: str, shape: tuple[int, int], *, signed: bool, seed: int
) -> NDArray[Any]:
    """Rows that every kernel takes (``signed``: only cosine and rbf do), hard on rounding in one
    way; none all zero."""
    rng = np.random.default_rng(seed)
    n, d = shape
    styles: dict[str, Callable[[], NDArray[Any]]] = {
        "dense": lambda: rng.gamma(0.5, size=shape) + 1e-3,
        "sparse": lambda: rng.gamma(0.5, size=shape) * (rng.random(shape) < 0.1),
        "one_hot": lambda: np.eye(d)[rng.integers(0, d, n)],
        "constant": lambda: np.repeat(rng.random((n, 1)) + 0.01, d, axis=1),
        "one_peak": lambda: np.where(np.arange(d) == d // 2, 1.0, 1e-7 * rng.random(shape)),
        "huge_range": lambda: 10.0 ** rng.uniform(-46, 38.4, shape),
        "subnormal": lambda: (
            rng.integers(0, 4, shape) * float(np.finfo(np.float32).smallest_subnormal)
        ),
        "near_zero": lambda: 1e-37 * rng.random(shape) * (rng.random(shape) < 0.5),
    }
    values = styles[style]()
    if dtype in ("uint8", "int8"):
        values = np.rint(values / max(values.max(), 1e-300) * MOST[dtype])
    if dtype != "uint8" and signed:
        values = values * rng.choice([-1.0, 1.0], shape)
    rows: NDArray[Any] = np.clip(values, -MOST[dtype], MOST[dtype]).astype(dtype)
    rows[~rows.any(axis=1), rng.integers(0, d)] = 1
    return rows


def one_ulp_apart(rows: NDArray[Any], seed: int) -> NDArray[Any]:
    """The same rows but for one value each, which is the next of its dtype away from zero."""
    rng = np.random.default_rng(seed)
    out: NDArray[Any] = rows.copy()
    at = np.arange(len(rows)), rng.integers(0, rows.shape[1], len(rows))
    if rows.dtype.kind == "f":
        far = np.where(rows[at] < 0, -MOST[rows.dtype.name], MOST[rows.dtype.name]).astype(
            rows.dtype
        )
        out[at] = np.nextafter(rows[at], far)
    else:
        out[at] = np.minimum(rows[at], np.iinfo(rows.dtype).max - 1) + 1
    return out


@st.composite
def kernel_blocks(draw: st.DrawFn, *, signed: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two blocks of rows of one dtype and d, 1 to 6 rows each; the second may be the first but for
    an ulp a row."""
    dtype = draw(st.sampled_from(tuple(MOST)))
    d = draw(st.sampled_from((1, 2, 3, 4, 5, 7, 8, 31, 64, 129, 300)))
    n, m, seed = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(0, 2**32 - 1))
    first = kernel_rows(draw(st.sampled_from(STYLES)), dtype, (n, d), signed=signed, seed=seed)
    if draw(st.booleans()):
        return first, one_ulp_apart(first, seed)
    return first, kernel_rows(
        draw(st.sampled_from(STYLES)), dtype, (m, d), signed=signed, seed=seed + 1
    )

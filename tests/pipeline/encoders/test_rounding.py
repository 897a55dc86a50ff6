"""What bounds are made of: rounded up and no further, sums of bytes that hide nothing, slack for
what is not quite."""

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encoders.bounds.bin_bound import BYTE, capped
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBound, KpcaBoundSpec, projection_slack
from mercore.pipeline.encoders.bounds.rounding import LARGEST_FLOAT16, float16_above, float32_above
from mercore.pipeline.kernels import make_kernel
from mercore.stores.rows import SourceVectors
from mercore.testing.bounds import check_bounds
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from mercore.testing.stores import Rows, histograms
from tests.support.adversarial import adversary

Floats = NDArray[np.float64]
LARGEST = {np.float16: LARGEST_FLOAT16, np.float32: float(np.finfo(np.float32).max)}
ROUNDED: dict[Any, Any] = {np.float16: float16_above, np.float32: float32_above}
each_type = pytest.mark.parametrize("kind", ROUNDED)


def check_least(kind: Any, values: Floats) -> None:
    """Not below the values, and the next number below is."""
    above = ROUNDED[kind](values)
    assert above.dtype == kind
    assert above.shape == values.shape
    assert (above.astype(np.float64) >= values).all()
    next_below = np.nextafter(above, kind(-LARGEST[kind])).astype(np.float64)
    assert ((next_below < values) | (above == -LARGEST[kind])).all()


def test_beyond_the_greatest_number_a_bound_is_infinite() -> None:
    most = float(np.finfo(np.float32).max)
    assert float32_above(np.array([1e39, most, -1e39])).tolist() == [np.inf, most, -most]


@each_type
class TestRoundingUp:
    @given(data=st.data())
    @steady(200)
    def test_it_is_the_least_number_that_is_not_below(self, kind: Any, data: st.DataObject) -> None:
        floats = st.floats(-LARGEST[kind], LARGEST[kind])
        check_least(
            kind,
            data.draw(
                hnp.arrays(np.float64, hnp.array_shapes(max_dims=2, max_side=5), elements=floats)
            ),
        )

    def test_of_numbers_of_the_type_and_their_neighbours(self, kind: Any) -> None:
        info = np.finfo(kind)
        some: Floats = np.array(
            [0, info.smallest_subnormal, info.tiny, 0.1, 1, 3, 1000, info.max], kind
        ).astype(float)
        exact = np.concatenate([some, -some])
        np.testing.assert_array_equal(ROUNDED[kind](exact), exact.astype(kind), strict=True)
        check_least(kind, np.nextafter(exact, -np.inf)[exact > -LARGEST[kind]])
        check_least(kind, np.nextafter(exact, np.inf)[exact < LARGEST[kind]])
        check_least(kind, np.array([5e-324, -5e-324, 1e-300]))

    def test_of_nothing(self, kind: Any) -> None:
        assert ROUNDED[kind](np.empty((0, 3))).shape == (0, 3)


def test_what_no_float16_holds_is_refused() -> None:
    with pytest.raises(AssertionError):
        float16_above(np.array([1.0, 65504.1]))


@given(
    seed=st.integers(0, 2**32 - 1),
    groups=st.integers(1, 40),
    cap=st.floats(1e-6, 1.5),
    sparsity=st.sampled_from((0.0, 0.5, 0.95)),
)
@steady(300)
def test_capped_sums_bound_the_minima(seed: int, groups: int, cap: float, sparsity: float) -> None:
    rng = np.random.default_rng(seed)
    sums = rng.gamma(0.5, size=(6, groups)) * (rng.random((6, groups)) >= sparsity)
    sums[:, 0] += 1e-3
    sums /= sums.sum(axis=1, keepdims=True)
    sums[3] = sums[2]
    codes, lost, over = capped(sums, cap)
    np.testing.assert_array_equal(codes, codes.astype(np.uint8))
    assert ((lost >= 0) & (lost <= groups * cap / (2 * BYTE) + 1e-12)).all()
    np.testing.assert_allclose(over, np.maximum(sums - cap, 0).sum(axis=1), rtol=1e-12, atol=1e-15)
    minima = np.minimum(sums[:, None], sums[None]).sum(axis=2)
    shared = np.minimum(codes[:, None], codes[None]).sum(axis=2) * (cap / BYTE)
    bounds = shared + np.add.outer(lost, lost) + np.minimum.outer(over, over)
    assert (bounds >= minima - 1e-12).all()
    assert (bounds <= minima + 2 * groups * cap / BYTE + over.max() + 1e-12).all()


class TestProjectionSlack:
    """What a bound adds because its projection is not quite one."""

    @pytest.mark.parametrize(
        "name", ["chi2", "hellinger", "cosine", "intersection", "jensen_shannon"]
    )
    @loop_over("rows", ["histograms", "near-uniform", "duplicated", "one ulp apart"])
    def test_it_is_above_zero_and_small(self, name: str, rows: str) -> None:
        landmarks = histograms(120, 30) if rows == "histograms" else adversary(rows, 120, 1).rows
        kernel = make_kernel(name)
        model = KpcaBoundSpec(n_landmarks=120, n_components=60).fit(
            SourceVectors(Rows(landmarks)), kernel
        )
        assert model["slack"].shape == (1,)
        assert 1e-12 < model["slack"][0] < 1e-6

    @pytest.mark.parametrize("spoiled", [1e-9, 1e-6, 1e-3, 0.03])
    def test_a_spoiled_projection_still_bounds(self, spoiled: float) -> None:
        rows, kernel = histograms(150, 16, seed=1), make_kernel("chi2")
        model = KpcaBoundSpec(n_landmarks=80, n_components=80).fit(
            SourceVectors(Rows(rows)), kernel
        )
        prepared = kernel.prepare(model["landmarks"])
        gram = kernel.exact(prepared, np.ascontiguousarray(prepared.T))
        for sign in (-1, 1):  # too long, too short
            projection = model["projection"] * (1 + sign * spoiled)
            slack = projection_slack(kernel, gram, projection[:, projection.any(axis=0)], 16)
            assert spoiled < slack < 100 * spoiled
            encoder = KpcaBound(
                kernel, model | {"projection": projection, "slack": np.array([slack])}
            )
            check_bounds(
                kernel, encoder, rows, np.concatenate([rows[:9], histograms(9, 16, seed=2)])
            )

    @pytest.mark.parametrize("spoiled", [1e-4, 1e-3, 0.03])
    def test_a_projection_that_is_too_long_still_bounds_scores_below_zero(
        self, spoiled: float
    ) -> None:
        rows = np.random.default_rng(1).standard_normal((150, 3)).astype(np.float32)
        kernel = make_kernel("cosine")
        model = KpcaBoundSpec(n_landmarks=80, n_components=3).fit(SourceVectors(Rows(rows)), kernel)
        prepared = kernel.prepare(model["landmarks"])
        gram = kernel.exact(prepared, np.ascontiguousarray(prepared.T))
        projection = model["projection"] * (1 + spoiled)
        slack = projection_slack(kernel, gram, projection[:, projection.any(axis=0)], 3)
        encoder = KpcaBound(kernel, model | {"projection": projection, "slack": np.array([slack])})
        check_bounds(kernel, encoder, rows, -rows[:40])  # whose products the length makes too low

"""Feature maps of additive kernels, the proof of their error, and codes of their components."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encoders.feature_map import ADDITIVE, MAPPED, FeatureMap, choose_map
from mercore.pipeline.encoders.feature_map_numba import circle, map_rows
from mercore.pipeline.encoders.map_pq import MapPqSpec, leading_axes
from mercore.pipeline.kernels import make_kernel
from mercore.stores.rows import SourceVectors
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows, histograms
from tests.independent import reference
from tests.support.adversarial import adversaries

HARMONICS = (1, 3, 16)


def prepared(name: str, rows: NDArray[Any]) -> NDArray[np.float64]:
    return make_kernel(name).prepare(rows)


def odd_rows() -> NDArray[np.float64]:
    """Single bins, zeros, and values from 1e-30 to the least subnormal beside 1."""
    rows = histograms(8, 9, seed=1).astype(np.float64)
    rows[0], rows[1, 1:], rows[2, 3:] = 1, 0, 0
    rows[2, :3] = 1, 1e-30, 5e-324
    rows[3, :4] = 0
    rows[4, ::2] = 1e-310
    return rows


@pytest.mark.loops
def test_angles_in_turns() -> None:
    for turns in (0.0, 0.25, -0.5, 0.5, 1e-9, 3.7, -1023.3, 12345.678):
        expected = np.cos(2 * np.pi * (turns % 1)), np.sin(2 * np.pi * (turns % 1))
        np.testing.assert_allclose(circle(turns), expected, atol=2e-15)


@pytest.mark.loops
def test_a_map_is_that_of_plain_numpy_and_of_norm_one() -> None:
    rows = prepared("chi2", odd_rows())
    weights, frequency = np.array([0.5, 0.3, 0.2]), 0.6
    out = np.empty((len(rows), 5 * rows.shape[1]))
    map_rows(rows, np.sqrt(weights), frequency * np.log(2) / (2 * np.pi), out)
    np.testing.assert_allclose(out, reference.feature_map(rows, weights, frequency), atol=1e-14)
    np.testing.assert_allclose(np.square(out).sum(axis=1), 1, rtol=1e-14)
    zeros = np.tile(rows == 0, 5)
    assert zeros.any()
    assert (out[zeros] == 0).all()


@loop_over("name", sorted(ADDITIVE))
def test_signatures_are_those_of_the_kernels(name: str) -> None:
    ratios = np.linspace(0, 15, 500)
    expected = reference.signature(name, ratios)
    np.testing.assert_allclose(ADDITIVE[name].signature(ratios), expected, rtol=1e-9)


@loop_over("name", sorted(ADDITIVE))
def test_spectra_are_those_of_the_signatures(name: str) -> None:
    """∫ κ(ω) cos(ωλ) dω = 𝒦(λ), by the trapezoidal rule; κ of intersection falls as 1 / ω²."""
    additive, step = ADDITIVE[name], 0.01
    frequencies = np.arange(-20_000, 20_001) * step
    spectrum = additive.spectrum(np.abs(frequencies))
    for ratio in (0.0, 0.5, 2.0, 6.0):
        found = step * (spectrum * np.cos(frequencies * ratio)).sum()
        assert found == pytest.approx(additive.signature(np.array([ratio]))[0], abs=2e-3)


@loop_over("harmonics", HARMONICS)
@loop_over("name", MAPPED)
def test_no_product_of_maps_is_farther_below_the_kernel_than_it_says(
    name: str, harmonics: int
) -> None:
    kernel, model = make_kernel(name), choose_map(make_kernel(name), harmonics)
    excess = float(model["excess"][0])
    assert excess < 3e-5
    pairs = 10.0 ** np.random.default_rng(2).uniform(-20, 0, (500, 2))
    rows = [odd_rows(), pairs, histograms(60, 12, seed=3), 1 + np.eye(3)]
    rows += [each.rows[:60] for each in adversaries(120, 2)]
    for some in rows:
        values = kernel.prepare(some)
        points = FeatureMap(model)(values)
        chosen = values[:100]
        scores = kernel.exact(chosen, np.ascontiguousarray(values.T))
        above = points[:100] @ points.T - scores
        assert above.min() > -excess - 1e-12
        if name == "hellinger":
            assert above.max() < 1e-12


def test_more_harmonics_are_nearer_to_the_kernel() -> None:
    values = prepared("chi2", histograms(200, 16, seed=4))
    errors = []
    for harmonics in (1, 2, 4, 8):
        points = FeatureMap(choose_map(make_kernel("chi2"), harmonics))(values)
        scores = make_kernel("chi2").exact(values, np.ascontiguousarray(values.T))
        errors.append(float(np.abs(points @ points.T - scores).max()))
    assert errors[0] < 0.07  # the greatest of any rows is 0.0635
    assert (np.diff(np.log(errors)) < -0.5).all()


def test_axes_of_wide_rows_are_those_of_all_others() -> None:
    """2 100 coordinates are beyond those of the dense method."""
    rng = np.random.default_rng(5)
    scales = 0.9 ** np.arange(40)
    basis = np.linalg.qr(rng.normal(size=(2100, 40)))[0]
    rows = (rng.normal(size=(300, 40)) * scales) @ basis.T
    axes = leading_axes(rows, 8)
    _, values, vectors = np.linalg.svd(rows, full_matrices=False)
    np.testing.assert_allclose(np.abs(vectors[:8] @ axes), np.eye(8), atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(rows @ axes, axis=0), values[:8], rtol=1e-6)
    few = leading_axes(rows[:3], 8)
    assert few.shape == (2100, 8)
    assert (few[:, 3:] == 0).all()
    np.testing.assert_allclose(few[:, :3].T @ few[:, :3], np.eye(3), atol=1e-12)


def test_rows_without_a_bound_are_listed_by_every_query() -> None:
    """Rows that the components leave out have no direction there: their bound is K(x, x)."""
    learned = np.zeros((400, 12), np.float32)
    learned[:, :6] = histograms(400, 6, seed=6)
    spec = MapPqSpec(n_components=4, n_subquantizers=2)
    kernel = make_kernel("chi2")
    encoder = spec.encoder(kernel, spec.fit(SourceVectors(Rows(learned)), kernel))
    encoder.prepare_encoding()
    rows = np.concatenate([learned[:50], learned[:2, ::-1]])
    columns = encoder.encode(rows)
    assert np.isinf(columns["numbers"][50:, 0]).all()
    bounds = encoder.bound_scanner(rows[[0, 51]]).bounds(columns)
    assert (bounds[50:] >= 1).all()
    assert (bounds[:, 1] >= 1).all()
    assert bounds[:50, 0].min() < 0.9

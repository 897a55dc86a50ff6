"""Kernel PCA's coordinates, and what encoders make of them: bits, projections, and atoms."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encoders.aska import Aska
from mercore.pipeline.encoders.encoder import METRICS, EncoderSpec
from mercore.pipeline.encoders.hashing.kpca_lsh import KpcaLshSpec
from mercore.pipeline.encoders.kpca import (
    LEAST_EIGENVALUE,
    EmbeddedCosine,
    Embedding,
    KpcaSpec,
    gram_matrix,
    principal_components,
)
from mercore.pipeline.encoders.kpca_aska import KpcaAskaSpec
from mercore.pipeline.encoders.kpca_jl import KpcaJlSpec
from mercore.pipeline.kernels import UNIT_KERNELS, Kernel, make_kernel
from mercore.pipeline.topk import TopK
from mercore.stores.rows import SourceVectors
from mercore.stores.vectors import Vectors
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows, histograms, plan_encode
from tests.independent import reference

Floats = NDArray[np.float64]
GAMMA = {"rbf": 0.3, "exp_chi2": 1.5}
DIMS = 20
ROUNDING = 2.0**-23  # of a float32 product and sum, generously
every_kernel = pytest.mark.parametrize("name", UNIT_KERNELS)


def kernel_of(name: str) -> Kernel:
    return make_kernel(name, gamma=GAMMA.get(name))


def truth(name: str, X: NDArray[Any], Y: NDArray[Any]) -> Floats:
    """K of raw rows, by the reference."""
    return reference.kernel(
        name, reference.prepare(name, X), reference.prepare(name, Y), GAMMA.get(name, 1.0)
    )


def vectors_of(rows: NDArray[Any]) -> Vectors:
    return SourceVectors(Rows(rows))


def model_of(spec: EncoderSpec, rows: NDArray[Any], kernel: Kernel) -> dict[str, NDArray[Any]]:
    return plan_encode(vectors_of(rows), kernel, spec).model


def encoded(spec: EncoderSpec, rows: NDArray[Any], kernel: Kernel) -> dict[str, NDArray[Any]]:
    """The codes of the rows that the model was fitted on."""
    encoder = spec.encoder(kernel, model_of(spec, rows, kernel))
    encoder.prepare_encoding()
    return encoder.encode(rows)


def rounding_of(
    kernel: Kernel, rows: NDArray[Any], landmarks: NDArray[Any], projection: NDArray[Any]
) -> Floats:
    """What float32 may do to each coordinate: the error of M kernel values, and of their products
    and sums."""
    value = kernel.block_error(kernel.prepare(rows), kernel.prepare(landmarks))
    errors: Floats = np.abs(projection).sum(axis=0, dtype=np.float64) * (
        value + (len(landmarks) + 2) * ROUNDING
    )
    return errors


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    return histograms(300, DIMS, seed=1)


# Coordinates


@every_kernel
@loop_over(("landmarks", "components"), [(40, 12), (40, 40), (5, 3), (1, 1), (300, 20)])
def test_coordinates_are_those_of_the_slow_embedding(
    name: str, landmarks: int, components: int, rows: NDArray[Any]
) -> None:
    spec = KpcaSpec(n_landmarks=landmarks, n_components=components, random_state=3)
    kernel = kernel_of(name)
    model = model_of(spec, rows, kernel)
    chosen = rows[model["landmark_rows"]]
    np.testing.assert_array_equal(model["landmarks"], chosen)
    eigenvalues, projection = reference.principal_components(
        truth(name, chosen, chosen), components
    )
    np.testing.assert_allclose(model["eigenvalues"], eigenvalues, rtol=1e-12, atol=1e-12)
    found = encoded(spec, rows, kernel)["embedding"]
    expected = truth(name, rows, chosen) @ projection
    error = rounding_of(kernel, rows, chosen, model["projection"])
    gaps = np.concatenate([[1], -np.diff(eigenvalues), [1]])
    single = (gaps[:-1] > 1e-7) & (gaps[1:] > 1e-7)  # of equal eigenvalues any basis will do
    assert single.sum() >= min(components, 8)
    assert (np.abs(found - expected) <= error)[:, single].all()
    assert not found[:, eigenvalues == 0].any()


@every_kernel
def test_a_component_is_scaled_by_its_eigenvalue_and_its_greatest_entry_is_positive(
    name: str, rows: NDArray[Any]
) -> None:
    gram = truth(name, rows[:50], rows[:50])
    eigenvalues, components = principal_components(gram_matrix(kernel_of(name), rows[:50]), 15)
    assert (np.diff(eigenvalues) <= 0).all()
    kept = eigenvalues > 0
    np.testing.assert_allclose(
        components.T @ gram @ components, np.diag(kept.astype(float)), atol=1e-8
    )
    unit = components * np.sqrt(eigenvalues)
    np.testing.assert_allclose((unit**2).sum(axis=0), kept, atol=1e-9)
    np.testing.assert_allclose(gram @ unit, unit * eigenvalues, atol=1e-9)
    assert (components[np.abs(components).argmax(axis=0), np.arange(15)][kept] > 0).all()


@every_kernel
def test_a_residual_is_what_the_coordinates_leave_out_and_bounds_their_error(
    name: str, rows: NDArray[Any]
) -> None:
    """R² = K(x, x) − ‖x̃‖² (Bourrier et al. 2015, Eq. 21) and |K − ⟨x̃, ỹ⟩| ≤ R(x) R(y) (Eq.
    22)."""
    kernel = kernel_of(name)
    spec = KpcaSpec(n_landmarks=60, n_components=10, random_state=4)
    model, code = model_of(spec, rows, kernel), encoded(spec, rows, kernel)
    points, residual = code["embedding"].astype(np.float64), code["residual"].astype(np.float64)
    lengths = (points**2).sum(axis=1)
    assert (residual >= 0).all()
    assert lengths.max() <= 1 + 1e-5
    np.testing.assert_allclose(residual, np.sqrt(np.maximum(1 - lengths, 0)), rtol=1e-7)
    error = 4 * math.sqrt(
        (rounding_of(kernel, rows, model["landmarks"], model["projection"]) ** 2).sum()
    )
    assert error < 1e-3
    rest = np.sqrt(residual**2 + error)
    true = truth(name, rows, rows)
    assert (np.abs(true - points @ points.T) <= np.multiply.outer(rest, rest) + error).all()
    assert residual.max() > 0.1 or name == "cosine", "the rows are no test of the bound"


def test_a_full_basis_gives_the_kernel_back_between_landmarks(rows: NDArray[Any]) -> None:
    spec = KpcaSpec(n_landmarks=40, n_components=40)
    for name in ("chi2", "jensen_shannon"):
        code = encoded(spec, rows[:40], kernel_of(name))
        points = code["embedding"].astype(np.float64)
        np.testing.assert_allclose(points @ points.T, truth(name, rows[:40], rows[:40]), atol=1e-4)
        assert code["residual"].max() < 1e-2


# Gram matrices that lack in rank


@every_kernel
def test_landmarks_that_repeat_leave_components_that_are_zero(name: str) -> None:
    distinct = histograms(7, DIMS, seed=2)
    rows = np.concatenate([distinct, distinct, distinct[:3]])
    spec = KpcaSpec(n_landmarks=17, n_components=12)
    model, code = model_of(spec, rows, kernel_of(name)), encoded(spec, rows, kernel_of(name))
    eigenvalues, _ = reference.principal_components(
        truth(name, model["landmarks"], model["landmarks"]), 7
    )
    np.testing.assert_allclose(model["eigenvalues"][:7], eigenvalues, atol=1e-12)
    for of in (model["eigenvalues"][7:], model["projection"][:, 7:], code["embedding"][:, 7:]):
        assert not of.any()
    assert all(np.isfinite(values).all() for values in code.values())
    points = code["embedding"].astype(np.float64)
    error = rounding_of(kernel_of(name), rows, model["landmarks"], model["projection"]).sum()
    np.testing.assert_allclose(points @ points.T, truth(name, rows, rows), atol=4 * error)
    np.testing.assert_array_equal(code["embedding"][:7], code["embedding"][7:14])


@pytest.mark.parametrize("name", ["cosine", "hellinger"])
def test_more_components_than_the_rows_have_dimensions_are_zero(name: str) -> None:
    rows = histograms(100, 6, seed=3)
    code = encoded(KpcaSpec(n_landmarks=50, n_components=20), rows, kernel_of(name))
    assert code["embedding"][:, :4].any(axis=0).all()
    assert not code["embedding"][:, 6:].any()
    assert np.isfinite(code["embedding"]).all()
    assert np.isfinite(code["residual"]).all()
    assert code["residual"].max() < 0.02  # all rows lie in the span
    points = code["embedding"].astype(np.float64)
    np.testing.assert_allclose(points @ points.T, truth(name, rows, rows), atol=1e-3)


def test_one_row_many_times_over_is_one_component() -> None:
    rows = np.repeat(histograms(1, DIMS), 30, axis=0)
    model = model_of(KpcaSpec(n_landmarks=30, n_components=30), rows, kernel_of("chi2"))
    np.testing.assert_allclose(model["eigenvalues"], [30, *[0] * 29], atol=1e-12)
    code = encoded(KpcaSpec(n_landmarks=30, n_components=30), rows, kernel_of("chi2"))
    np.testing.assert_allclose(code["embedding"], np.eye(1, 30).repeat(30, axis=0), atol=1e-6)
    assert code["residual"].max() < 2e-3


def test_a_component_of_next_to_nothing_is_zero() -> None:
    rows = np.eye(3, DIMS, dtype=np.float32)
    near = rows[:1] + np.float32(1e-5) * rows[1:2]
    two = np.concatenate([rows[:1], near])
    eigenvalues, components = principal_components(gram_matrix(kernel_of("cosine"), two), 2)
    gram = truth("cosine", two, two)
    assert 0 < np.linalg.eigvalsh(gram)[0] < LEAST_EIGENVALUE
    assert (eigenvalues[0], eigenvalues[1]) == (pytest.approx(2), 0)
    assert not components[:, 1].any()


@loop_over("count", [1, 2, 50, 100])
def test_there_are_as_many_components_as_were_asked_for(count: int) -> None:
    rows = np.random.default_rng(0).random((100, DIMS)) * 1e30  # all equally far from each other
    gram = gram_matrix(make_kernel("rbf", gamma=3, transform=5), rows.astype(np.float32))
    expected = np.linalg.eigvalsh(gram)[: -count - 1 : -1]
    eigenvalues, components = principal_components(gram.copy(), count)
    np.testing.assert_allclose(eigenvalues, expected, rtol=1e-10)
    orthonormal = components * np.sqrt(eigenvalues)
    np.testing.assert_allclose(orthonormal.T @ orthonormal, np.eye(count), atol=1e-10)
    np.testing.assert_allclose(gram @ components, components * eigenvalues, atol=1e-10)


def test_every_row_of_a_small_store_may_be_a_landmark() -> None:
    for n in (1, 2, 3):
        rows = histograms(n, DIMS, seed=n)
        code = encoded(KpcaSpec(n_landmarks=n, n_components=n), rows, kernel_of("chi2"))
        points = code["embedding"].astype(np.float64)
        np.testing.assert_allclose(points @ points.T, truth("chi2", rows, rows), atol=1e-5)


# Bits


def lsh_of(spec: KpcaLshSpec, rows: NDArray[Any], name: str) -> tuple[Floats, NDArray[np.uint8]]:
    """The coordinates by the reference, NaN where float32 may change the sign, and the codes."""
    kernel = kernel_of(name)
    model = model_of(spec, rows, kernel)
    points = truth(name, rows, model["landmarks"]) @ model["projection"].astype(float)
    near = np.abs(points) <= rounding_of(kernel, rows, model["landmarks"], model["projection"])
    points[near] = np.nan
    return points, spec.encoder(kernel, model).encode(rows)["code"]


@pytest.mark.parametrize("name", ["chi2", "hellinger", "rbf"])
@loop_over("bits", [1, 8, 13, 64, 100])
def test_bits_are_the_signs_of_projected_coordinates(
    name: str, bits: int, rows: NDArray[Any]
) -> None:
    points, codes = lsh_of(KpcaLshSpec(n_landmarks=50, n_bits=bits, n_components=12), rows, name)
    assert (codes.dtype.name, codes.shape) == ("uint8", (300, -(-bits // 8)))
    sure = ~np.isnan(points).any(axis=1)
    assert sure.sum() > 250
    np.testing.assert_array_equal(codes[sure], reference.packed_signs(points[sure]), strict=True)
    unpacked = np.unpackbits(codes, axis=1, bitorder="little")
    assert not unpacked[:, bits:].any()  # padding


def test_directions_are_gaussian(rows: NDArray[Any]) -> None:
    """Components times directions: the coordinates' share of the projection is the one thing that
    is drawn."""
    spec = KpcaLshSpec(n_landmarks=40, n_bits=2000, n_components=10)
    model = model_of(spec, rows, kernel_of("chi2"))
    _, components = principal_components(gram_matrix(kernel_of("chi2"), model["landmarks"]), 10)
    directions, *_ = np.linalg.lstsq(components, model["projection"].astype(float), rcond=None)
    np.testing.assert_allclose(components @ directions, model["projection"], atol=1e-4)
    assert abs(directions.mean()) < 0.05
    np.testing.assert_allclose(directions @ directions.T / 2000, np.eye(10), atol=0.12)


@pytest.mark.parametrize("bits", [13, 16])
def test_the_score_is_the_share_of_bits_that_agree(bits: int, rows: NDArray[Any]) -> None:
    spec = KpcaLshSpec(n_landmarks=50, n_bits=bits)
    encoder = spec.encoder(kernel_of("chi2"), model_of(spec, rows, kernel_of("chi2")))
    codes = encoder.encode(rows)
    best = TopK(4, 300, np.float32)
    encoder.scanner(rows[:4]).scan(codes, 0, best)
    best = TopK.merge([best])
    unpacked = np.unpackbits(codes["code"], axis=1, bitorder="little")[:, :bits]
    differing = (unpacked[:4, None] != unpacked[None]).sum(axis=2)
    scores, ids = reference.top_k(1 - differing / bits, 300)
    np.testing.assert_array_equal(best.ids, ids)
    np.testing.assert_array_equal(best.scores, scores.astype(np.float32))
    np.testing.assert_array_equal(best.scores[:, 0], 1)


def test_there_are_as_many_components_as_bits_unless_said_otherwise() -> None:
    assert KpcaLshSpec(n_bits=96).n_components == 96
    assert KpcaLshSpec(n_bits=256, n_landmarks=100).n_components == 100
    assert KpcaLshSpec(n_bits=256, n_components=7).n_components == 7


# Projections


def test_inner_products_of_projections_are_those_of_coordinates_on_average() -> None:
    rows = histograms(50, DIMS, seed=5)
    kernel = kernel_of("chi2")  # all rows are landmarks: every seed's coordinates are the same
    points = encoded(KpcaSpec(n_landmarks=50, n_components=10), rows, kernel)["embedding"].astype(
        np.float64
    )
    expected = points @ points.T
    spec = KpcaJlSpec(n_landmarks=50, n_components=10, n_projections=8, metric="product")
    seeds = 150
    found = [
        encoded(replace(spec, random_state=seed), rows, kernel)["projections"]
        for seed in range(seeds)
    ]
    products = np.array([values.astype(np.float64) @ values.T for values in found])
    # of P with variance 1 / b the product has the variance (‖x̃‖² ‖ỹ‖² + ⟨x̃, ỹ⟩²) / b
    lengths = np.diag(expected)
    deviation = np.sqrt((np.multiply.outer(lengths, lengths) + expected**2) / 8)
    assert (np.abs(products.mean(axis=0) - expected) < 4.5 * deviation / math.sqrt(seeds)).all()
    assert np.mean(products.std(axis=0) / deviation) == pytest.approx(1, abs=0.1)


def test_projections_are_a_linear_map_of_coordinates(rows: NDArray[Any]) -> None:
    spec = KpcaJlSpec(n_landmarks=40, n_components=10, n_projections=25, metric="product")
    points = encoded(KpcaSpec(n_landmarks=40, n_components=10), rows, kernel_of("chi2"))[
        "embedding"
    ]
    projected = encoded(spec, rows, kernel_of("chi2"))["projections"]
    assert projected.shape == (300, 25)
    matrix, *_ = np.linalg.lstsq(points.astype(float), projected.astype(float), rcond=None)
    np.testing.assert_allclose(points @ matrix, projected, atol=1e-4)
    assert np.linalg.matrix_rank(projected, tol=1e-3) == 10
    assert matrix.var() == pytest.approx(1 / 25, rel=0.3)


def test_a_metric_changes_the_score_alone(rows: NDArray[Any]) -> None:
    """For the distance a row has −‖P ỹ‖² / 2 beside it, and scores 1 − ‖P x̃ − P ỹ‖² / 2."""
    kernel = kernel_of("chi2")
    product, distance = (
        KpcaJlSpec(n_landmarks=40, n_components=10, n_projections=25, metric=metric)
        for metric in METRICS[::-1]
    )
    model = model_of(product, rows, kernel)
    for name, values in model_of(distance, rows, kernel).items():
        np.testing.assert_array_equal(values, model[name])
    plain, code = encoded(product, rows, kernel), encoded(distance, rows, kernel)
    points = plain["projections"].astype(np.float64)
    np.testing.assert_array_equal(code["projections"][:, :25], plain["projections"])
    np.testing.assert_allclose(code["projections"][:, 25], -(points**2).sum(axis=1) / 2, rtol=1e-7)
    assert [spec.columns("none")[0]["width"] for spec in (product, distance)] == [25, 26]
    for spec, coded, scores in (
        (product, plain, points @ points.T),
        (
            distance,
            code,
            np.array([1 - ((points - point) ** 2).sum(axis=1) / 2 for point in points]),
        ),
    ):
        best = TopK(300, 300, np.float32)
        spec.encoder(kernel, model).scanner(rows).scan(coded, 0, best)
        found = np.take_along_axis(best.scores, np.argsort(best.ids, axis=1), axis=1)
        np.testing.assert_allclose(found, scores, atol=1e-5)


# Atoms


@pytest.mark.parametrize("name", ["chi2", "jensen_shannon", "rbf"])
def test_kpca_aska_is_aska_with_the_cosine_kernel_on_coordinates(
    name: str, rows: NDArray[Any]
) -> None:
    spec = KpcaAskaSpec(
        n_landmarks=60, n_components=15, n_atoms=40, n_nonzero_coefs=3, weights="float32"
    )
    model = model_of(spec, rows, kernel_of(name))
    code = encoded(spec, rows, kernel_of(name))
    _, projection = reference.principal_components(
        truth(name, model["landmarks"], model["landmarks"]), 15
    )
    points, atoms = (
        reference.prepare("cosine", truth(name, values, model["landmarks"]) @ projection)
        for values in (rows, model["dictionary"])
    )
    start, gram = points @ atoms.T, atoms @ atoms.T
    alike = 0
    for row in range(100):
        support, weights = reference.ormp(start[row], gram, 3)
        if (code["atoms"][row] == support).all():
            alike += 1
            np.testing.assert_allclose(code["weights"][row], weights, rtol=0, atol=1e-3)
            left = reference.residual(start[row], gram, support, weights)
            assert code["residual"][row] == pytest.approx(left, abs=3e-3)
    assert alike >= 97
    custom = model["dictionary_rows"]
    np.testing.assert_array_equal(code["atoms"][custom, 0], np.arange(40))


def test_a_row_like_no_landmark_is_like_no_atom() -> None:
    """Its coordinates are zero: it has no direction, and no NaN either."""
    rows = np.zeros((21, DIMS), np.float32)
    rows[:20, :10] = histograms(20, 10)
    rows[20, 15] = 1
    kernel = kernel_of("chi2")
    spec = KpcaAskaSpec(n_landmarks=20, n_components=5, n_atoms=20, n_nonzero_coefs=2)
    model = spec.fit(vectors_of(rows[:20]), kernel)
    embedding = Embedding(kernel, model["landmarks"], model["projection"])
    prepared = EmbeddedCosine(embedding).prepare(rows)
    assert not prepared[20].any()
    np.testing.assert_allclose((prepared[:20] ** 2).sum(axis=1), 1)
    encoder = spec.encoder(kernel, model)
    assert isinstance(encoder, Aska)
    encoder.prepare_encoding()
    code = encoder.encode(rows)
    assert not code["weights"][20].any()
    assert code["residual"][20] == 1
    assert not encoder.table(rows[20:]).any()

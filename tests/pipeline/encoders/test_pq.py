"""Product quantisation: codebooks, the loop that assigns rows to centroids, and tables by both
metrics."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encode import encode_part
from mercore.pipeline.encoders.codebooks import learn_codebooks
from mercore.pipeline.encoders.encoder import METRICS, EncoderSpec
from mercore.pipeline.encoders.kpca import Embedding, KpcaSpec
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.pq import PREPROCESSING, Pq, PqSpec, greatest_divisor, prepared_rows
from mercore.pipeline.encoders.pq_numba import assign, lay_out_codebooks, one_table
from mercore.pipeline.kernels import KINDS, Kernel, make_kernel
from mercore.pipeline.scanners.bounds.grid import PqBoundScanner
from mercore.stores.errors import InputError
from mercore.stores.rows import SourceVectors
from mercore.stores.vectors import Vectors
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from mercore.testing.stores import Rows, histograms, make_codes, make_vectors, plan_encode
from tests.independent import reference

Singles = NDArray[np.float32]
DIMS = 20
CHI2, HELLINGER = make_kernel("chi2"), make_kernel("hellinger")
RBF = make_kernel("rbf", gamma=1.0)
SPEC = KpcaPqSpec(n_landmarks=60, n_components=12, n_subquantizers=4)


def vectors_of(rows: NDArray[Any]) -> Vectors:
    return SourceVectors(Rows(rows))


def model_of(spec: EncoderSpec, rows: NDArray[Any], kernel: Kernel) -> dict[str, NDArray[Any]]:
    return plan_encode(vectors_of(rows), kernel, spec).model


def quantizer(spec: Any, rows: NDArray[Any], kernel: Kernel) -> Pq:
    """The encoder of a model fitted on rows."""
    encoder = spec.encoder(kernel, model_of(spec, rows, kernel))
    assert isinstance(encoder, Pq)
    encoder.prepare_encoding()
    return encoder


def refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        call()
    assert str(refusal.value) == message


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    return histograms(900, DIMS, seed=1)


# The loop


def assigned(points: Singles, books: Singles) -> NDArray[np.uint8]:
    code = np.full((len(points), len(books)), 99, np.uint8)
    assign(points, lay_out_codebooks(books), code)
    return code


@given(
    n=st.integers(0, 11),
    count=st.integers(1, 5),
    width=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
@steady(60)
def test_rows_are_assigned_as_the_slow_loop_does_and_the_first_of_equals_wins(
    n: int, count: int, width: int, seed: int
) -> None:
    """Small whole numbers: no rounding, and many centroids that repeat or are equally near."""
    rng = np.random.default_rng(seed)
    books = rng.integers(-2, 3, (count, 256, width)).astype(np.float32)
    points = (rng.integers(-4, 5, (n, count * width)) / 2).astype(np.float32)
    np.testing.assert_array_equal(assigned(points, books), reference.pq_codes(points, books))


@given(
    n=st.integers(1, 9),
    count=st.integers(1, 4),
    width=st.sampled_from([1, 2, 3, 8, 16, 60]),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    seed=st.integers(0, 2**32 - 1),
)
@steady(60)
def test_an_assigned_centroid_is_the_nearest_but_for_rounding(
    n: int, count: int, width: int, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    books = (scale * rng.normal(size=(count, 256, width))).astype(np.float32)
    points = (scale * rng.normal(size=(n, count * width))).astype(np.float32)
    code = assigned(points, books)
    for j, share in enumerate(np.split(points.astype(np.float64), count, axis=1)):
        squares = ((share[:, None] - books[j].astype(np.float64)[None]) ** 2).sum(axis=2)
        chosen = np.take_along_axis(squares, code[:, j : j + 1].astype(np.int64), axis=1)[:, 0]
        size = (
            np.abs(share) @ np.abs(books[j].astype(np.float64)).T
            + (books[j].astype(np.float64) ** 2).sum(1)
        ).max()
        assert (chosen <= squares.min(axis=1) + (width + 2) * 2.0**-22 * size).all()


@loop_over("where", [0, 1, 15, 16, 63, 64, 127, 200, 255])
def test_a_centroid_is_found_wherever_it_stands(where: int) -> None:
    books = np.full((2, 256, 3), 9, np.float32)
    books[0, where] = books[1, 255 - where] = 1
    points = np.ones((6, 6), np.float32)
    np.testing.assert_array_equal(assigned(points, books), [[where, 255 - where]] * 6)
    books[:] = 1
    np.testing.assert_array_equal(assigned(points, books), np.zeros((6, 2)))


def test_a_row_is_assigned_the_same_alone_and_among_others() -> None:
    rng = np.random.default_rng(3)
    books = rng.normal(size=(4, 256, 7)).astype(np.float32)
    points = rng.normal(size=(50, 28)).astype(np.float32)
    together = assigned(points, books)
    for i, size in itertools.product(range(50), (1, 2, 3)):
        np.testing.assert_array_equal(assigned(points[i : i + size], books), together[i : i + size])


def test_codebooks_are_laid_out_a_line_a_coordinate() -> None:
    books = np.random.default_rng(4).normal(size=(3, 256, 5)).astype(np.float32)
    lines = lay_out_codebooks(books).reshape(3, 6, 256)
    np.testing.assert_allclose(
        lines[:, 0], -(books.astype(np.float64) ** 2).sum(axis=2) / 2, rtol=1e-7
    )
    np.testing.assert_array_equal(lines[:, 1:], books.transpose(0, 2, 1))
    assert lay_out_codebooks(books).ctypes.data % 64 == 0


# Codebooks


@pytest.mark.parametrize(
    ("spec", "kernel"),
    [(SPEC, CHI2), (PqSpec(n_subquantizers=5), HELLINGER), (PqSpec(n_subquantizers=4), RBF)],
)
def test_codes_are_the_nearest_centroids(spec: Any, kernel: Kernel, rows: NDArray[Any]) -> None:
    encoder = quantizer(spec, rows, kernel)
    points = encoder.embed(rows)
    code, nearest = encoder.encode(rows)["code"], reference.pq_codes(points, encoder.codebooks)
    assert (code.dtype.name, code.shape) == ("uint8", (900, spec.n_subquantizers))
    assert (code == nearest).mean() > 0.999
    found, best = (
        ((reference.pq_decoded(c, encoder.codebooks) - points) ** 2).sum(axis=1)
        for c in (code, nearest)
    )
    np.testing.assert_allclose(found, best, atol=1e-5)
    assert len(np.unique(code)) > 200


def test_k_means_leaves_less_than_drawn_rows_do_and_what_it_leaves_falls_with_the_bytes(
    rows: NDArray[Any],
) -> None:
    left = []
    for count in (2, 4, 6, 12):
        encoder = quantizer(replace(SPEC, n_subquantizers=count), rows, CHI2)
        points = encoder.embed(rows).astype(np.float64)
        decoded = reference.pq_decoded(encoder.encode(rows)["code"], encoder.codebooks)
        left.append(float(((decoded - points) ** 2).sum()))
        drawn = (
            points[np.random.default_rng(0).permutation(900)[:256]]
            .reshape(256, count, -1)
            .transpose(1, 0, 2)
        )
        by_drawn = reference.pq_decoded(reference.pq_codes(points, drawn), drawn)
        assert left[-1] < 0.9 * ((by_drawn - points) ** 2).sum()
    assert left == sorted(left, reverse=True)


def test_metrics_share_their_codes_and_their_models_but_not_their_jobs(rows: NDArray[Any]) -> None:
    plans = [
        plan_encode(vectors_of(rows), CHI2, replace(SPEC, metric=metric)) for metric in METRICS
    ]
    one, other = (plan.model for plan in plans)
    estimates = ["landmarks", "landmark_rows", "eigenvalues", "codebooks", "projection"]
    proofs = ["slack", "centre", "step", "grid", "slabs", "steps", "shares", "cosines"]
    assert list(one) == estimates + proofs
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name])
    assert plans[0].spec != plans[1].spec


@loop_over("n", [1, 5, 100, 255, 256, 257])
def test_a_store_of_few_rows_is_encoded_without_loss(n: int, tmp_path: Path) -> None:
    """As long as there is a centroid for each of them."""
    rows = histograms(n, DIMS, seed=n)
    spec = KpcaPqSpec(
        n_landmarks=min(n, 12),
        n_components=min(n, 12) // 4 * 4 or 1,
        n_subquantizers=4 if n > 4 else 1,
    )
    encoder = quantizer(spec, rows, CHI2)
    code = make_codes(tmp_path / "codes", make_vectors(tmp_path / "vectors", rows), CHI2, spec)
    assert code.rows == n
    points = encoder.embed(rows)
    decoded = reference.pq_decoded(encoder.encode(rows)["code"], encoder.codebooks)
    assert np.isfinite(encoder.codebooks).all()
    if n <= 256:
        np.testing.assert_array_equal(decoded, points)


@pytest.mark.parametrize("n", [20, 5000])
@pytest.mark.parametrize("distinct", [1, 5])
def test_of_few_distinct_points_each_is_a_centroid_and_no_row_is_assigned_to_a_repeat(
    n: int, distinct: int
) -> None:
    rng = np.random.default_rng(5)
    points = rng.normal(size=(distinct, 12)).astype(np.float32)
    sample = points[np.arange(n) % distinct]
    books = learn_codebooks(sample, 3, 0)
    assert (books.dtype.name, books.shape) == ("float32", (768, 4))
    books = books.reshape(3, 256, 4)
    code = reference.pq_codes(sample, books)
    np.testing.assert_array_equal(reference.pq_decoded(code, books), sample)
    assert code.max() == distinct - 1
    np.testing.assert_array_equal(
        books[:, distinct:], np.repeat(books[:, distinct - 1 : distinct], 256 - distinct, 1)
    )


@pytest.mark.parametrize("distinct", [1, 5])
def test_a_store_of_few_distinct_rows_tells_them_apart(distinct: int) -> None:
    rows = histograms(distinct, DIMS, seed=6)[np.arange(300) % distinct]
    for spec, kernel in (
        (KpcaPqSpec(n_landmarks=40, n_components=8, n_subquantizers=4), CHI2),
        (PqSpec(n_subquantizers=4), HELLINGER),
    ):
        code = quantizer(spec, rows, kernel).encode(rows)["code"]
        assert len(np.unique(code, axis=0)) == distinct
        np.testing.assert_array_equal(code, code[np.arange(300) % distinct])


def test_the_sample_is_drawn_from_the_store_and_no_larger_than_it(rows: NDArray[Any]) -> None:
    books = {
        count: model_of(PqSpec(n_subquantizers=8, n_training=count), rows[:, :16], RBF)["codebooks"]
        for count in (256, 900, 1 << 16)
    }
    np.testing.assert_array_equal(books[900], books[1 << 16])
    assert (books[256] != books[900]).any()
    drawn = books[256].reshape(8, 256, 2)[0]  # as many rows as centroids: each is one
    assert {tuple(point) for point in drawn} <= {tuple(point) for point in rows[:, :2]}


FRESH = """
import sys
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.kernels import make_kernel
from mercore.stores.rows import SourceVectors
from mercore.testing.stores import Rows, histograms, plan_encode

loaded = {"sklearn.cluster", "scipy.linalg"} & set(sys.modules)
spec = KpcaPqSpec(n_landmarks=100, n_components=16, n_subquantizers=4)
plan = plan_encode(SourceVectors(Rows(histograms(3000, 24, seed=1))), make_kernel("chi2"), spec)
print(not loaded, plan.layout.model)
"""


def test_the_first_model_of_a_process_is_that_of_any_other() -> None:
    """Libraries that bring threads of their own are loaded while it is fitted, and add in one order
    all the same."""
    words = [sys.executable, "-c", FRESH]
    first = subprocess.run(
        words, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True
    )
    spec = KpcaPqSpec(n_landmarks=100, n_components=16, n_subquantizers=4)
    rows = histograms(3000, 24, seed=1)
    for _ in range(2):
        layout = plan_encode(vectors_of(rows), CHI2, spec).layout
        assert first.stdout == f"True {layout.model}\n"


@loop_over("preprocessing", PREPROCESSING)
def test_components_that_are_zero_cost_a_proof_nothing(preprocessing: str) -> None:
    """Five distinct rows have five components; the others are zero, and no basis has them."""
    rows = np.tile(histograms(5, 24, seed=8), (30, 1))
    spec = KpcaPqSpec(
        n_landmarks=40, n_components=16, n_subquantizers=8, preprocessing=preprocessing
    )
    model = model_of(spec, rows, CHI2)
    assert model["projection"].any(axis=0).sum() == 5
    assert 0 < model["slack"][0] < 1e-7
    bounds = spec.encoder(CHI2, model).bound_scanner(rows[:5])
    columns = quantizer(spec, rows, CHI2).encode(rows)
    assert isinstance(bounds, PqBoundScanner)
    scores = CHI2.exact(CHI2.prepare(rows), np.ascontiguousarray(CHI2.prepare(rows[:5]).T))
    np.testing.assert_allclose(bounds.bounds(columns), scores, atol=0.02)


# Preprocessing


@pytest.fixture(scope="module")
def preprocessed(rows: NDArray[Any]) -> dict[str, dict[str, NDArray[Any]]]:
    return {how: model_of(replace(SPEC, preprocessing=how), rows, CHI2) for how in PREPROCESSING}


def test_without_preprocessing_the_coordinates_are_those_of_kpca(
    preprocessed: dict[str, dict[str, NDArray[Any]]], rows: NDArray[Any]
) -> None:
    plain = model_of(KpcaSpec(n_landmarks=60, n_components=12), rows, CHI2)
    projection = preprocessed["none"]["projection"]
    assert projection.dtype == np.float64  # proofs need more digits than estimates
    np.testing.assert_array_equal(projection.astype(np.float32), plain["projection"])
    for name in ("landmarks", "landmark_rows", "eigenvalues"):
        for model in preprocessed.values():
            np.testing.assert_array_equal(model[name], plain[name])


def test_a_permutation_moves_components_and_balances_them(
    preprocessed: dict[str, dict[str, NDArray[Any]]],
) -> None:
    plain, permuted = (preprocessed[how]["projection"] for how in ("none", "permutation"))
    order = [
        int(np.flatnonzero((plain == column[:, None]).all(axis=0)).item()) for column in permuted.T
    ]
    assert sorted(order) == list(range(12))
    assert order != sorted(order)
    np.testing.assert_array_equal(permuted, plain[:, order])


def test_a_rotation_is_orthogonal(preprocessed: dict[str, dict[str, NDArray[Any]]]) -> None:
    plain, rotated = (
        preprocessed[how]["projection"].astype(np.float64) for how in ("none", "rotation")
    )
    rotation, *_ = np.linalg.lstsq(plain, rotated, rcond=None)
    np.testing.assert_allclose(plain @ rotation, rotated, atol=1e-4)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(12), atol=1e-4)
    assert np.abs(rotation).max() < 0.95  # no permutation


@pytest.mark.parametrize("how", ["permutation", "rotation"])
def test_preprocessing_preserves_inner_products(
    how: str, preprocessed: dict[str, dict[str, NDArray[Any]]], rows: NDArray[Any]
) -> None:
    points = {
        key: Embedding(CHI2, model["landmarks"], model["projection"])(rows[:200]).astype(np.float64)
        for key, model in preprocessed.items()
    }
    np.testing.assert_allclose(
        points[how] @ points[how].T, points["none"] @ points["none"].T, atol=2e-5
    )


# Tables


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("spec", "kernel"), [(SPEC, CHI2), (PqSpec(n_subquantizers=10), HELLINGER)]
)
def test_tables_add_up_to_the_score_of_what_a_code_stands_for(
    spec: Any, kernel: Kernel, metric: str, rows: NDArray[Any]
) -> None:
    encoder = quantizer(replace(spec, metric=metric), rows, kernel)
    queries = histograms(6, DIMS, seed=7)
    tables, code = encoder.tables(queries), encoder.encode(rows[:100])["code"]
    assert (tables.dtype.name, tables.shape) == ("float32", (spec.n_subquantizers, 256, 6))
    expected = reference.pq_scores(encoder.embed(queries), code, encoder.codebooks, metric)
    np.testing.assert_allclose(reference.pq_scores_float32(code, tables), expected, atol=3e-6)


def test_the_distance_is_the_kernel_of_what_quantisation_leaves(rows: NDArray[Any]) -> None:
    """Of unit vectors 1 − ‖x − y‖² / 2 is the cosine (Bourrier et al. 2015, Eq. 6)."""
    few = rows[:200]
    encoder = quantizer(PqSpec(n_subquantizers=4), few, HELLINGER)
    scores = reference.pq_scores_float32(encoder.encode(few)["code"], encoder.tables(few[:30]))
    prepared = reference.prepare("hellinger", few)
    np.testing.assert_allclose(
        scores, reference.kernel("hellinger", prepared[:30], prepared), atol=1e-5
    )


@pytest.mark.parametrize("metric", METRICS)
def test_a_querys_tables_are_the_same_bits_in_any_batch(metric: str) -> None:
    """Sums that float32 rounds one way or the other, as their terms are added in one order or
    another."""
    rng = np.random.default_rng(8)
    terms = np.full(32, 2.0**-27)
    terms[:2] = 2.0**27, 2.0**3
    books = np.stack([rng.permutation(terms) for _ in range(256)]).astype(np.float32)
    encoder = Pq(prepared_rows(RBF), books, PqSpec(n_subquantizers=1, metric=metric))
    queries = np.full((9, 32), 2.0**-27, np.float32)
    together = encoder.tables(queries)
    for size in (1, 2, 3, 4, 8):
        np.testing.assert_array_equal(encoder.tables(queries[:size]), together[:, :, :size])


@pytest.mark.loops
@pytest.mark.parametrize("metric", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("width", [1, 3])
def test_the_table_of_one_query_is_that_of_numpy(metric: tuple[bool, bool], width: int) -> None:
    rng = np.random.default_rng(width)
    books, columns = rng.normal(size=(width, 4, 256)), rng.normal(size=(width, 4))
    norms, squares = rng.random((4, 256)), rng.random(4)
    expected = books[0] * columns[0][:, None]
    for book, column in zip(books[1:], columns[1:], strict=True):
        expected += book * column[:, None]
    distance, raw = metric
    if distance:
        expected = expected - norms / 2 - squares[:, None]
        expected = expected * 2 if raw else expected + np.eye(4, 1)
    out = np.empty((4, 256), np.float32)
    one_table(books, columns, norms, squares, metric, out)
    np.testing.assert_array_equal(out, expected.astype(np.float32))


# Refusals


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.raw_metrics])
def test_pq_of_raw_rows_is_refused_where_no_distance_decides(name: str, rows: NDArray[Any]) -> None:
    refused(
        lambda: plan_encode(vectors_of(rows), make_kernel(name), PqSpec(n_subquantizers=4)),
        f"encoder pq ranks rows by their Euclidean distance: found kernel {name}, "
        'expected one of cosine, hellinger, rbf, euclidean, inner_product. Fix: encoder="kpca-pq"',
    )


def test_rows_too_long_for_a_proof_are_refused() -> None:
    """Sums of the products of more bytes exceed an int32."""
    vectors, kernel = vectors_of(np.ones((2, 32_897), np.uint8)), make_kernel("euclidean")
    refused(
        lambda: plan_encode(vectors, kernel, PqSpec(n_subquantizers=1)),
        'coordinates is out of range: found 32897, expected 1 to 32896. Fix: proof="none"',
    )
    PqSpec(n_subquantizers=1, proof="none").check(vectors, kernel)


def test_pq_of_transformed_kernels_is_refused(rows: NDArray[Any]) -> None:
    refused(
        lambda: plan_encode(
            vectors_of(rows), make_kernel("cosine", transform=2.0), PqSpec(n_subquantizers=4)
        ),
        "encoder pq ranks rows by their Euclidean distance: found kernel transformed, "
        'expected one of cosine, hellinger, rbf, euclidean, inner_product. Fix: encoder="kpca-pq"',
    )


@loop_over(
    ("dims", "count"), [(20, 10), (24, 12), (128, 16), (127, 1), (960, 16), (1, 1), (15, 15)]
)
def test_the_greatest_number_of_sub_quantizers_that_fits_is_offered(dims: int, count: int) -> None:
    assert greatest_divisor(dims) == count
    PqSpec(n_subquantizers=count).check_quantizer(dims, fix="")


def test_a_quantizer_takes_what_its_range_says() -> None:
    PqSpec(n_subquantizers=256, n_training=1).check_quantizer(256, fix="")
    PqSpec(n_subquantizers=1, n_training=1 << 24).check_quantizer(1, fix="")


def test_parts_are_encoded_from_any_row_on(rows: NDArray[Any]) -> None:
    encoder = quantizer(SPEC, rows, CHI2)
    whole = encoder.encode(rows)["code"]
    np.testing.assert_array_equal(
        encode_part(encoder, vectors_of(rows), 123, 877)["code"], whole[123:877]
    )

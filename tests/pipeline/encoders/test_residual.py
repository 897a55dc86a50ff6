"""Residual quantisation: the beam search, the codebooks, and the option ``quantizer``."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encoders.codebooks import learn_codebooks
from mercore.pipeline.encoders.equal_cost import equal_bytes
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.pca_pq import PcaPqSpec
from mercore.pipeline.encoders.pq import MAX_GROUP, PqSpec
from mercore.pipeline.encoders.residual.books import (
    ResidualBooks,
    ResidualGroup,
    learn_residual_books,
    norm_weight,
)
from mercore.pipeline.kernels import make_kernel
from mercore.stores.errors import InputError
from mercore.stores.rows import SourceVectors
from mercore.stores.spec import from_json, to_json
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows
from tests.independent import reference

Singles = NDArray[np.float32]
D, GROUPS, WIDE = 6, 2, 8  # codebooks, in groups of four coordinates


@pytest.fixture(scope="module")
def points() -> Singles:
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(2000, WIDE)) @ rng.normal(size=(WIDE, WIDE))
    return mixed.astype(np.float32)


@pytest.fixture(scope="module")
def learned(points: Singles) -> Singles:
    return learn_residual_books(points, D, GROUPS, 0, by_distance=True).reshape(D, 256, -1)


def quantizer_of(learned: Singles, groups: int = GROUPS) -> ResidualBooks:
    books, norms = learned[:, :, :-1], np.ascontiguousarray(learned[-1, :, -1])
    return ResidualBooks(np.ascontiguousarray(books), norms, groups)


def assigned(quantizer: ResidualBooks, points: Singles, count: int = D) -> NDArray[np.uint8]:
    code = np.full((len(points), count), 99, np.uint8)
    quantizer.assign(points, code)
    return code


def error(points: Singles, decoded: NDArray[Any]) -> float:
    return float(((points - decoded) ** 2).sum(axis=1).mean())


# The loop


@loop_over(
    ("size", "width", "weight"),
    [(1, 1, 0.0), (1, 3, 0.5), (2, 1, 0.0), (3, 2, 0.0), (3, 5, 0.25), (4, 3, 2.0)],
)
def test_codes_are_those_of_the_slow_search_and_the_first_of_equals_wins(
    size: int, width: int, weight: float
) -> None:
    """Small whole numbers: no rounding, and many sums that are equally near."""
    rng = np.random.default_rng(size)
    points, books = (
        rng.integers(-3, 4, shape).astype(np.float32) for shape in ((3, 3), (size, 256, 3))
    )
    norms = rng.integers(0, 40, 256).astype(np.float32)
    code, others = np.full((3, 1, size), 99, np.uint8), np.array([0, 2, 6], np.float32)
    halves = others / np.float32(2)
    ResidualGroup(books, norms, weight).encode(points, code, halves, width=width)
    expected = [
        reference.beam_searched(point, books, norms, width, weight, other)
        for point, other in zip(points, others, strict=True)
    ]
    np.testing.assert_array_equal(code[:, 0], expected)
    squares = (reference.residual_decoded(code[:, 0], books, 1) ** 2).sum(axis=1)
    np.testing.assert_array_equal(2 * halves, squares + others)


def test_all_sums_that_are_asked_for_come_best_first(points: Singles, learned: Singles) -> None:
    books = np.ascontiguousarray(learned[:2, :, :-1])
    code, some = np.empty((20, 5, 2), np.uint8), points[:20, :4]
    ResidualGroup(books).encode(some, code, np.zeros(20, np.float32), width=5)
    sums = [reference.residual_decoded(code[:, place], books, 1) for place in range(5)]
    left = np.array([((some - each) ** 2).sum(axis=1) for each in sums])
    assert (np.diff(left, axis=0) > -1e-5).all()


def test_the_code_of_a_row_does_not_depend_on_its_block(points: Singles, learned: Singles) -> None:
    quantizer = quantizer_of(learned)
    together = assigned(quantizer, points[:150])
    for first, size in ((0, 1), (7, 1), (60, 9), (64, 64), (149, 1)):
        part = assigned(quantizer, points[first : first + size])
        np.testing.assert_array_equal(part, together[first : first + size])


def test_rows_that_float32_does_not_hold_have_some_code(learned: Singles) -> None:
    strange = np.array([[np.inf] * WIDE, [1e30] * WIDE, [np.nan] * WIDE], np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        assert assigned(quantizer_of(learned), strange).shape == (3, D)


# Codebooks


def test_sums_are_nearer_than_centroids_side_by_side(points: Singles, learned: Singles) -> None:
    """Codes of both have as many bytes, and a byte of the sums also names the norm."""
    code = assigned(quantizer_of(learned), points)
    sums = reference.residual_decoded(code, learned[:, :, :-1], GROUPS)
    wide = np.tile(points, 3)[:, : 2 * D]  # six shares of two coordinates
    books = learn_codebooks(wide, D, 0).reshape(D, 256, 2)
    shares = reference.pq_decoded(reference.pq_codes(wide[:300], books), books)
    assert error(points, sums) < 0.5 * error(wide[:300], shares) * WIDE / (2 * D)


def test_the_last_byte_knows_the_norm(points: Singles, learned: Singles) -> None:
    code = assigned(quantizer_of(learned), points)
    norms = (reference.residual_decoded(code, learned[:, :, :-1], GROUPS) ** 2).sum(axis=1)
    known = learned[-1, code[:, -1], -1]
    assert np.abs(known - norms).mean() < 0.02 * norms.std()
    assert not learned[:-1, :, -1].any()


def test_without_distances_no_norm_is_learned_and_the_error_is_less(
    points: Singles, learned: Singles
) -> None:
    books = learn_residual_books(points, D, GROUPS, 0, by_distance=False).reshape(D, 256, -1)
    assert not books[:, :, -1].any()
    centroids = np.ascontiguousarray(books[:, :, :-1])
    without = assigned(ResidualBooks(centroids, None, GROUPS), points)
    with_norm = assigned(quantizer_of(learned), points)
    assert error(points, reference.residual_decoded(without, centroids, GROUPS)) < error(
        points, reference.residual_decoded(with_norm, learned[:, :, :-1], GROUPS)
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_do_not_change_the_codebooks(
    threads: int, points: Singles, learned: Singles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing, "cpu_count", lambda: threads)
    again = learn_residual_books(points, D, GROUPS, 0, by_distance=True)
    np.testing.assert_array_equal(again.reshape(learned.shape), learned)


@loop_over(("distinct", "count", "groups"), [(1, 3, 1), (5, 3, 1), (5, 4, 2), (200, 2, 1)])
def test_few_distinct_points_are_encoded_without_loss(
    distinct: int, count: int, groups: int, points: Singles
) -> None:
    few = points[np.arange(400) % distinct]
    books = learn_residual_books(few, count, groups, 0, by_distance=True).reshape(count, 256, -1)
    assert np.isfinite(books).all()
    code = assigned(quantizer_of(books, groups), few, count)
    decoded = reference.residual_decoded(code, books[:, :, :-1], groups)
    np.testing.assert_allclose(decoded, few, atol=2e-5 * float(np.abs(few).max()))


@loop_over("count", [1, 2])
def test_the_last_group_may_have_the_last_byte_alone(count: int, points: Singles) -> None:
    books = learn_residual_books(points, count, count, 0, by_distance=True).reshape(count, 256, -1)
    code = assigned(quantizer_of(books, count), points, count)
    decoded = reference.residual_decoded(code, books[:, :, :-1], count)
    assert error(points, decoded) < error(points, points.mean(axis=0))


def test_the_weight_of_norms_falls_as_squares_of_points_grow() -> None:
    books = np.random.default_rng(0).normal(size=(3, 256, 4)).astype(np.float32)
    assert norm_weight(10 * books) == pytest.approx(norm_weight(books) / 100)
    assert np.isfinite(norm_weight(0 * books))


# The option


def refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        call()
    assert str(refusal.value) == message


def test_sums_of_centroids_prove_nothing_by_default_and_take_few_bytes() -> None:
    assert PqSpec().proof == "bounds"
    for kind in (PqSpec, PcaPqSpec, KpcaPqSpec):
        assert kind(quantizer="prq").proof == "none"
        spec = kind(quantizer="rq")
        assert (spec.proof, spec.n_subquantizers) == ("none", MAX_GROUP)


@loop_over(
    ("quantizer", "count", "groups"),
    [("pq", 8, 8), ("rq", 8, 1), ("prq", 16, 1), ("prq", 28, 2), ("prq", 64, 4), ("prq", 17, 17)],
)
def test_groups_have_at_most_sixteen_bytes(quantizer: str, count: int, groups: int) -> None:
    assert PqSpec(n_subquantizers=count, quantizer=quantizer).groups == groups


def test_what_a_quantizer_does_not_take_is_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"quantizer": "prq", "proof": "bounds"},
            'codes of prq bound no score: found proof="bounds", expected proof="none". Fix: leave '
            'proof out, or quantizer="pq"',
        ),
        (
            {"quantizer": "rq", "n_subquantizers": 17},
            'subquantizers is out of range: found 17, expected 1 to 16. Fix: quantizer="prq"',
        ),
        (
            {"quantizer": "opq"},
            "unknown quantizer: found 'opq', expected one of pq, rq, prq. Fix: leave quantizer "
            "out.",
        ),
    ]
    for changed, message in cases:
        spec = PqSpec(**{"n_subquantizers": 8, **changed})
        refused(lambda spec=spec: spec.check_quantizer(64, fix=""), message)  # type: ignore[misc]


def test_old_specs_are_those_of_product_quantisers() -> None:
    spec = PqSpec(n_subquantizers=4)
    stored = to_json(spec)
    assert "quantizer" not in stored
    assert from_json(PqSpec, stored, "here") == spec
    sums = PqSpec(n_subquantizers=4, quantizer="rq")
    assert from_json(PqSpec, to_json(sums), "here") == sums


@loop_over(("budget", "size"), [(8, 8), (16, 16), (40, 16)])
def test_the_largest_code_of_one_group_has_sixteen_bytes(budget: int, size: int) -> None:
    spec: Any = equal_bytes(KpcaPqSpec, {"quantizer": "rq"}, budget, rows=4000, dims=30)
    assert (spec.n_subquantizers, spec.n_components) == (size, 64)


def test_rows_of_any_length_are_sums() -> None:
    """One group needs no divisor of the dimensions."""
    rows = np.random.default_rng(1).normal(size=(300, 7)).astype(np.float32)
    vectors, kernel = SourceVectors(Rows(rows)), make_kernel("euclidean")
    spec = PqSpec(n_subquantizers=3, quantizer="rq")
    spec.check(vectors, kernel)
    encoder = spec.encoder(kernel, spec.fit(vectors, kernel))
    encoder.prepare_encoding()
    code = encoder.encode(rows)["code"]
    scores = reference.pq_scores_float32(code, encoder.tables(rows[:20]))
    true = ((rows[:20, None] - rows[None]) ** 2).sum(axis=2)
    assert (scores.argmax(axis=1) == np.arange(20)).mean() > 0.9
    assert np.corrcoef(scores.ravel(), -true.ravel())[0, 1] > 0.99

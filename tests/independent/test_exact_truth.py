"""The exact truth and the adversarial sets: against exact rationals and long decimals, pair by
pair."""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from mercore.testing.cases import loop_over
from tests.independent import exact_truth
from tests.independent.exact_truth import KERNELS
from tests.independent.reference import exact_additive, exact_l1
from tests.support.adversarial import MAKERS, adversary

GAMMA = 0.75
K = 12


def score(name: str, x: list[float], y: list[float]) -> Decimal:
    """The score by its definition, to 150 digits."""
    if name == "inner_product":
        return decimal(sum(Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)))
    if name in ("rbf", "euclidean"):
        squares = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(x, y, strict=True))
        return (
            -decimal(squares) if name == "euclidean" else (-Decimal(GAMMA) * decimal(squares)).exp()
        )
    if name == "cosine":
        dot, xx, yy = (
            sum(Fraction(a) * Fraction(b) for a, b in zip(one, other, strict=True))
            for one, other in ((x, y), (x, x), (y, y))
        )
        return decimal(dot) / (decimal(xx) * decimal(yy)).sqrt()
    X, Y = exact_l1(x), exact_l1(y)
    if name == "hellinger":
        return sum((decimal(a * b).sqrt() for a, b in zip(X, Y, strict=True)), Decimal(0))
    if name == "jensen_shannon":
        return sum((gain(a, b) + gain(b, a) for a, b in zip(X, Y, strict=True)), Decimal(0)) / 2
    kernel = exact_additive("intersection" if name == "intersection" else "chi2", X, Y)
    return (
        decimal(kernel) if name != "exp_chi2" else (-Decimal(GAMMA) * decimal(2 - 2 * kernel)).exp()
    )


def gain(x: Fraction, y: Fraction) -> Decimal:
    """x log2((x + y) / x)."""
    return decimal(x) * decimal((x + y) / x).ln() / Decimal(2).ln() if x else Decimal(0)


def decimal(value: Fraction | int) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def ranked(name: str, rows: list[list[float]], query: list[float]) -> list[int]:
    """All ids by descending score, the lower first of those within 1e-50."""
    with localcontext(prec=150):
        scores = [score(name, query, row) for row in rows]
        order = sorted(range(len(rows)), key=lambda i: (-scores[i], i))
        groups = [[order[0]]]
        for one, other in pairwise(order):
            size = abs(scores[one]) if name in exact_truth.RAW else 1
            if scores[one] - scores[other] > Decimal("1e-50") * size:
                groups.append([])
            groups[-1].append(other)
    return [i for group in groups for i in sorted(group)]


@loop_over("made", [name for name in MAKERS if name != "near-uniform"])
@pytest.mark.parametrize("name", KERNELS)
def test_nearest_are_those_of_exact_arithmetic(name: str, made: str) -> None:
    data = adversary(made, 20, 1)
    found = exact_truth.nearest(name, data.rows, data.queries, K, gamma=GAMMA)
    rows, queries = data.rows.astype(np.float64).tolist(), data.queries.astype(np.float64).tolist()
    assert found.tolist() == [ranked(name, rows, query)[:K] for query in queries]


@pytest.mark.parametrize("name", KERNELS)
def test_float64_is_as_near_as_it_is_taken_to_be(name: str) -> None:
    rows = adversary("near-uniform", 20, 1)
    exact = exact_truth.ORDERED_AS.get(name, name)
    for query, found in exact_truth._scored(exact, GAMMA, rows.rows, rows.queries):
        x = exact_truth._numbers(query, exact)
        scores = [
            exact_truth.exact_score(exact, GAMMA, x, exact_truth._numbers(row, exact))
            for row in rows.rows
        ]
        bits = 2 * exact_truth.UNIT if name in exact_truth.RAW else exact_truth.BITS
        true = np.array([value / 2**bits for value in scores])
        if name == "rbf":
            true = -np.log(-np.log(true))
        if name == "euclidean":
            true = -np.log(-true)
        if name == "inner_product":
            norms = [
                np.sqrt(np.square(side.astype(float)).sum(axis=-1)) for side in (query, rows.rows)
            ]
            true = true / norms[0] / norms[1].max()
        assert np.abs(found - true).max() < 1e-12


def test_signs_count_where_the_kernel_has_them() -> None:
    rows = np.array([[-1, 0], [1, 3], [-2, 0], [2, 6], [0, -1]], np.float32)
    assert exact_truth.nearest("cosine", rows, np.array([[1, 0]], np.float32), 5).tolist() == [
        [1, 3, 4, 0, 2]
    ]


def test_rows_whose_scores_have_vanished_tie() -> None:
    rows = np.array([[40], [30], [20], [1], [1e-30], [0]], np.float32)
    assert exact_truth.nearest("rbf", rows, np.array([[0]], np.float32), 6).tolist() == [
        [4, 5, 3, 0, 1, 2]
    ]


@pytest.mark.parametrize("made", MAKERS)
def test_adversarial_sets_lie_in_every_domain_and_are_the_same_again(made: str) -> None:
    one, other = adversary(made, 130, 7), adversary(made, 130, 7)
    assert len(one.rows) == 130
    assert len(one.queries) == 7
    assert one.rows.dtype == one.queries.dtype
    assert one.rows.dtype in (np.uint8, np.float32)
    for rows in (one.rows, one.queries):
        assert np.isfinite(rows).all()
        assert (rows >= 0).all()
        assert rows.any(axis=1).all()
    assert np.array_equal(one.rows, other.rows)
    assert np.array_equal(one.queries, other.queries)


def test_adversarial_sets_hold_what_they_are_named_for() -> None:
    rows = adversary("near zero", 300, 7).rows
    least = float(np.finfo(np.float32).tiny)
    assert ((rows > 0) & (rows < least)).any()
    assert (rows.max(axis=1) < 1e-37).any()
    permuted = np.sort(adversary("permuted", 30, 7).rows.reshape(30, 2, -1), axis=2)
    assert (permuted == permuted[0]).all()
    duplicated = adversary("duplicated", 64, 7).rows
    assert np.array_equal(duplicated[:4], duplicated[60:])

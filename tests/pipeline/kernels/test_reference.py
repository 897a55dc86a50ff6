"""The slow truths themselves: by hand, by what the mathematics demands, and against other people's
code."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import orthogonal_mp_gram
from sklearn.metrics.pairwise import additive_chi2_kernel, chi2_kernel, rbf_kernel

from mercore.testing.cases import loop_over
from tests.independent import reference
from tests.independent.reference import KERNELS

Floats = NDArray[np.float64]


def histograms(n: int, d: int, seed: int = 0) -> Floats:
    """Sparse non-negative rows, none of them all zero."""
    rng = np.random.default_rng(seed)
    rows = rng.gamma(0.5, size=(n, d)) * (rng.random((n, d)) < 0.6)
    rows[:, 0] += 0.01
    return rows


def dictionary(m: int, seed: int) -> tuple[Floats, Floats]:
    """Gram matrix of m random unit vectors in fewer dimensions than m, and the correlations of one
    more with them."""
    rng = np.random.default_rng(seed)
    atoms = rng.normal(size=(m + 1, 2 * m // 3))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    return atoms[:-1] @ atoms[:-1].T, atoms[:-1] @ atoms[-1]


# Kernels


@pytest.mark.parametrize("name", KERNELS)
def test_a_row_is_its_own_nearest(name: str) -> None:
    rows = reference.prepare(name, histograms(20, 15))
    K = reference.kernel(name, rows, rows)
    np.testing.assert_allclose(np.diag(K), 1, rtol=1e-14)
    assert (K <= 1 + 1e-14).all()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("s", [None, 3.0])
def test_kernels_are_symmetric_and_positive_semi_definite(name: str, s: float | None) -> None:
    rows = reference.prepare(name, histograms(25, 10, seed=1))
    K = reference.kernel(name, rows, rows, gamma=0.7, s=s)
    np.testing.assert_allclose(K, K.T, rtol=0, atol=1e-15)
    assert np.linalg.eigvalsh(K).min() > -1e-12


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cosine", 0.5),  # (1, 1, 0) and (0, 1, 1)
        ("hellinger", 0.5),
        ("chi2", 0.5),
        ("intersection", 0.5),
        ("jensen_shannon", 0.5),
        ("exp_chi2", math.exp(-2 * 1.0)),
        ("rbf", math.exp(-2 * 2.0)),
    ],
)
def test_values_by_hand_where_supports_half_overlap(name: str, expected: float) -> None:
    x, y = reference.prepare(name, [[1, 1, 0]]), reference.prepare(name, [[0, 1, 1]])
    assert reference.kernel(name, x, y, gamma=2.0)[0, 0] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cosine", 6 / 10),  # (1, 3) and (3, 1)
        ("hellinger", math.sqrt(3) / 2),
        ("chi2", 2 * 2 * 3 / 16),
        ("intersection", 1 / 2),
        ("jensen_shannon", 1 / 4 * math.log2(4) + 3 / 4 * math.log2(4 / 3)),
        ("exp_chi2", math.exp(-1 / 2)),
        ("rbf", math.exp(-8)),
    ],
)
def test_values_by_hand_of_two_bins(name: str, expected: float) -> None:
    x, y = reference.prepare(name, [[1, 3]]), reference.prepare(name, [[3, 1]])
    assert reference.kernel(name, x, y)[0, 0] == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in ("exp_chi2", "rbf")])
def test_disjoint_supports_score_zero(name: str) -> None:
    x, y = reference.prepare(name, [[1, 0, 2, 0]]), reference.prepare(name, [[0, 5, 0, 0]])
    assert reference.kernel(name, x, y)[0, 0] == 0


@pytest.mark.parametrize("name", KERNELS)
def test_the_least_of_numbers_neither_overflow_nor_divide_by_zero(name: str) -> None:
    rows = np.array([[5e-324, 1.0, 0.0], [1.0, 5e-324, 0.0], [5e-324, 5e-324, 1.0]])
    K = reference.kernel(name, rows, rows)
    assert np.isfinite(K).all()
    assert (K >= 0).all()


def test_transform_of_any_kernel() -> None:
    rows = reference.prepare("chi2", histograms(4, 6))
    plain, lifted = (reference.kernel("chi2", rows, rows, s=s) for s in (None, 5.0))
    np.testing.assert_allclose(lifted, np.exp(5 * (plain - 1)))


def test_kernels_agree_with_scikit_learn() -> None:
    rows = reference.prepare("chi2", histograms(12, 9))
    np.testing.assert_allclose(
        reference.kernel("exp_chi2", rows, rows, gamma=1.5),
        chi2_kernel(rows, gamma=1.5),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        reference.kernel("chi2", rows, rows),
        1 + additive_chi2_kernel(rows) / 2,
        rtol=1e-12,
        atol=1e-14,
    )
    np.testing.assert_allclose(
        reference.kernel("rbf", rows, rows, gamma=1.5), rbf_kernel(rows, gamma=1.5), rtol=1e-12
    )


def test_a_kernel_of_no_rows_is_an_empty_matrix() -> None:
    assert reference.kernel("chi2", np.zeros((0, 3)), np.ones((2, 3))).shape == (0, 2)


@pytest.mark.parametrize("name", KERNELS)
def test_prepare_refuses_what_is_outside_the_domain(name: str) -> None:
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or inf"):
            reference.prepare(name, [[1.0, value]])
    if name not in ("cosine", "rbf"):
        with pytest.raises(ValueError, match="negative value"):
            reference.prepare(name, [[1.0, -1.0]])
    if name != "rbf":
        with pytest.raises(ValueError, match="all-zero row"):
            reference.prepare(name, [[1.0, 1.0], [0.0, 0.0]])


# Without rounding

weights = st.lists(st.integers(0, 255), min_size=5, max_size=5).filter(any)


@pytest.mark.parametrize("name", ["chi2", "intersection"])
@given(x=weights, y=weights)
def test_floats_agree_with_fractions(name: str, x: list[int], y: list[int]) -> None:
    A, B = reference.prepare(name, [x]), reference.prepare(name, [y])
    rounded = reference.kernel(name, A, B)[0, 0]
    of_floats = reference.exact_additive(name, A[0].tolist(), B[0].tolist())
    of_integers = reference.exact_additive(name, reference.exact_l1(x), reference.exact_l1(y))
    assert rounded == pytest.approx(float(of_floats), abs=1e-15)
    assert rounded == pytest.approx(float(of_integers), abs=1e-14)


def test_fractions_by_hand() -> None:
    x, y = reference.exact_l1([1, 2]), reference.exact_l1([2, 1])
    assert x == [Fraction(1, 3), Fraction(2, 3)]
    assert reference.exact_additive("chi2", x, y) == Fraction(8, 9)
    assert reference.exact_additive("intersection", x, y) == Fraction(2, 3)
    assert reference.exact_additive("chi2", [0.1], [0.1]) == Fraction(0.1) != Fraction(1, 10)
    assert reference.exact_additive("chi2", [0.0, 1.0], [0.0, 1.0]) == 1


# Pursuit


def residual(start: Floats, gram: Floats, atoms: NDArray[np.int64], w: Floats) -> float:
    return float(1 - 2 * w @ start[atoms] + w @ gram[np.ix_(atoms, atoms)] @ w)


@loop_over("seed", range(5))
def test_pursuit_lowers_the_residual_and_leaves_it_orthogonal(seed: int) -> None:
    gram, start = dictionary(30, seed)
    left = [residual(start, gram, *reference.omp(start, gram, alpha)) for alpha in range(1, 13)]
    assert all(later < earlier for earlier, later in zip([1.0, *left], left, strict=False))
    atoms, w = reference.omp(start, gram, 12)
    assert len(set(atoms.tolist())) == 12
    np.testing.assert_allclose((start - gram[:, atoms] @ w)[atoms], 0, atol=1e-12)


@loop_over("seed", range(20))
def test_pursuit_agrees_with_scikit_learn(seed: int) -> None:
    gram, start = dictionary(40, seed)
    theirs = orthogonal_mp_gram(gram, start, n_nonzero_coefs=8)
    atoms, w = reference.omp(start, gram, 8)
    assert sorted(atoms.tolist()) == np.flatnonzero(theirs).tolist()
    np.testing.assert_allclose(w, theirs[atoms], rtol=1e-10)


def test_pursuit_stops_at_the_tolerance_and_fills_up_with_atom_0() -> None:
    gram = np.eye(4)
    atoms, w = reference.omp([0, 0.6, 0, 0.8], gram, 4)
    assert atoms.tolist() == [3, 1, 0, 0]
    assert w.tolist() == [0.8, 0.6, 0, 0]
    atoms, w = reference.omp([0, 0.6, 0, 0.8], gram, 4, tolerance=0.37)
    assert atoms.tolist() == [3, 0, 0, 0]
    atoms, w = reference.omp([0, 1.2, 0, 1.6], gram, 4, tolerance=0.37, self_score=4.0)
    assert atoms.tolist() == [3, 0, 0, 0]


def test_pursuit_breaks_ties_to_the_lower_atom_whatever_the_sign() -> None:
    atoms, w = reference.omp([0, -0.5, 0.5], np.eye(3), 1)
    assert (atoms.tolist(), w.tolist()) == ([1], [-0.5])


def test_pursuit_of_a_row_that_no_atom_resembles_is_empty() -> None:
    atoms, w = reference.omp(np.zeros(3), np.eye(3), 2)
    assert (atoms.tolist(), w.tolist()) == ([0, 0], [0, 0])


def test_pursuit_survives_an_atom_that_stands_twice_and_more_slots_than_atoms() -> None:
    gram = np.array([[1.0, 1.0, 0.2], [1.0, 1.0, 0.2], [0.2, 0.2, 1.0]])
    atoms, w = reference.omp([0.7, 0.7, 0.5], gram, 5)
    assert atoms.tolist() == [0, 2, 0, 0, 0]
    np.testing.assert_allclose(gram[np.ix_([0, 2], [0, 2])] @ w[:2], [0.7, 0.5])
    assert w[2:].tolist() == [0, 0, 0]


# Scores and order


def test_aska_scores_by_hand() -> None:
    table = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    scores = reference.aska_scores(
        [[0, 2], [1, 0], [2, 2]], [[0.5, 1.0], [-1.0, 0.0], [0.5, 0.5]], table
    )
    np.testing.assert_allclose(scores, [[3.5, -2.0, 3.0], [35.0, -20.0, 30.0]])


def test_top_k_breaks_ties_to_the_lower_id() -> None:
    scores, ids = reference.top_k([[0.1, 0.5, 0.5, 0.9], [0.0, -0.0, -1.0, 0.0]], 3)
    assert ids.tolist() == [[3, 1, 2], [0, 1, 3]]
    assert scores.tolist() == [[0.9, 0.5, 0.5], [0, 0, 0]]


def test_top_k_of_more_than_there_are_is_all() -> None:
    scores, ids = reference.top_k([[0.1, 0.5]], 5)
    assert (scores.tolist(), ids.tolist()) == ([[0.5, 0.1]], [[1, 0]])


# Recall


def test_recalls_by_hand() -> None:
    returned = np.array([[7, 3, 9], [-1, 2, 2]])
    true = np.array([[9, 7, 5], [-1, 2, 2]])
    assert reference.k_recall(returned, true, 3) == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert reference.texmex_recall(returned, true, 3) == 0.5
    assert reference.aska_recall(returned, true, 1) == 0
    assert reference.aska_recall(returned, true, 2) == 0.5
    scores = np.array([[0.9, 0.2, 0.8], [0.9, 0.9, 0.9]])
    true_scores = np.array([[0.9, 0.8, 0.8], [0.9, 0.9, 0.9]])
    assert reference.tie_aware_recall(returned, scores, true, true_scores, 3) == pytest.approx(
        (2 / 3 + 1 / 3) / 2
    )

"""Both pursuits against their slow twins: the same atoms wherever float32 can tell them apart, as
small a residual."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.pipeline.encoders import pursuit_numba
from mercore.testing.cases import loop_over
from mercore.testing.rows import steady
from tests.independent import reference

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ids = NDArray[np.int64]
TILE = int(pursuit_numba.TILE)
ROUNDING = 2e-6  # of float32 correlations and distances, times 1 + Σ|w|
APART = 2 * float(pursuit_numba.APART)
REFERENCE: dict[str, Callable[..., tuple[Ids, Floats]]] = {
    "omp": reference.omp,
    "ormp": reference.ormp,
}
seeds = st.integers(0, 2**32 - 1)
both = pytest.mark.parametrize("pursuit", REFERENCE)


def dictionary(m: int, rows: int, seed: int, d: int = 24) -> tuple[Singles, Singles]:
    """K(D, D) and K(y, D) of χ² on random histograms, float32[m, m] and float32[rows, m]."""
    rng = np.random.default_rng(seed)
    prepared = reference.prepare("chi2", rng.gamma(0.3, size=(m + rows, d)) + 1e-6)
    atoms, others = prepared[:m], prepared[m:]
    gram, start = reference.kernel("chi2", atoms, atoms), reference.kernel("chi2", others, atoms)
    return gram.astype(np.float32), start.astype(np.float32)


def whole_tiles(values: Singles) -> Singles:
    return np.pad(values, ((0, 0), (0, -values.shape[1] % TILE)))


def pursue(
    pursuit: str, start: Singles, gram: Singles, alpha: int, tolerance: float = 1e-6
) -> tuple[Ids, Floats]:
    atoms, weights = (
        np.full((len(start), alpha), -9, np.int64),
        np.full((len(start), alpha), np.nan),
    )
    pursuit_numba.pursue(
        whole_tiles(start), whole_tiles(gram), pursuit == "ormp", tolerance, atoms, weights
    )
    return atoms, weights


def merits(pursuit: str, start: Floats, gram: Floats, support: list[int]) -> tuple[Floats, Floats]:
    """What a pursuit takes the greatest of, −1 for atoms that it may not take; and how far float32
    may round it."""
    w = np.linalg.solve(gram[np.ix_(support, support)], start[support]) if support else np.zeros(0)
    strength = np.abs(start - gram[:, support] @ w)
    rounding = ROUNDING * (1 + np.abs(w).sum())
    if pursuit == "omp":
        strength[support] = -1
        return strength, np.full(len(start), rounding)
    cross = gram[support]
    near = (
        (cross * np.linalg.solve(gram[np.ix_(support, support)], cross)).sum(axis=0)
        if support
        else 0.0
    )
    apart = np.maximum(np.diag(gram) - near, 1e-12)
    gains = np.where(apart > APART, strength**2 / apart, -1)
    gains[support] = -1
    return gains, 2 * strength * rounding / apart + strength**2 * rounding / apart**2


def check_greedy(pursuit: str, start: Floats, gram: Floats, atoms: Ids, weights: Floats) -> None:
    """Each atom is the best one up to float32's rounding, and the weights solve the normal
    equations."""
    count = int(np.flatnonzero(weights).max(initial=-1)) + 1
    assert count > 0
    assert len(set(atoms[:count].tolist())) == count
    for at in range(count):
        merit, rounding = merits(pursuit, start, gram, atoms[:at].tolist())
        open_to_choice = merit >= 0
        chosen = np.abs(merit[atoms[at]]) + rounding[atoms[at]]
        assert chosen >= (merit - rounding)[open_to_choice].max(initial=0)
    support = atoms[:count]
    np.testing.assert_allclose(
        weights[:count],
        np.linalg.solve(gram[np.ix_(support, support)], start[support]),
        rtol=0,
        atol=1e-7,
    )
    assert not atoms[count:].any()
    assert not weights[count:].any()


def has_clear_choices(pursuit: str, start: Floats, gram: Floats, support: list[int]) -> bool:
    """Whether float32 must choose as float64 does: at every step the best atom leads by far more
    than rounding."""
    for at in range(len(support)):
        merit, rounding = merits(pursuit, start, gram, support[:at])
        second, first = np.argsort(merit)[-2:]
        if merit[first] - merit[second] < 5 * (rounding[first] + rounding[second]):
            return False
    return True


@both
@loop_over(
    ("m", "alpha", "rows"),
    [
        (2, 2, 4),
        (5, 3, 3),
        (37, 8, 2),
        (61, 1, 1),
        (61, 13, 5),
        (64, 8, 4),
        (67, 32, 4),
        (128, 9, 3),
        (1030, 5, 4),
    ],
)
def test_a_pursuit_agrees_with_its_slow_twin(pursuit: str, m: int, alpha: int, rows: int) -> None:
    gram, start = dictionary(m, rows=rows, seed=m, d=24 if alpha < 32 else 60)
    atoms, weights = pursue(pursuit, start, gram, alpha)
    clear = 0
    for c0, found, w in zip(start, atoms, weights, strict=True):
        check_greedy(pursuit, c0.astype(float), gram.astype(float), found, w)
        true, true_w = REFERENCE[pursuit](c0, gram, alpha)
        if has_clear_choices(
            pursuit, c0.astype(float), gram.astype(float), true[true_w != 0].tolist()
        ):
            clear += 1
            np.testing.assert_array_equal(found, true)
            np.testing.assert_allclose(w, true_w, rtol=0, atol=1e-7)
            assert (
                reference.residual(c0, gram, found, w)
                <= reference.residual(c0, gram, true, true_w) + 1e-6
            )
    assert clear >= rows // 2


@both
@given(m=st.integers(1, 80), alpha=st.integers(1, 9), seed=seeds)
@steady(40)
def test_a_pursuit_is_greedy_and_lowers_the_residual_with_every_atom(
    pursuit: str, m: int, alpha: int, seed: int
) -> None:
    gram, start = dictionary(m, rows=1, seed=seed, d=12)
    alpha = min(alpha, m)
    left = []
    for count in range(1, alpha + 1):
        atoms, weights = pursue(pursuit, start, gram, count)
        check_greedy(pursuit, start[0].astype(float), gram.astype(float), atoms[0], weights[0])
        left.append(reference.residual(start[0], gram, atoms[0], weights[0]))
    assert all(later <= earlier + 1e-6 for earlier, later in pairwise([1.0, *left]))


@given(m=st.integers(20, 80), seed=seeds)
@steady(25)
def test_order_recursion_leaves_less_after_two_atoms_that_begin_alike(m: int, seed: int) -> None:
    gram, start = dictionary(m, rows=6, seed=seed)
    omp, ormp = (pursue(pursuit, start, gram, 2) for pursuit in REFERENCE)
    np.testing.assert_array_equal(omp[0][:, 0], ormp[0][:, 0])
    for c0, *codes in zip(start, *omp, *ormp, strict=True):
        assert (
            reference.residual(c0, gram, *codes[2:])
            <= reference.residual(c0, gram, *codes[:2]) + 1e-6
        )


@both
def test_a_row_that_is_an_atom_takes_that_atom_alone_the_lower_of_twins(pursuit: str) -> None:
    gram, _ = dictionary(20, rows=1, seed=1)
    twins = np.tile(
        [3, 1, 4, 1, 5, 9, 2, 6, 5, 3], 9
    )  # atoms that stand more than once, also in other tiles
    gram = np.ascontiguousarray(gram[np.ix_(twins, twins)])
    atoms, weights = pursue(pursuit, gram, gram, 4)
    firsts = [int(np.flatnonzero(twins == atom)[0]) for atom in twins]
    np.testing.assert_array_equal(atoms, [[first, 0, 0, 0] for first in firsts])
    np.testing.assert_allclose(weights, [[1, 0, 0, 0]] * 90, rtol=0, atol=1e-6)


@both
@pytest.mark.parametrize("copies", [3, 40])
def test_a_pursuit_survives_atoms_that_depend_on_each_other(pursuit: str, copies: int) -> None:
    gram, start = dictionary(6, rows=5, seed=2, d=3)
    twice = np.tile(np.arange(6), copies)
    gram = np.ascontiguousarray(gram[np.ix_(twice, twice)])
    start = np.ascontiguousarray(start[:, twice])
    atoms, weights = pursue(pursuit, start, gram, 17)
    assert np.isfinite(weights).all()
    for c0, found, w in zip(start, atoms, weights, strict=True):
        check_greedy(pursuit, c0.astype(float), gram.astype(float), found, w)
        assert 1 <= (w != 0).sum() <= 6
        assert (found < 6).all()  # the first of each set of equals


@both
def test_a_pursuit_of_more_atoms_than_the_rank_of_the_dictionary_ends(pursuit: str) -> None:
    """Products of rows of three dimensions: rank 3, whatever the atoms."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(150, 3))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    gram = (unit[:140] @ unit[:140].T).astype(np.float32)
    start = (unit[140:] @ unit[:140].T).astype(np.float32)
    atoms, weights = pursue(pursuit, start, gram, 12)
    assert np.isfinite(weights).all()
    assert ((weights != 0).sum(axis=1) <= 4).all()
    for c0, found, w in zip(start, atoms, weights, strict=True):
        assert reference.residual(c0, gram, found, w) <= 2e-3


@both
@loop_over("b", [0, 1, 2, 3, 5])
def test_a_row_has_the_same_code_whatever_rows_it_is_pursued_with(pursuit: str, b: int) -> None:
    gram, start = dictionary(70, rows=5, seed=3)
    start[3] = gram[17]  # ends early
    atoms, weights = pursue(pursuit, start[:b], gram, 6)
    assert atoms.shape == weights.shape == (b, 6)
    for row in range(b):
        alone_atoms, alone_weights = pursue(pursuit, start[row : row + 1], gram, 6)
        np.testing.assert_array_equal(atoms[row], alone_atoms[0])
        np.testing.assert_array_equal(weights[row], alone_weights[0])


@both
def test_a_row_that_no_atom_resembles_has_no_code(pursuit: str) -> None:
    gram, start = dictionary(9, rows=3, seed=3)
    start[1] = 0
    atoms, weights = pursue(pursuit, start, gram, 5)
    assert (atoms[1].tolist(), weights[1].tolist()) == ([0] * 5, [0] * 5)
    assert weights[[0, 2]].any(axis=1).all()


@both
@loop_over("value", [1.0, -0.25, 0.0])
def test_a_dictionary_of_one_atom(pursuit: str, value: float) -> None:
    atoms, weights = pursue(
        pursuit, np.array([[value]], np.float32), np.ones((1, 1), np.float32), 1
    )
    assert (atoms.tolist(), weights.tolist()) == ([[0]], [[value]])


@both
def test_a_pursuit_stops_at_the_tolerance(pursuit: str) -> None:
    start = np.array([[0, 0.6, 0, 0.8]], np.float32)
    for tolerance, expected in ((0.37, [3, 0, 0]), (0.35, [3, 1, 0]), (1e-6, [3, 1, 0])):
        assert pursue(pursuit, start, np.eye(4, dtype=np.float32), 3, tolerance)[0].tolist() == [
            expected
        ]


@both
@given(
    values=st.lists(
        st.sampled_from([-3.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0]), min_size=1, max_size=3 * TILE
    ),
    place=st.integers(0, 3 * TILE),
)
@steady(60)
def test_the_atom_is_the_first_of_equal_magnitudes(
    pursuit: str, values: list[float], place: int
) -> None:
    c = np.zeros((1, max(len(values), place + 1)), np.float32)
    c[0, : len(values)] = values
    c[0, place] = -3
    gram = np.eye(c.shape[1], dtype=np.float32)
    atoms, weights = pursue(pursuit, c, gram, 1)
    assert atoms[0, 0] == np.argmax(np.abs(c[0]))
    assert weights[0, 0] == c[0, atoms[0, 0]]


@pytest.mark.parametrize("m", [pursuit_numba.CACHE // 64 + 3])
@both
def test_rows_pursued_one_by_one_for_want_of_cache_have_the_same_codes(
    pursuit: str, m: int
) -> None:
    alpha, rank = 40, 48
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(m + 3, rank))
    factors /= np.linalg.norm(factors, axis=1, keepdims=True)
    gram, start = np.zeros((m, m), np.float32), (factors[m:] @ factors[:m].T).astype(np.float32)
    gram[:] = factors[:m] @ factors[:m].T
    atoms, weights = pursue(pursuit, start, gram, alpha)
    few_atoms, few_weights = pursue(pursuit, start, gram, 5)
    np.testing.assert_array_equal(atoms[:, :5], few_atoms)
    for c0, found, w in zip(start, few_atoms, few_weights, strict=True):
        check_greedy(pursuit, c0.astype(float), gram.astype(float), found, w)
    left = [
        reference.residual(c0, gram, a, w) for c0, a, w in zip(start, atoms, weights, strict=True)
    ]
    assert max(left) < 0.05

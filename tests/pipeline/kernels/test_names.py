"""Names of kernels: capitals, hyphens, aliases, and the nearest name of a wrong one."""

import numpy as np
import pytest

from mercore.pipeline.kernels import KERNELS, aliases, canonical_name, make_kernel
from mercore.stores.errors import InputError
from mercore.testing.cases import loop_over


@loop_over(
    ("said", "name"),
    [
        ("Chi2", "chi2"),
        ("chi_square", "chi2"),
        ("additive-chi2", "chi2"),
        ("HIK", "intersection"),
        ("histogram intersection", "intersection"),
        ("jensen-shannon", "jensen_shannon"),
        ("JS", "jensen_shannon"),
        ("Gaussian", "rbf"),
        ("L2", "euclidean"),
        ("IP", "inner_product"),
        ("dot", "inner_product"),
        ("Bhattacharyya", "hellinger"),
        ("exp-chi2", "exp_chi2"),
    ],
)
def test_a_name_is_folded_and_an_alias_is_the_kernel_that_ranks_alike(said: str, name: str) -> None:
    assert canonical_name(said) == name
    gamma = 1.0 if name == "rbf" else None
    assert make_kernel(said, gamma=gamma).spec()["name"] == name


@loop_over(("said", "nearest"), [("euclid", "euclidean"), ("intersect", "intersection")])
def test_the_nearest_name_is_suggested(said: str, nearest: str) -> None:
    with pytest.raises(InputError, match=f'Fix: kernel="{nearest}"$'):
        canonical_name(said)


def test_no_alias_is_a_kernel() -> None:
    assert not set(aliases()) & set(KERNELS)


def test_additive_chi2_of_scikit_learn_ranks_rows_of_sum_one_as_chi2_does() -> None:
    rows = np.random.default_rng(0).gamma(0.5, size=(30, 8)) + 1e-3
    rows /= rows.sum(axis=1, keepdims=True)
    theirs = -((rows[0] - rows) ** 2 / (rows[0] + rows)).sum(axis=1)
    ours = make_kernel("additive_chi2").exact(rows[:1], np.ascontiguousarray(rows.T))[0]
    np.testing.assert_allclose(2 * ours - 2, theirs, atol=1e-12)

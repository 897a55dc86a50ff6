"""The choice of a bound: the same every time, the family that suits the kernel, costs and shares as
they are said."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import (
    KpcaBound,
    KpcaBoundSpec,
    Projected,
    landmark_scores,
)
from mercore.pipeline.encoders.equal_cost import code_bytes
from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.search.choices.bound import (
    COMPONENTS,
    GROUPS,
    Measured,
    choose_bound,
    usual_search,
)
from mercore.pipeline.search.costs import READ_BYTE, every_row
from mercore.stores.rows import SourceVectors
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows, histograms

N, D = 800, 40


def chosen(name: str, rows: NDArray[Any], **options: Any) -> list[Measured]:
    return choose_bound(
        SourceVectors(Rows(rows)), make_kernel(name, gamma=options.pop("gamma", None)), **options
    )


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    return histograms(N, D, seed=1)


def sizes(measured: list[Measured], kind: type) -> list[int]:
    return sorted(
        vars(one.spec)["n_" + ("groups" if kind is BinBoundSpec else "components")]
        for one in measured
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("intersection", BinBoundSpec),
        ("cosine", KpcaBoundSpec),
        ("exp_chi2", None),
        ("rbf", KpcaBoundSpec),
    ],
)
def test_the_cheapest_is_first_and_all_that_serve_are_measured(
    name: str, kind: Any, rows: NDArray[Any]
) -> None:
    measured = chosen(name, rows, gamma=0.05 if name == "rbf" else None)
    costs = [one.cost for one in measured]
    assert costs == sorted(costs)
    assert kind is None or type(measured[0].spec) is kind
    kpca, bins = (
        [one for one in measured if type(one.spec) is each]
        for each in (KpcaBoundSpec, BinBoundSpec)
    )
    assert sizes(kpca, KpcaBoundSpec) == list(COMPONENTS)
    assert sizes(bins, BinBoundSpec) == (
        [*(size for size in GROUPS if size < D), D] if name not in ("cosine", "rbf") else []
    )
    for one in measured:
        assert one.bytes == code_bytes(one.spec)
        assert 0 < one.share <= 1
        assert one.cost > one.share


def test_the_choice_is_the_same_every_time_and_is_that_of_its_seed(rows: NDArray[Any]) -> None:
    first = chosen("intersection", rows)
    assert chosen("intersection", rows) == first
    others = chosen("intersection", rows, random_state=5)
    assert {vars(one.spec)["random_state"] for one in others} == {5}
    assert [one.share for one in others] != [one.share for one in first]


def test_a_larger_bound_of_a_family_leaves_no_more(rows: NDArray[Any]) -> None:
    for kind in (KpcaBoundSpec, BinBoundSpec):
        family = [one for one in chosen("hellinger", rows) if type(one.spec) is kind]
        shares = [one.share for one in sorted(family, key=lambda one: one.bytes)]
        assert all(fewer <= 1.1 * more for more, fewer in pairwise(shares))


def test_what_many_neighbours_leave_is_more(rows: NDArray[Any]) -> None:
    few, many = ({one.spec: one.share for one in chosen("chi2", rows, k=k)} for k in (1, 100))
    assert all(many[spec] >= share for spec, share in few.items())


def test_bounds_that_rule_nothing_out_leave_every_row() -> None:
    measured = chosen("rbf", histograms(400, 16, seed=2), gamma=1e4)
    assert all(one.share > 0.5 for one in measured)


@loop_over("n", [1, 2, 3, 9, 70])
@pytest.mark.parametrize("name", ["intersection", "chi2", "cosine"])
@loop_over("d", [1, 17])
def test_of_few_rows_and_bins(n: int, name: str, d: int) -> None:
    measured = chosen(name, histograms(n, d, seed=3))
    assert all(np.isfinite([one.share, one.cost]).all() for one in measured)
    for one in measured:
        one.spec.check(SourceVectors(Rows(histograms(n, d, seed=3))), make_kernel(name))


@pytest.mark.parametrize("name", ["chi2", "cosine", "exp_chi2"])
def test_a_sample_as_landmark_values_is_encoded_and_asked_as_its_rows_are(
    name: str, rows: NDArray[Any]
) -> None:
    kernel = make_kernel(name, gamma=0.5 if name == "exp_chi2" else None)
    spec = KpcaBoundSpec(n_landmarks=60, n_components=20)
    model = spec.fit(SourceVectors(Rows(rows)), kernel)
    encoder, bound = spec.encoder(kernel, model), Projected(model)
    assert isinstance(encoder, KpcaBound)
    values = landmark_scores(kernel.ranking, kernel.prepare(rows), model["landmarks"])
    assert values.shape == (len(rows), 60)
    codes, others = encoder.encode(rows), bound.encode(values)
    for column, found in others.items():
        np.testing.assert_array_equal(found, codes[column], strict=True)
    asked, numbers = encoder.bound_scanner(rows[:5]), codes["terms"].astype(np.float32)
    found = bound.bound_scanner(values[:5]).bounds(codes["coordinates"], numbers)
    np.testing.assert_array_equal(found, asked.bounds(codes["coordinates"], numbers))


def test_every_row_of_bytes_costs_less_than_floats_and_no_less_than_reading() -> None:
    rows = np.ones((8, 128), np.uint8)
    for name in ("euclidean", "inner_product", "cosine", "chi2"):
        as_bytes, as_floats = (
            usual_search(SourceVectors(Rows(rows.astype(dtype))), make_kernel(name))
            for dtype in (np.uint8, np.float32)
        )
        assert as_bytes.as_bytes == (name != "chi2")
        assert not as_floats.as_bytes
        if as_bytes.as_bytes:
            for queries in (1, 100, 2000):
                costs = [
                    every_row(each._replace(queries=queries)) for each in (as_bytes, as_floats)
                ]
                assert READ_BYTE * 128 / queries < costs[0] < costs[1] / 2

"""The Bound contract: what a code scores is a float32, finite, and not below the real kernel of its
row and query. Only rows whose squares exceed float32 may have the bound ∞."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mercore.jobs.custom_kernel import load_custom
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.cells import OUTSIDE
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.encoders.bounds.pca_bound import PcaBoundSpec
from mercore.pipeline.encoders.encoder import BoundEncoder
from mercore.pipeline.encoders.kpca_pq import KpcaPqSpec
from mercore.pipeline.encoders.map_pq import MapPqSpec
from mercore.pipeline.encoders.pca_pq import PcaPqSpec
from mercore.pipeline.encoders.pq import PqSpec
from mercore.pipeline.kernels import UNIT_KERNELS, Kernel, make_kernel
from mercore.pipeline.scanners.bounds.byte_bounds import BoundScanner
from mercore.pipeline.scanners.bounds.grid import PqBoundScanner
from mercore.stores.rows import SourceVectors
from mercore.testing.bounds import bounds_of, check_bounds
from mercore.testing.cases import loop_over
from mercore.testing.rows import STYLES, kernel_blocks, kernel_rows, one_ulp_apart, steady
from mercore.testing.stores import Rows, histograms
from tests.support.adversarial import MAKERS, adversary
from tests.support.custom_kernels import LAPLACE, write
from tests.support.tiers import first_of, slow_unless

Block = NDArray[Any]
DIMS = (1, 2, 3, 5, 31, 64, 129, 300)
GAMMAS = {"exp_chi2": 3.0, "rbf": 0.7}
RAW = ("euclidean", "inner_product")
SIGNED = ("cosine", "rbf", *RAW)


class Bound(NamedTuple):
    """A kernel and the spec of a bound of it, ``size`` numbers a row, for a store of n rows of d
    dimensions."""

    kernel: Kernel
    spec: Callable[[int, int, int], EncoderSpec]

    @property
    def signed(self) -> bool:
        return self.kernel.name in (*SIGNED, "own")

    def encoder(self, rows: Block, size: int) -> BoundEncoder:
        spec, vectors = self.spec(size, *rows.shape), SourceVectors(Rows(rows))
        assert spec.proves
        spec.check(vectors, self.kernel)
        encoder = spec.encoder(self.kernel, spec.fit(vectors, self.kernel))
        assert isinstance(encoder, BoundEncoder)
        return encoder


def components(size: int, n: int, d: int) -> EncoderSpec:
    landmarks = min(n, 4 * size)
    return KpcaBoundSpec(n_landmarks=landmarks, n_components=min(size, landmarks))


def groups(size: int, n: int, d: int) -> EncoderSpec:
    return BinBoundSpec(n_groups=min(size, d))


def principal(size: int, n: int, d: int) -> EncoderSpec:
    return PcaBoundSpec(n_components=size)


def quantised_components(size: int, n: int, d: int) -> EncoderSpec:
    landmarks = min(n, 4 * size)
    count = min(size, landmarks)
    return KpcaPqSpec(
        n_landmarks=landmarks, n_components=count, n_subquantizers=count // (2 - count % 2)
    )


def mapped_axes(size: int, n: int, d: int) -> EncoderSpec:
    return MapPqSpec(n_components=size, n_subquantizers=size // (2 - size % 2), n_harmonics=2)


def quantised(metric: str) -> Callable[[int, int, int], EncoderSpec]:
    def spec(size: int, n: int, d: int) -> EncoderSpec:
        count = max(count for count in range(1, min(size, d) + 1) if d % count == 0)
        return PqSpec(n_subquantizers=count, metric=metric)

    return spec


def quantised_axes(metric: str) -> Callable[[int, int, int], EncoderSpec]:
    def spec(size: int, n: int, d: int) -> EncoderSpec:
        count = min(size, d)
        subquantizers = count // (2 - count % 2)
        return PcaPqSpec(n_components=count, n_subquantizers=subquantizers, metric=metric)

    return spec


MADE = {name: make_kernel(name, gamma=GAMMAS.get(name)) for name in UNIT_KERNELS}
CASES = [
    pytest.param(Bound(kernel, components), id=f"kpca-bound-{name}")
    for name, kernel in MADE.items()
]
CASES += [
    pytest.param(Bound(kernel, groups), id=f"bin-bound-{name}")
    for name, kernel in MADE.items()
    if kernel.ranking.term_bound
]
CASES += [pytest.param(Bound(make_kernel(name), principal), id=f"pca-bound-{name}") for name in RAW]
CASES += [
    pytest.param(Bound(kernel, quantised_components), id=f"kpca-pq-{name}")
    for name, kernel in (
        MADE | {"nested": make_kernel("exp_chi2", gamma=0.4, transform=0.7)}
    ).items()
]
CASES += [
    pytest.param(Bound(kernel, mapped_axes), id=f"map-pq-{name}")
    for name, kernel in MADE.items()
    if kernel.ranking.term_bound
]
CASES += [
    pytest.param(Bound(kernel, of_metric(metric)), id=f"{name}-{metric}-{kernel.name}")
    for name, of_metric in (("pq", quantised), ("pca-pq", quantised_axes))
    for kernel in (*MADE.values(), *map(make_kernel, RAW))
    for metric in kernel.raw_metrics
]


CASES = slow_unless(first_of(lambda case: case.id.rpartition("-")[0]), CASES)


@pytest.fixture(
    scope="module",
    params=[*CASES, pytest.param(None, id="kpca-bound-own", marks=pytest.mark.slow)],
)
def bound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bound:
    if request.param is not None:
        return Bound(*request.param)
    return Bound(
        load_custom(str(write(tmp_path_factory.mktemp("kernels"), LAPLACE, "laplace.py"))),
        components,
    )


class TestBounds:
    """What every bound of every kernel promises."""

    @given(data=st.data())
    @steady(25)
    @pytest.mark.promise("Bounds are never below the true score")
    def test_no_bound_is_below_the_score(self, bound: Bound, data: st.DataObject) -> None:
        rows, queries = data.draw(kernel_blocks(signed=bound.signed))
        encoder = bound.encoder(rows, data.draw(st.sampled_from((1, 2, 4, 64))))
        check_bounds(bound.kernel, encoder, rows, np.concatenate([queries, rows]))

    @loop_over("d", DIMS)
    @loop_over("style", ["dense", "sparse"])
    @pytest.mark.promise("Bounds are never below the true score")
    def test_of_any_length_and_of_rows_an_ulp_apart(self, bound: Bound, d: int, style: str) -> None:
        rows = kernel_rows(style, "float32", (60, d), signed=bound.signed, seed=d)
        queries = np.concatenate([rows[:3], one_ulp_apart(rows[:20], 1)])
        check_bounds(bound.kernel, bound.encoder(rows, 24), rows, queries)

    @loop_over("name", MAKERS)
    @pytest.mark.promise("Bounds are never below the true score")
    def test_of_rows_that_mislead(self, bound: Bound, name: str) -> None:
        found = adversary(name, 120, 6, seed=3)
        queries = np.concatenate([found.queries, found.rows[:3]])
        for size in (3, 24):
            check_bounds(bound.kernel, bound.encoder(found.rows, size), found.rows, queries)

    @loop_over("style", STYLES)
    def test_of_rows_that_no_model_was_learned_from(self, bound: Bound, style: str) -> None:
        learned = adversary("clustered", 100, 1).rows
        d = learned.shape[1]
        rows = kernel_rows(style, "float32", (40, d), signed=bound.signed, seed=4)
        queries = kernel_rows("sparse", "float32", (5, d), signed=bound.signed, seed=5)
        check_bounds(
            bound.kernel, bound.encoder(learned, 16), rows, np.concatenate([rows[:4], queries])
        )
        few = np.repeat(learned[:1], 50, axis=0)
        check_bounds(
            bound.kernel, bound.encoder(few, 16), rows, np.concatenate([rows[:4], queries])
        )

    @loop_over("size", [1, 2, 3, 5, 8, 13, 16])
    def test_of_every_size(self, bound: Bound, size: int) -> None:
        rows, queries = histograms(60, 16, seed=6), histograms(6, 16, seed=7)
        check_bounds(
            bound.kernel, bound.encoder(rows, size), rows, np.concatenate([queries, rows[:2]])
        )

    def test_more_numbers_than_there_are_distinct_rows(self, bound: Bound) -> None:
        rows = np.tile(histograms(5, 24, seed=8), (30, 1))
        queries = np.concatenate([histograms(4, 24, seed=9), rows[:5]])
        check_bounds(bound.kernel, bound.encoder(rows, 150), rows, queries)

    def test_a_bound_is_its_rows_and_querys_own(self, bound: Bound) -> None:
        rows, queries = histograms(50, 16, seed=10), histograms(9, 16, seed=11)
        encoder = bound.encoder(rows, 8)
        whole = bounds_of(encoder, rows, queries)
        for query in range(9):
            alone = bounds_of(encoder, rows[::-1][:7], queries[query : query + 1])
            np.testing.assert_array_equal(alone[0], whole[query, ::-1][:7])


@pytest.mark.parametrize("name", ["euclidean", "inner_product", "rbf"])
def test_of_rows_beyond_those_that_a_model_of_axes_bounds(name: str) -> None:
    """Rows 2¹⁴ times as large as the sample, in its span and near each other: the rounding of their
    R is more than what is between them. R of the last rows is no float32."""
    rng = np.random.default_rng(22)
    basis = rng.integers(-9, 10, (4, 16))
    basis[:, -1] = 0
    learned = (rng.integers(-9, 10, (300, 4)) @ basis).astype(np.float32)
    large = np.repeat(np.ldexp(learned[:20], 14), 6, axis=0)
    large[:, -1] = rng.normal(size=len(large))
    kernel = make_kernel(name, gamma=1e-3) if name == "rbf" else make_kernel(name)
    encoder = Bound(kernel, quantised_axes(kernel.raw_metrics[0])).encoder(learned, 4)
    queries = np.concatenate([large, learned[:5]])
    check_bounds(kernel, encoder, large, queries)
    if name != "euclidean":
        return
    huge = np.full((3, 16), 3e38, np.float32)
    scanner = encoder.bound_scanner(np.concatenate([huge, queries]))
    assert isinstance(scanner, PqBoundScanner)
    pairs, _ = scanner.collect(
        encoder.encode(huge), 0, np.zeros(len(queries) + 3, np.float32), never
    )
    assert np.bincount(pairs.rows).tolist() == [len(queries) + 3] * 3


EXCESS = {  # what was measured: bounds less scores, on average
    "kpca-bound": {
        "chi2": 0.466,
        "intersection": 0.611,
        "hellinger": 0.321,
        "jensen_shannon": 0.405,
        "exp_chi2": 0.466,
        "cosine": 0.536,
        "rbf": 0.168,
    },
    "kpca-pq": {
        "chi2": 0.477,
        "intersection": 0.619,
        "hellinger": 0.330,
        "jensen_shannon": 0.416,
        "exp_chi2": 0.615,
        "cosine": 0.552,
        "rbf": 0.172,
        "transformed": 0.554,
    },
    "map-pq": {
        "chi2": 0.451,
        "intersection": 0.592,
        "hellinger": 0.311,
        "jensen_shannon": 0.392,
        "exp_chi2": 0.451,
    },
    "pq": {
        "hellinger": 0.082,
        "cosine": 0.089,
        "rbf": 0.023,
        "euclidean": 0.113,
        "inner_product": 0.395,
    },
    "pca-pq": {
        "hellinger": 0.311,
        "cosine": 0.518,
        "rbf": 0.144,
        "euclidean": 0.651,
        "inner_product": 2.336,
    },
    "pca-bound": {"euclidean": 0.623, "inner_product": 2.178},  # shares of the mean |score|
    "bin-bound": {
        "chi2": 0.435,
        "intersection": 0.256,
        "hellinger": 0.276,
        "jensen_shannon": 0.373,
        "exp_chi2": 0.435,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_bounds_are_of_use(case: Bound) -> None:
    rows = histograms(1200, 128, dtype="uint8", seed=12)
    bound = (
        case if case.kernel.name != "rbf" else case._replace(kernel=make_kernel("rbf", gamma=1e-6))
    )
    encoder = bound.encoder(rows, 32)
    excess = check_bounds(bound.kernel, encoder, rows[64:], rows[:64])
    if not bound.kernel.normalised:
        prepared = bound.kernel.prepare(rows)
        excess /= np.abs(bound.kernel.exact(prepared[:64], prepared[64:].T)).mean()
    assert excess < 1.1 * EXCESS[bound.spec(1, *rows.shape).name][bound.kernel.name]
    if bound.kernel.normalised:
        assert np.diagonal(bounds_of(encoder, rows[:64], rows[:64])).max() < 1.02


def test_pairs_that_reach_are_listed_and_a_query_of_too_many_is_given_up() -> None:
    rows, queries = histograms(3000, 16, seed=13), histograms(40, 16, seed=14)
    encoder = Bound(make_kernel("intersection"), groups).encoder(rows, 8)
    bounds, scanner, columns = (
        bounds_of(encoder, rows, queries),
        encoder.scanner(queries),
        encoder.encode(rows),
    )
    assert isinstance(scanner, BoundScanner)
    least = np.sort(bounds, axis=1)[:, -50].astype(np.float32)
    least[7] = -np.inf
    pairs, given_up = scanner.collect(
        columns, 1000, least, lambda pairs, rows: pairs > 100 + rows // 20
    )
    assert np.flatnonzero(given_up).tolist() == [7]
    kept = pairs.queries != 7
    found = sorted(
        zip(pairs.queries[kept].tolist(), (pairs.rows[kept] - 1000).tolist(), strict=True)
    )
    least[7] = np.inf
    assert found == [tuple(pair) for pair in np.argwhere(bounds >= least[:, None]).tolist()]
    np.testing.assert_array_equal(pairs.bounds, bounds[pairs.queries, pairs.rows - 1000])


@pytest.mark.parametrize(
    ("kernel", "spec", "beta"),
    [
        ("chi2", KpcaPqSpec(n_landmarks=120, n_components=32, n_subquantizers=16), 1.0),
        ("chi2", KpcaPqSpec(n_landmarks=120, n_components=32, n_subquantizers=16), 0.6),
        ("chi2", MapPqSpec(n_components=32, n_subquantizers=16), 1.0),
        ("euclidean", PqSpec(n_subquantizers=8), 1.0),
        ("inner_product", PqSpec(n_subquantizers=4, metric="product"), 1.0),
        ("euclidean", PcaPqSpec(n_components=12, n_subquantizers=6), 1.0),
        ("inner_product", PcaPqSpec(n_components=12, n_subquantizers=6, metric="product"), 1.0),
    ],
)
@pytest.mark.promise(
    "Codes of `kpca-pq`, `map-pq`, `pca-pq` and `pq` prove answers: no pair that reaches a threshold is left out"
)
def test_codes_list_all_pairs_that_reach(kernel: str, spec: Any, beta: float) -> None:
    """Steps of bytes, limits of cells and the tests of rows lose no pair: 70 queries are scanned in
    two groups, 40 003 rows in three blocks."""
    rows = np.concatenate([histograms(40_000, 16, seed=15), 40 * histograms(3, 16, seed=16)])
    queries = np.concatenate([rows[:10], histograms(60, 16, seed=17)])
    encoder = Bound(make_kernel(kernel), lambda *_: spec).encoder(rows[:3000], 1)
    encoder.prepare_encoding()
    scanner, columns = encoder.bound_scanner(queries, beta), encoder.encode(rows)
    assert isinstance(scanner, PqBoundScanner)
    bounds = scanner.bounds(columns).T
    assert (columns["cell"][-3:] == OUTSIDE).all() or kernel == "chi2"
    below = bounds - np.float32(2.5e-7) * np.maximum(np.abs(bounds), 1e-30)  # without rounding up
    ranks = np.arange(len(queries)) * 5 % 290 + 1
    least = np.take_along_axis(np.sort(bounds, axis=1), -ranks[:, None], axis=1)[:, 0]
    for thresholds in (least, np.nextafter(least, -np.inf), least - np.abs(least) / 100):
        pairs, given_up = scanner.collect(columns, 1000, thresholds.astype(np.float32), never)
        assert not given_up.any()
        found = set(zip(pairs.queries.tolist(), (pairs.rows - 1000).tolist(), strict=True))
        assert len(found) == len(pairs.rows)
        reaching = {tuple(pair) for pair in np.argwhere(below >= thresholds[:, None]).tolist()}
        assert reaching <= found
        assert len(found) < 1.05 * len(reaching) + 10
        np.testing.assert_array_equal(pairs.bounds, bounds[pairs.queries, pairs.rows - 1000])


def never(counts: NDArray[np.int64], _: int) -> NDArray[np.bool_]:
    return np.zeros(len(counts), np.bool_)


def test_codes_give_a_query_of_too_many_up() -> None:
    rows, queries = histograms(40_000, 16, seed=18), histograms(70, 16, seed=19)
    encoder = Bound(make_kernel("euclidean"), quantised("distance")).encoder(rows, 8)
    encoder.prepare_encoding()
    scanner, columns = encoder.bound_scanner(queries), encoder.encode(rows)
    assert isinstance(scanner, PqBoundScanner)
    bounds = scanner.bounds(columns).T
    least = np.sort(bounds, axis=1)[:, -50].astype(np.float32)
    least[[7, 66]] = -np.inf
    pairs, given_up = scanner.collect(
        columns, 0, least, lambda pairs, rows: pairs > 100 + rows // 20
    )
    assert np.flatnonzero(given_up).tolist() == [7, 66]
    assert 0 < np.bincount(pairs.queries)[7] < len(rows)
    kept = ~np.isin(pairs.queries, [7, 66])
    least[[7, 66]] = np.inf
    found = {*zip(pairs.queries[kept].tolist(), pairs.rows[kept].tolist(), strict=True)}
    below = bounds - np.float32(2.5e-7) * np.abs(bounds)  # without rounding up
    assert found >= {tuple(pair) for pair in np.argwhere(below >= least[:, None]).tolist()}

"""The estimator is one of scikit-learn's, and its neighbours are those of the reference."""

import pickle
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator

import mercore
from mercore import KernelNeighbors
from mercore.stores.errors import ExistsError, FormatError, InputError
from mercore.testing.stores import histograms
from tests.independent import reference
from tests.support.custom_kernels import returning, write

ROWS, QUERIES = histograms(300, 12, seed=1), histograms(20, 12, seed=2)
BOUNDS = ("kpca-bound:landmarks=64,components=16", "bin-bound:groups=8")
Values = NDArray[Any]


def truth(rows: Values, queries: Values, k: int) -> tuple[Values, Values]:
    """The distances and the ids of the nearest rows under chi2, by the reference."""
    scores = reference.kernel(
        "chi2", reference.prepare("chi2", queries), reference.prepare("chi2", rows)
    )
    best, ids = reference.top_k(scores, k)
    return np.sqrt(np.maximum(0, 2 - 2 * best)), ids


@pytest.fixture(scope="module")
def nearest() -> KernelNeighbors:
    return KernelNeighbors(kernel="chi2").fit(ROWS)


@pytest.mark.promise(
    "`KernelNeighbors` is an estimator of scikit-learn, and finds the true neighbours, also by codes that prove"
)
def test_scikit_learn_accepts_it() -> None:
    check_estimator(KernelNeighbors(), on_skip=None)


@pytest.mark.parametrize("encoder", [None, "bound", *BOUNDS])
@pytest.mark.promise(
    "`KernelNeighbors` is an estimator of scikit-learn, and finds the true neighbours, also by codes that prove"
)
def test_neighbours_are_the_true_ones(encoder: str | None) -> None:
    nearest = KernelNeighbors(n_neighbors=7, kernel="chi2", encoder=encoder).fit(ROWS)
    distances, ids = nearest.kneighbors(QUERIES)
    true_distances, true_ids = truth(ROWS, QUERIES, 7)
    np.testing.assert_array_equal(ids, true_ids)
    np.testing.assert_allclose(distances, true_distances, atol=1e-7)


def test_numbers_that_are_rounded_are_a_warning_of_the_caller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default", mercore.MercoreWarning)
        for _ in range(2):
            KernelNeighbors(kernel="chi2").fit(ROWS[:20].astype(np.float64))
    assert [(str(each.message), each.filename) for each in told] == [
        ("the array holds float64: the store keeps its numbers rounded to float32", __file__)
    ]
    assert "rounded" not in capsys.readouterr().err


def test_codes_are_reranked() -> None:
    encoder = "kpca-pq:landmarks=64,components=16,subquantizers=8"
    nearest = KernelNeighbors(7, kernel="chi2", encoder=encoder, rerank=300).fit(ROWS)
    np.testing.assert_array_equal(
        nearest.kneighbors(QUERIES, return_distance=False), truth(ROWS, QUERIES, 7)[1]
    )


def test_no_row_is_its_own_neighbour(nearest: KernelNeighbors) -> None:
    rows = np.concatenate([ROWS[:40], ROWS[:3], ROWS[:3]])
    ids = KernelNeighbors(kernel="chi2").fit(rows).kneighbors(n_neighbors=4, return_distance=False)
    true = truth(rows, rows, 46)[1]
    for row, found in enumerate(ids):
        assert found.tolist() == [each for each in true[row] if each != row][:4]
    assert [values.shape for values in nearest.kneighbors()] == [(300, 5)] * 2


def test_a_column_of_lists_is_a_matrix(nearest: KernelNeighbors) -> None:
    true = nearest.kneighbors(QUERIES, return_distance=False)
    rows, queries = polars.DataFrame({"rows": ROWS}), pandas.DataFrame({"rows": list(QUERIES)})
    for given, asked in (
        (rows, queries),
        (rows["rows"], queries["rows"]),
        (rows.to_arrow(), queries),
    ):
        found = KernelNeighbors(kernel="chi2").fit(given).kneighbors(asked, return_distance=False)
        np.testing.assert_array_equal(found, true)
    with pytest.raises(FormatError, match="row 1 has 2 numbers, expected 3 as in row 0"):
        KernelNeighbors().fit(pandas.Series([[1.0, 2.0, 3.0], [4.0, 5.0]]))


@pytest.mark.parametrize("jobs", [1, -1, -100])
def test_all_cores_are_minus_one_as_in_scikit_learn(jobs: int, nearest: KernelNeighbors) -> None:
    fitted = KernelNeighbors(kernel="chi2", n_jobs=jobs).fit(ROWS)
    np.testing.assert_array_equal(fitted.kneighbors()[1], nearest.kneighbors()[1])


@pytest.mark.promise(
    "`KernelNeighbors` is an estimator of scikit-learn, and finds the true neighbours, also by codes that prove"
)
def test_codes_that_prove_find_the_true_neighbours() -> None:
    rows = histograms(3000, 12, seed=3)
    encoder = "kpca-pq:landmarks=16,components=2,subquantizers=1"
    nearest = KernelNeighbors(1, kernel="chi2", encoder=encoder)
    ids = nearest.fit(rows).kneighbors(QUERIES, return_distance=False)
    np.testing.assert_array_equal(ids, truth(rows, QUERIES, 1)[1])


@pytest.mark.parametrize(("k", "reranked"), [(3, 100), (15, 300)])
def test_twenty_codes_per_neighbour_are_reranked(k: int, reranked: int, tmp_path: Path) -> None:
    rows, encoder = histograms(3000, 12, seed=3), "aska:atoms=32,sparsity=1"
    nearest = KernelNeighbors(k, kernel="chi2", encoder=encoder, path=str(tmp_path)).fit(rows)
    _, hits = mercore.search(tmp_path / "codes.zarr", QUERIES, k=k, rerank=reranked)
    np.testing.assert_array_equal(nearest.kneighbors(QUERIES, return_distance=False), hits.ids)


@pytest.mark.parametrize("mode", ["connectivity", "distance"])
def test_the_graph_holds_the_neighbours(mode: str, nearest: KernelNeighbors) -> None:
    graph = nearest.kneighbors_graph(QUERIES, n_neighbors=3, mode=mode)
    distances, ids = nearest.kneighbors(QUERIES, n_neighbors=3)
    expected = np.zeros((20, 300))
    np.put_along_axis(expected, ids, 1.0 if mode == "connectivity" else distances, axis=1)
    np.testing.assert_array_equal(graph.toarray(), expected)
    with pytest.raises(InputError, match="mode"):
        nearest.kneighbors_graph(QUERIES, mode="other")


@pytest.mark.parametrize("radius", [0.0, 0.3, 0.45, 5.0])
def test_all_rows_within_a_radius(radius: float, nearest: KernelNeighbors) -> None:
    distances, ids = nearest.radius_neighbors(QUERIES, radius=radius)
    all_distances, all_ids = nearest.kneighbors(QUERIES, n_neighbors=300)
    for query in range(20):
        within = all_distances[query] <= radius
        np.testing.assert_array_equal(ids[query], all_ids[query][within])
        np.testing.assert_array_equal(distances[query], all_distances[query][within])
    others = nearest.radius_neighbors(radius=radius, return_distance=False)
    assert all(row not in found for row, found in enumerate(others))
    flat = np.concatenate(distances)
    for mode, values in (("connectivity", np.ones(len(flat))), ("distance", flat)):
        graph = nearest.radius_neighbors_graph(QUERIES, radius=radius, mode=mode)
        assert graph.shape == (20, 300)
        np.testing.assert_array_equal(graph.indices, np.concatenate(ids))
        np.testing.assert_array_equal(graph.indptr, np.cumsum([0, *map(len, ids)]))
        np.testing.assert_array_equal(graph.data, values)


def test_the_memory_of_a_radius_is_that_of_its_answer() -> None:
    rows = np.random.default_rng(0).random((4000, 4), np.float32)
    queries = np.full((500, 4), 9, np.float32)
    queries[7] = 0.5  # all rows are within 2 of this query, and none of the others
    nearest = KernelNeighbors().fit(rows)
    tracemalloc.start()
    ids = nearest.radius_neighbors(queries, radius=2, return_distance=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(found) for found in ids] == [4000 * (query == 7) for query in range(500)]
    assert peak < 500 * 4000 * 8  # one number per query and row


def test_a_pickle_holds_the_rows_of_a_temporary_folder() -> None:
    nearest = KernelNeighbors(kernel="chi2", encoder=BOUNDS[1]).fit(ROWS)
    expected = nearest.kneighbors(QUERIES)
    stored = pickle.dumps(nearest)
    del nearest
    for found, values in zip(pickle.loads(stored).kneighbors(QUERIES), expected, strict=True):  # noqa: S301
        np.testing.assert_array_equal(found, values)


def test_stores_stay_in_a_named_folder(tmp_path: Path) -> None:
    nearest = KernelNeighbors(kernel="chi2", encoder=BOUNDS[1], path=str(tmp_path)).fit(ROWS)
    expected = nearest.kneighbors(QUERIES, return_distance=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["codes.zarr", "vectors.zarr"]
    again = pickle.loads(pickle.dumps(nearest))  # noqa: S301
    np.testing.assert_array_equal(again.kneighbors(QUERIES, return_distance=False), expected)
    with pytest.raises(ExistsError):
        clone(nearest).fit(ROWS)
    given = KernelNeighbors(kernel="chi2").fit(tmp_path / "vectors.zarr")
    np.testing.assert_array_equal(given.kneighbors(QUERIES, return_distance=False), expected)


def test_it_works_in_a_pipeline() -> None:
    pipeline = make_pipeline(MinMaxScaler(clip=True), KernelNeighbors(3, kernel="chi2"))
    pipeline.fit(ROWS.astype(np.float64))
    scaled = pipeline[0].transform(QUERIES.astype(np.float64))
    rows = pipeline[0].transform(ROWS.astype(np.float64)).astype(np.float32)
    found = pipeline[-1].kneighbors(scaled, return_distance=False)
    np.testing.assert_array_equal(found, truth(rows, scaled.astype(np.float32), 3)[1])


@pytest.mark.parametrize("k", [0, 2.5, 301, 300])
def test_a_number_of_neighbours_that_cannot_be_is_refused(k: Any, nearest: KernelNeighbors) -> None:
    queries, most = (None, 299) if k == 300 else (QUERIES, 300)  # no row is its own neighbour
    with pytest.raises(InputError) as refusal:
        nearest.kneighbors(queries, n_neighbors=k)
    assert str(refusal.value) == (
        f"n_neighbors is {k}: expected a whole number from 1 to {most}, the rows that can be "
        "neighbours. Fix: n_neighbors=5."
    )


def test_a_graph_has_a_column_for_every_row_of_the_source(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[[0, 7]] = 0
    mercore.ingest(rows, tmp_path / "vectors", drop_zero_rows=True)
    graph = KernelNeighbors(kernel="chi2").fit(tmp_path / "vectors").kneighbors_graph(rows[-1:])
    assert graph.shape == (1, 300)
    assert 299 in graph.indices


def test_bounds_need_no_reranking() -> None:
    with pytest.raises(InputError, match="rerank"):
        KernelNeighbors(kernel="chi2", encoder="bound", rerank=30).fit(ROWS)


def test_euclidean_distances_are_those_of_scikit_learn() -> None:
    for encoder in (None, "pca-bound:components=8"):
        found = KernelNeighbors(6, encoder=encoder).fit(ROWS).kneighbors(QUERIES)
        expected = NearestNeighbors(n_neighbors=6).fit(ROWS.astype(float)).kneighbors(QUERIES)
        np.testing.assert_allclose(found[0], expected[0])


def test_products_are_no_distances() -> None:
    with pytest.raises(InputError, match="no distances"):
        KernelNeighbors(kernel="inner_product").fit(ROWS)


@pytest.mark.promise(
    "A custom kernel that is not semi-definite is searched by every row, and has no codes, bounds or distances"
)
def test_a_kernel_that_is_not_semidefinite_gives_no_distances(tmp_path: Path) -> None:
    path = write(tmp_path, returning("x[0] * y[0] - x[1] * y[1]", semidefinite=False))
    with pytest.raises(InputError) as refusal:
        KernelNeighbors(kernel=str(path)).fit(ROWS)
    assert str(refusal.value) == (
        "kernel mine.py has no distances: found SEMIDEFINITE = False in the file, expected True, "
        "since only a positive semi-definite kernel with K(x, x) = 1 has distances. Fix: "
        'mercore.search(VECTORS, QUERIES, kernel="mine.py"), which scores every row.'
    )


def test_the_names_are_public() -> None:
    assert {"KernelNeighbors", "open"} <= set(mercore.__all__)

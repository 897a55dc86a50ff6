"""Scores of rows of bytes in integers, against NumPy's integers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.scanners import byte_rows_numba
from mercore.pipeline.scanners.byte_rows import are_whole, as_bytes, byte_queries
from mercore.pipeline.search import exhaustive
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.exhaustive import RowsBatch, search_vectors
from mercore.pipeline.search.rerank import true_scores
from mercore.pipeline.topk import TopK
from mercore.stores.errors import InputError
from mercore.testing.cases import loop_over
from mercore.testing.stores import make_vectors
from tests.support.processors import assert_passed_on
from tests.support.tiers import slow_then_soak

KERNELS = {"distance": "euclidean", "product": "inner_product", "cosine": "cosine"}
BYTES = (np.uint8, np.int8)
K = 10
Rows = NDArray[Any]


def true_scores_of(form: str, rows: Rows, queries: Rows) -> NDArray[np.float64]:
    """Scores [nq, n] by NumPy's int64; of the cosine, by one division of exact integers."""
    x, y = rows.astype(np.int64), queries.astype(np.int64)
    products, squares = y @ x.T, (y * y).sum(1)[:, None] * (x * x).sum(1)
    if form == "product":
        return products.astype(np.float64)
    if form == "distance":
        return np.asarray(-np.square(y[:, None] - x).sum(2), np.float64)
    return np.asarray(np.sign(products) * np.sqrt(np.square(products) / squares))


def best(scores: NDArray[np.float64], k: int = K) -> NDArray[np.int64]:
    """The k best rows of each query, ties to the lower row."""
    numbers = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    return np.lexsort((numbers, -scores), axis=1)[:, :k]


def adversarial(kind: str, n: int, d: int, dtype: Any) -> Rows:
    """Random rows, extremes, or duplicates; a row of zeros has a one."""
    rng, limits = np.random.default_rng(d), np.iinfo(dtype)
    rows = rng.integers(limits.min, limits.max + 1, (n, d)).astype(dtype)
    if kind == "extremes":
        rows = rng.choice([limits.min, limits.max, 1], (n, d)).astype(dtype)
        rows[0], rows[1] = limits.max, limits.min
    if kind == "duplicates":
        rows[1::2] = rows[0]
    rows[~rows.any(axis=1), 0] = 1
    return rows


@loop_over(
    ("form", "dtype", "d", "kind"),
    [
        (form, dtype, d, kind)
        for form in KERNELS
        for dtype in BYTES
        for d, kind in [
            (1, "random"),
            (3, "extremes"),
            (32, "duplicates"),
            (100, "extremes"),
            (128, "random"),
            (129, "extremes"),
            (5000, "extremes"),
        ]
    ],
)
def test_top_k(form: str, dtype: Any, d: int, kind: str) -> None:
    rows = adversarial(kind, 300, d, dtype)
    kernel = make_kernel(KERNELS[form])
    for nq in (1, 40):
        queries = rows[:: 300 // nq][:nq]
        batch = RowsBatch(kernel, queries, rows.dtype)
        assert batch.bytes is not None
        lists = TopK(nq, K, np.float64)
        batch.search(rows[:90], 0, lists)
        batch.search(rows[90:], 90, lists)
        found, true = TopK.merge([lists]), true_scores_of(form, rows, queries)
        np.testing.assert_array_equal(found.ids, best(true))
        np.testing.assert_array_equal(found.scores, np.take_along_axis(true, best(true), axis=1))


@loop_over("dtype", BYTES)
def test_the_widest_rows_do_not_overflow(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    rows = np.full((20, 32896), limits.max, dtype)
    rows[1::2] = limits.min
    rows[7] = 1
    for form, name in KERNELS.items():
        if form == "cosine":
            rows[~rows.any(axis=1), 0] = 1
        for nq in (1, 20):
            lists = TopK(nq, 20, np.float64)
            RowsBatch(make_kernel(name), rows[:nq], rows.dtype).search(rows, 0, lists)
            found, true = TopK.merge([lists]), true_scores_of(form, rows, rows[:nq])
            if form == "cosine":  # p² is beyond 2⁵³
                true = np.take_along_axis(true, found.ids, axis=1)
                np.testing.assert_allclose(found.scores, true, rtol=1e-15)
            else:
                np.testing.assert_array_equal(found.ids, best(true, 20))
    assert byte_queries(make_kernel("euclidean"), np.ones((1, 32897), dtype), rows.dtype) is None


@loop_over(
    ("name", "dtype", "threads"),
    [(name, dtype, threads) for name in KERNELS.values() for dtype in BYTES for threads in (1, 2)],
)
def test_every_search(name: str, dtype: Any, threads: int, tmp_path: Path) -> None:
    rows = adversarial("random", 500, 24, dtype)
    rows[100:150] = rows[50:100]
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=64)
    kernel, queries = make_kernel(name), rows[40:75]
    form = next(form for form in KERNELS if KERNELS[form] == name)
    true = true_scores_of(form, rows, queries)
    found = search_vectors(vectors, kernel, queries, K, threads=threads)
    np.testing.assert_array_equal(found.ids, best(true))
    scorer = ExactScorer(vectors=vectors, kernel=kernel, threads=threads)
    answers = ExactSearch(scorer=scorer).prove(queries, K)
    np.testing.assert_array_equal(answers.ids, best(true))
    every = np.broadcast_to(np.arange(500), true.shape)
    scores = true_scores(vectors, kernel, queries, every, threads=threads)
    np.testing.assert_array_equal(scores, true)
    kth = np.take_along_axis(true, answers.ids, axis=1)[:, -1:]
    np.testing.assert_array_equal(answers.ties, (true >= kth).sum(axis=1) - K)


def test_multiples_of_a_row_tie_under_the_cosine() -> None:
    row = np.random.default_rng(1).integers(1, 64, 40)
    rows = np.array([3 * row, row, 4 * row, 2 * row]).astype(np.uint8)
    queries = np.random.default_rng(2).integers(0, 256, (50, 40)).astype(np.uint8)
    lists = TopK(50, 4, np.float64)
    RowsBatch(make_kernel("cosine"), queries, rows.dtype).search(rows, 0, lists)
    found = TopK.merge([lists])
    assert (found.ids == np.arange(4)).all()
    assert (np.ptp(found.scores, axis=1) == 0).all()


@loop_over("nq", [1, 9])
def test_a_row_of_zeros_is_refused_by_its_number(nq: int) -> None:
    rows = np.ones((200, 8), np.uint8)
    rows[150] = 0
    batch = RowsBatch(make_kernel("cosine"), rows[:nq], rows.dtype)
    with pytest.raises(InputError, match="row 1150 is all zero"):
        batch.search(rows, 1000, TopK(nq, K, np.float64))
    batch = RowsBatch(make_kernel("euclidean"), rows[:nq], rows.dtype)
    batch.search(rows, 1000, TopK(nq, K, np.float64))


def test_a_block_with_too_many_pairs_is_searched_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each row is nearer than all before it, so thresholds rule nothing out."""
    rows = np.arange(250, -1, -1, dtype=np.uint8)[:, None] + np.zeros((1, 16), np.uint8)
    batch = RowsBatch(make_kernel("euclidean"), np.zeros((100, 16), np.uint8), rows.dtype)
    assert batch.bytes is not None
    reaching, fitted = batch.bytes.reaching, list[bool]()

    def watched(rows: Rows, least: Any, *, room: int) -> Any:
        found = reaching(rows, least, room)
        fitted.append(found is not None)
        return found

    monkeypatch.setattr(exhaustive, "LISTED", 0)
    monkeypatch.setattr(batch.bytes, "reaching", watched)
    lists = TopK(100, 3, np.float64)
    batch.search(rows, 0, lists)
    assert (TopK.merge([lists]).ids == [250, 249, 248]).all()
    assert fitted == [True, False, True, False, True, True]


def test_which_queries_are_taken_as_bytes() -> None:
    whole = np.array([[0, 127], [5, 1]])
    euclidean, cosine, chi2 = (make_kernel(name) for name in ("euclidean", "cosine", "chi2"))
    unsigned, signed = np.dtype(np.uint8), np.dtype(np.int8)
    for dtype in ("uint8", "int8", "float16", "float32"):
        queries = whole.astype(dtype)
        taken = as_bytes(euclidean, queries, unsigned)
        assert taken is not None
        assert taken.dtype == np.uint8
        assert as_bytes(euclidean, queries, signed) is not None
        assert (as_bytes(cosine, queries, signed) is not None) == (dtype == "int8")
        assert as_bytes(chi2, queries, unsigned) is None
        assert as_bytes(euclidean, queries, np.dtype(np.float32)) is None
        assert are_whole(euclidean, queries, signed)
        assert not are_whole(cosine, queries, signed)
    assert as_bytes(euclidean, whole.astype(np.float32) + 0.5, unsigned) is None
    assert as_bytes(euclidean, whole.astype(np.float32) + 1, signed) is None  # 128
    assert as_bytes(euclidean, -whole.astype(np.float32), unsigned) is None


@loop_over("dtype", BYTES)
def test_sums_of_rows_and_products_of_pairs(dtype: Any) -> None:
    for d in (1, 31, 32, 77):
        rows = adversarial("extremes", 9, d, dtype)
        x = rows.astype(np.int64)
        sums, squares = np.empty(9, np.int32), np.empty(9, np.int32)
        byte_rows_numba.sum_rows(rows, sums, squares)
        np.testing.assert_array_equal(sums, x.sum(1))
        np.testing.assert_array_equal(squares, (x * x).sum(1))
        pairs = np.array([0, 3, 3, 8]), np.array([2, 0, 1, 2])
        products, of_rows = np.empty(4, np.int64), np.empty(4, np.int64)
        halves = rows[4:7].astype(np.int16)
        byte_rows_numba.multiply_pairs(rows, pairs[0], halves, pairs[1], products, of_rows)
        np.testing.assert_array_equal(products, (x[pairs[0]] * x[4:7][pairs[1]]).sum(1))
        np.testing.assert_array_equal(of_rows, (x * x).sum(1)[pairs[0]])


@pytest.mark.parametrize(
    ("cpu", "features"),
    slow_then_soak([("haswell", "+avx2"), ("alderlake", "+avx2,+avxvnni"), ("x86-64", "")]),
)
def test_builds_for_lesser_processors_find_the_same(cpu: str, features: str) -> None:
    names = "test_top_k", "test_every_search", "test_sums_of_rows_and_products_of_pairs"
    assert_passed_on(cpu, features, __file__, *names)

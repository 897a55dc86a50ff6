"""Rows by the thousand that tie with the k-th: found, counted, and paid for by the queries that
they tie for."""

import tracemalloc
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.pipeline.kernels.decimals import decimal_score
from mercore.pipeline.search import exact as exactly
from mercore.pipeline.search import exhaustive
from mercore.pipeline.search import ties as deciding
from mercore.pipeline.search.answers import ExactAnswers
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.stores.rows import SourceVectors
from mercore.testing.cases import loop_over
from mercore.testing.stores import Rows, histograms, make_vectors

K, D = 5, 12
ADDITIVE = ("chi2", "intersection", "hellinger", "jensen_shannon", "cosine")


def prove(rows: NDArray[Any], queries: NDArray[Any], kernel: Kernel, k: int = K) -> ExactAnswers:
    return ExactSearch(scorer=ExactScorer(vectors=SourceVectors(Rows(rows)), kernel=kernel)).prove(
        queries, k
    )


def rows_apart(n: int, *, seed: int = 0) -> NDArray[np.uint8]:
    """Rows of n different contents, whose last bins are empty, for queries that have nothing
    else."""
    rows = np.random.default_rng(seed).integers(1, 250, (n, D)).astype(np.uint8)
    rows[:, D // 2 :] = 0
    return rows


def queries_apart(nq: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rows_apart(nq, seed=1)[:, ::-1])


@pytest.mark.parametrize("name", ADDITIVE)
def test_rows_without_a_shared_bin_tie_at_zero_and_go_by_row(name: str) -> None:
    rows, queries = rows_apart(900), queries_apart(3)
    rows[[40, 700], D - 1] = 3  # these two are nearer
    with patch.object(deciding, "decimal_score", side_effect=decimal_score) as asked:
        answers = prove(rows, queries, make_kernel(name))
    assert answers.ids[:, 2:].tolist() == [[0, 1, 2]] * 3
    assert {frozenset(ids) for ids in answers.ids[:, :2].tolist()} == {frozenset({40, 700})}
    assert answers.ties.tolist() == [898 - 3] * 3
    assert answers.scores[:, 2:].tolist() == [[0, 0, 0]] * 3
    assert asked.call_count <= 3 * 3  # a row of each kind, not each row


@pytest.mark.promise("A query that many rows tie for is answered, and costs the others nothing")
def test_only_queries_that_rows_tie_for_are_asked_again() -> None:
    rows, queries = histograms(3000, D, seed=2), histograms(40, D, seed=3)
    rows[100:2100] = queries[7]
    asked = []

    def counted(vectors: Any, batch: Any, parts: Any, new: Any, **options: Any) -> Any:
        asked.append(new().ids.shape)
        return searched(vectors, batch, parts, new, **options)

    searched = exhaustive.search_parts
    with patch.object(exhaustive, "search_parts", counted):
        answers = prove(rows, queries, make_kernel("chi2"))
    assert asked[0] == (40, K + exactly.SPARE)
    assert len(asked) > 1
    assert {size for size, _ in asked[1:]} == {1}
    assert answers.ids[7].tolist() == list(range(100, 100 + K))
    assert answers.ties[7] == 2000 - K
    kernel = make_kernel("chi2")
    scores = kernel.exact(kernel.prepare(queries), np.ascontiguousarray(kernel.prepare(rows).T))
    others = np.arange(40) != 7
    np.testing.assert_array_equal(
        answers.ids[others], np.argsort(-scores, axis=1, kind="stable")[others, :K]
    )
    assert (answers.ties[others] == 0).all()
    assert (answers.evaluated == len(rows)).all()


@loop_over("pairs", [1, 700, 1 << 17])
@loop_over("raw_bytes", [1, 500, 1 << 24])
def test_lists_and_slices_change_no_answer(
    pairs: int, raw_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, queries = (
        np.tile(rows_apart(60), (5, 1)),
        np.concatenate([queries_apart(4), rows_apart(3)]),
    )
    kernel = make_kernel("chi2")
    expected = prove(rows, queries, kernel).arrays()
    monkeypatch.setattr(exactly, "TIED_PAIRS", pairs)
    monkeypatch.setattr(deciding, "RAW_BYTES", raw_bytes)
    found = prove(rows, queries, kernel).arrays()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.promise("A query that many rows tie for is answered, and costs the others nothing")
def test_the_memory_is_that_of_a_few_queries(tmp_path: Path) -> None:
    rows, queries = rows_apart(8_000), queries_apart(100)
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=2048)
    search = ExactSearch(scorer=ExactScorer(vectors=vectors, kernel=make_kernel("intersection")))
    search.prove(queries[:1], K)  # compiles
    tracemalloc.start()
    answers = search.prove(queries, K)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answers.ties.tolist() == [8_000 - K] * 100
    assert peak < 25e6  # the pairs of all queries would take 120 MB


@pytest.mark.promise("`rbf` tells apart rows that are far from the query")
def test_rows_far_from_a_query_are_told_apart_by_a_gaussian() -> None:
    rows = np.array([[11.4], [11.0], [10.9], [30], [11.0], [40]], np.float32)
    answers = prove(rows, np.zeros((1, 1), np.float32), make_kernel("rbf", gamma=1.0), k=3)
    assert answers.ids.tolist() == [[2, 1, 4]]
    assert (np.diff(answers.scores) <= 0).all()
    assert answers.ties.tolist() == [0]
    assert prove(
        rows, np.zeros((1, 1), np.float32), make_kernel("rbf", gamma=1.0), k=2
    ).ties.tolist() == [1]

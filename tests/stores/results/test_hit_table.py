"""Hits as tables, edges and sparse matrices: each library reads what the hits say, hit by hit."""

import sys
from collections.abc import Callable
from typing import Any

import networkx
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given

from mercore.stores.errors import InputError
from mercore.stores.results.hits import Hits
from mercore.stores.results.range_hits import HitsOfFile, RangeHits, write_range_hits
from mercore.testing.rows import steady
from tests.support.strategies import hit_arrays

HITS = Hits(
    ids=np.array([[3, 1, -1], [0, 5, 2]]), scores=np.array([[1, 0.5, 0], [0.75, 0.5, 0.25]])
)
RANGE = RangeHits(
    lims=np.array([0, 2, 2, 3]), ids=np.array([1, 2, 0]), scores=np.array([0.5, 0.25, 0.5])
)
# Each way to a table, and the lists of its columns.
WAYS: dict[str, Callable[[Any], dict[str, list[Any]]]] = {
    "pandas": lambda hits: hits.to_pandas().to_dict(orient="list"),
    "polars": lambda hits: hits.to_polars().to_dict(as_series=False),
    "pyarrow": lambda hits: hits.to_arrow().to_pydict(),
    "stream to pyarrow": lambda hits: pyarrow.table(hits).to_pydict(),
    "stream to polars": lambda hits: polars.DataFrame(hits).to_dict(as_series=False),
    "stream to pandas": lambda hits: pandas.DataFrame.from_arrow(hits).to_dict(orient="list"),
}


def told(hits: Hits | RangeHits) -> list[tuple[int, int, int, float]]:
    """The query, rank, id and score of each hit, as the command prints them."""
    return [
        (query, rank, row, score)
        for query in range(len(hits))
        for rank, (row, score) in enumerate(
            zip(*(each.tolist() for each in hits.of(query)), strict=True), 1
        )
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hits", [HITS, RANGE], ids=["of k", "of any number"])
def test_a_table_has_the_hits_as_they_are_printed(hits: Hits | RangeHits, way: str) -> None:
    columns = WAYS[way](hits)
    assert list(columns) == ["query", "rank", "id", "score"]
    assert list(zip(*columns.values(), strict=True)) == told(hits)


@steady(30)
@given(arrays=hit_arrays(score="f8", max_id=2**63 - 1))
def test_ids_and_scores_come_back_from_arrow(arrays: Any) -> None:
    scores, ids = arrays
    hits = Hits(scores=scores, ids=ids)
    table = pyarrow.table(hits)
    assert table.column_names == ["query", "rank", "id", "score"][: 3 + (scores is not None)]
    back = np.full_like(ids, -1)
    found = table.column("query").to_numpy(), table.column("rank").to_numpy() - 1
    back[found] = table.column("id").to_numpy()
    lasting = np.sort(ids < 0, axis=1, kind="stable")  # ranks count hits alone
    assert np.array_equal(back < 0, lasting)
    assert np.array_equal(back[back >= 0], ids[ids >= 0])
    if scores is not None:
        assert table.column("score").type == pyarrow.from_numpy_dtype(scores.dtype)
        assert np.array_equal(table.column("score").to_numpy(), scores[ids >= 0])


def test_edges_are_those_that_networkx_takes() -> None:
    edges = RANGE.to_edges()
    assert list(edges.columns) == ["source", "target", "weight"]
    graph = networkx.from_pandas_edgelist(edges, edge_attr=True, create_using=networkx.DiGraph)
    expected = {(0, 1): 0.5, (0, 2): 0.25, (2, 0): 0.5}
    assert {(a, b): w for a, b, w in graph.edges(data="weight")} == expected
    other = networkx.from_scipy_sparse_array(RANGE.to_scipy(), create_using=networkx.DiGraph)
    assert {(a, b): w for a, b, w in other.edges(data="weight")} == expected


def test_a_sparse_matrix_has_a_column_per_id() -> None:
    expected = np.zeros((2, 9))
    expected[[0, 0, 1, 1, 1], [3, 1, 0, 5, 2]] = [1, 0.5, 0.75, 0.5, 0.25]
    assert np.array_equal(HITS.to_scipy(9).toarray(), expected)
    assert np.array_equal(HITS.to_scipy().toarray(), expected[:, :6])
    assert RANGE.to_scipy().shape == (3, 3)  # square, though the highest id is no query
    assert np.array_equal(Hits(ids=HITS.ids, scores=None).to_scipy(9).toarray(), expected > 0)


def test_no_hits_at_all_are_an_empty_table() -> None:
    none = Hits(ids=np.full((2, 3), -1), scores=np.zeros((2, 3), np.float32))
    assert none.to_arrow().shape == (0, 4)
    assert none.to_scipy().shape == (2, 2)
    assert Hits(ids=np.empty((0, 3), np.int64), scores=None).to_arrow().shape == (0, 3)


def test_hits_of_a_file_are_read_when_they_become_a_table(tmp_path: Any) -> None:
    path = str(tmp_path / "graph.npz")
    write_range_hits(path, RANGE, 3)
    assert HitsOfFile(path, None).to_arrow().equals(RANGE.to_arrow())


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_a_library_that_is_not_installed_is_named(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    name = {"pyarrow": "arrow"}.get(package, package)
    with pytest.raises(InputError, match=f"this needs the package {package}: found none. Fix: pip"):
        getattr(HITS, f"to_{name}")()


def test_pandas_and_polars_need_no_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert HITS.to_pandas().shape == HITS.to_polars().shape == (5, 4)

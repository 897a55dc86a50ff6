"""The contract of collectors, by one that keeps all rows within a threshold."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.search.exhaustive import RowsBatch, search_parts
from mercore.stores.selection import BitSelection
from mercore.stores.vector_views import SelectedVectors
from mercore.stores.vectors import Vectors, VectorStore
from tests.independent import reference
from tests.support.cases import loop_over
from tests.support.making import histograms, make_vectors

N, D, NQ = 3000, 20, 12
GAMMA = {"rbf": 0.05}
KERNELS = ("chi2", "intersection", "hellinger", "cosine", "jensen_shannon", "rbf")
Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.floating[Any]]]


class Within:
    """Lists of the pairs (query, row) whose score reaches the threshold of the query."""

    def __init__(self, threshold: NDArray[np.float64]) -> None:
        self.threshold = threshold
        self.lists: list[Pairs] = []
        self.scored = 0

    def least(
        self, scores: NDArray[np.float32], error: float | NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return self.threshold - error

    def insert(
        self, queries: NDArray[np.int64], rows: NDArray[np.int64], scores: NDArray[np.floating[Any]]
    ) -> None:
        kept = scores >= self.threshold[queries]
        self.lists.append((queries[kept], rows[kept], scores[kept]))
        self.scored += len(scores)

    @classmethod
    def merge(cls, collectors: Sequence["Within"]) -> "Within":
        merged = cls(collectors[0].threshold)
        for each in collectors:
            merged.lists += each.lists
            merged.scored += each.scored
        return merged

    def pairs(self) -> Pairs:
        """Return the pairs by query, then by row."""
        queries, rows, scores = (np.concatenate(each) for each in zip(*self.lists, strict=True))
        order = np.lexsort((rows, queries))
        return queries[order], rows[order], scores[order]


@pytest.fixture(scope="module")
def rows() -> NDArray[Any]:
    rows = histograms(N, D, seed=1)
    rows[2000:2100] = rows[700:800]
    return rows


@pytest.fixture(scope="module")
def vectors(rows: NDArray[Any], tmp_path_factory: pytest.TempPathFactory) -> VectorStore:
    return make_vectors(tmp_path_factory.mktemp("collector") / "vectors", rows, part_rows=256)


def check(vectors: Vectors, rows: NDArray[Any], name: str, threads: int) -> None:
    gamma = GAMMA.get(name, 1.0)
    kernel, queries = make_kernel(name, gamma=GAMMA.get(name)), histograms(NQ, D, seed=2)
    queries[-1] = rows[min(750, len(rows) - 1)]
    x, y = (reference.prepare(name, each) for each in (queries, rows))
    true = reference.kernel(name, x, y, gamma)
    ranked = np.sort(true, axis=1)
    # between two scores: reached by no row, by some rows, and by every row
    threshold = (ranked[:, -40] + ranked[:, -41]) / 2
    threshold[:2] = [ranked[0, -1] + 1e-6, ranked[1, 0] - 1e-6]
    found = search_parts(
        vectors,
        RowsBatch(kernel, queries, vectors.dtype),
        range(vectors.parts),
        partial(Within, threshold),
        threads=threads,
    )
    of_query, near, scores = found.pairs()
    expected = np.nonzero(true >= threshold[:, None])
    np.testing.assert_array_equal(of_query, expected[0])
    np.testing.assert_array_equal(near, expected[1])
    np.testing.assert_allclose(scores, true[expected], rtol=0, atol=1e-12)
    assert found.scored < len(near) + NQ * 10  # the float32 filter leaves the others out


@loop_over("threads", [1, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_every_row_within_a_threshold_is_kept(
    name: str, threads: int, vectors: VectorStore, rows: NDArray[Any]
) -> None:
    check(vectors, rows, name, threads)


def test_of_selected_rows_too(vectors: VectorStore, rows: NDArray[Any]) -> None:
    mask = np.random.default_rng(3).random(N) < 0.2
    selection = BitSelection(np.packbits(mask, bitorder="little"))
    check(SelectedVectors(vectors, selection), rows[mask], "chi2", 2)

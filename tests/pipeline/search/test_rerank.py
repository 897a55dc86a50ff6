"""Scoring chosen rows takes the memory of the parts they lie in, one after the other."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.search.rerank import Prepared, scores_of_pairs, true_scores
from mercore.pipeline.topk import top_k_of
from mercore.stores.errors import InputError
from mercore.testing.stores import histograms, make_vectors
from tests.independent import reference


def test_rows_of_many_parts_are_never_in_memory_together(tmp_path: Path) -> None:
    rows, queries, kernel = (
        histograms(4096, 256, seed=0),
        histograms(1, 256, seed=1),
        make_kernel("intersection"),
    )
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=128)
    every = np.random.default_rng(2).permutation(len(rows))[None]
    true_scores(vectors, kernel, queries, every[:, :1], threads=1)  # compiles
    tracemalloc.start()
    scores = true_scores(vectors, kernel, queries, every, threads=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < vectors.rows * vectors.dims * vectors.dtype.itemsize / 2
    points, others = (reference.prepare("intersection", values) for values in (queries, rows))
    true = reference.kernel("intersection", points, others)
    np.testing.assert_allclose(scores, true[:, every[0]], rtol=0, atol=1e-12)


def test_a_row_outside_of_the_domain_is_named_by_its_own_number(tmp_path: Path) -> None:
    rows = histograms(64, 8, seed=3)
    rows[[37, 50], 2] = -1
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=16)
    with pytest.raises(InputError, match="row 37 has a negative value"):
        true_scores(
            vectors, make_kernel("chi2"), rows[:2], np.array([[3, 50], [37, 33]]), threads=1
        )


@pytest.mark.parametrize("name", ["chi2", "intersection", "cosine", "exp_chi2", "rbf"])
@pytest.mark.parametrize("threads", [1, 3])
def test_scores_of_the_k_best_are_all_there_and_right(
    name: str, threads: int, tmp_path: Path
) -> None:
    rows, queries = histograms(600, 16, seed=4), histograms(7, 16, seed=5)
    rows[300:400] = rows[100:200] * np.float32(1 + 1e-7)  # ties, and scores an ulp apart
    vectors = make_vectors(tmp_path / "vectors", rows, part_rows=32)
    kernel = make_kernel(name, gamma=0.5 if name in ("exp_chi2", "rbf") else None)
    pairs = np.tile(np.arange(600), 7), np.repeat(np.arange(7), 600)
    prepared = Prepared(kernel, queries, vectors.dtype)
    every = scores_of_pairs(vectors, prepared, pairs, threads=threads).reshape(7, 600)
    few = scores_of_pairs(vectors, prepared, pairs, threads=threads, k=5).reshape(7, 600)
    lists = np.tile(np.arange(600), (7, 1))
    assert np.array_equal(top_k_of(few, lists, 5).ids, top_k_of(every, lists, 5).ids)
    left = few > -np.inf
    assert np.array_equal(few[left], every[left])
    assert (few >= np.sort(every, axis=1)[:, -5:-4])[left].sum() >= 35
    assert (left.mean() < 0.5) == (prepared.prefilter is not None)

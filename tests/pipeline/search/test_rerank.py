"""Scoring chosen rows takes the memory of the parts they lie in, one after the other; rows that are kept stay few."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.search.rerank import KEPT_BYTES, Kept, true_scores
from mercore.stores.errors import InputError
from mercore.stores.vectors import WatchedVectors
from tests.independent import reference
from tests.support.making import histograms, make_vectors


def test_rows_of_many_parts_are_never_in_memory_together(tmp_path: Path) -> None:
    rows, queries, kernel = histograms(4096, 256, seed=0), histograms(1, 256, seed=1), make_kernel("intersection")
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
        true_scores(vectors, make_kernel("chi2"), rows[:2], np.array([[3, 50], [37, 33]]), threads=1)


def test_parts_are_read_for_rows_that_are_not_kept(tmp_path: Path) -> None:
    rows = histograms(64, 8, seed=3)
    vectors = WatchedVectors(make_vectors(tmp_path / "vectors", rows, part_rows=16))
    kept = Kept(vectors, threads=1)
    for some in ([13, 17, 18], [], [18, 40]):
        kept.keep(np.arange(10, 64), rows[10:], np.array(some, np.int64) - 10)
    np.testing.assert_array_equal(kept.fetch(np.array([13, 18, 40])), rows[[13, 18, 40]])
    assert vectors.seen == []
    np.testing.assert_array_equal(kept.fetch(np.array([0, 13, 17, 63])), rows[[0, 13, 17, 63]])
    assert vectors.seen == [0, 3]


def test_no_more_rows_are_kept_than_there_is_room_for(tmp_path: Path) -> None:
    rows = histograms(64, 8, seed=4)
    vectors = WatchedVectors(make_vectors(tmp_path / "vectors", rows, part_rows=16))
    kept, many = Kept(vectors, threads=1), KEPT_BYTES // 8
    kept.keep(np.arange(many + 1), np.broadcast_to(rows[:1], (many + 1, 8)), np.arange(many + 1))
    np.testing.assert_array_equal(kept.fetch(np.array([20])), rows[[20]])
    assert vectors.seen == [1]

"""Rows that were fetched are cached, up to a number of bytes, and their parts are not read
again."""

from pathlib import Path

import numpy as np

from mercore.pipeline.search.fetch import ROW_CACHE_BYTES, RowCache
from mercore.stores.vector_views import WatchedVectors
from mercore.testing.stores import histograms, make_vectors


def test_parts_are_read_for_rows_that_are_not_cached(tmp_path: Path) -> None:
    rows = histograms(64, 8, seed=3)
    vectors = WatchedVectors(make_vectors(tmp_path / "vectors", rows, part_rows=16))
    cache = RowCache(vectors, threads=1)
    for some in ([13, 17, 18], [], [18, 40]):
        cache.keep(np.arange(10, 64), rows[10:], np.array(some, np.int64) - 10)
    np.testing.assert_array_equal(cache.fetch(np.array([13, 18, 40])), rows[[13, 18, 40]])
    assert vectors.seen == []
    np.testing.assert_array_equal(cache.fetch(np.array([0, 13, 17, 63])), rows[[0, 13, 17, 63]])
    assert vectors.seen == [0, 3]


def test_no_more_rows_are_cached_than_fit(tmp_path: Path) -> None:
    rows = histograms(64, 8, seed=4)
    vectors = WatchedVectors(make_vectors(tmp_path / "vectors", rows, part_rows=16))
    cache, many = RowCache(vectors, threads=1), ROW_CACHE_BYTES // 8
    cache.keep(np.arange(many + 1), np.broadcast_to(rows[:1], (many + 1, 8)), np.arange(many + 1))
    np.testing.assert_array_equal(cache.fetch(np.array([20])), rows[[20]])
    assert vectors.seen == [1]

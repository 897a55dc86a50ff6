"""Lists of the best rows: sorted by score, then by row, whatever the rows and scores."""

import numpy as np
import pytest

from mercore.pipeline.topk import top_k_of
from mercore.testing.cases import loop_over


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@loop_over("far", [0, 1 << 31, (1 << 32) - 1000, 1 << 40])
def test_candidates_are_sorted_by_score_and_then_by_row(dtype: str, far: int) -> None:
    rng = np.random.default_rng(0)
    scores = (rng.integers(-40, 40, (9, 300)) / 8).astype(dtype)
    edges = np.finfo(dtype)
    scores[0, :5] = 0.0, edges.tiny, -edges.tiny, edges.max, -edges.max
    ids = rng.permuted(np.tile(far + 3 * np.arange(300), (9, 1)), axis=1)
    free = rng.random((9, 300)) < 0.1
    scores[free], ids[free] = -np.inf, -1
    order = np.lexsort((ids, -scores), axis=1)
    for k in (1, 50, 300):
        found = top_k_of(scores, ids, k)
        assert found.scores.dtype == dtype
        assert found.ids.dtype == np.int64
        np.testing.assert_array_equal(found.ids, np.take_along_axis(ids, order, axis=1)[:, :k])
        np.testing.assert_array_equal(
            found.scores, np.take_along_axis(scores, order, axis=1)[:, :k]
        )

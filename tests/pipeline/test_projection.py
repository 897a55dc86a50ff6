"""The projection of kernel values is its slow twin's to the bit, whatever rows stand beside."""

import numpy as np
import pytest

from pipeline.encoders.kpca_bound_numba import project
from tests import reference


@pytest.mark.loops
@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
def test_rows_are_projected_each_by_itself(n: int) -> None:
    rng = np.random.default_rng(n)
    scores, projection = rng.random((n, 37)), rng.standard_normal((37, 11))
    out = np.full((n, 11), np.nan)
    project(scores, projection, out)
    np.testing.assert_array_equal(out, reference.projected(scores, projection))
    for row in range(n):
        alone = np.empty((1, 11))
        project(scores[row : row + 1], projection, alone)
        np.testing.assert_array_equal(alone[0], out[row])

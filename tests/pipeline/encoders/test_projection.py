"""The projection of kernel values is its slow twin's to the bit, whatever rows stand beside."""

import numpy as np

from mercore.pipeline.encoders.bounds.kpca_bound import projected, projection_panels
from mercore.testing.cases import loop_over
from tests.independent import reference


@loop_over("n", [0, 1, 3, 4, 9])
@loop_over("width", [1, 11, 32, 70])
def test_rows_are_projected_each_by_itself(n: int, width: int) -> None:
    rng = np.random.default_rng(n)
    scores, projection = rng.random((n, 37)), rng.standard_normal((37, width))
    panels = projection_panels(projection)
    out = projected(scores, panels)
    np.testing.assert_array_equal(out[:, :width], reference.projected(scores, projection))
    assert not out[:, width:].any()
    for row in range(n):
        np.testing.assert_array_equal(projected(scores[row : row + 1], panels)[0], out[row])

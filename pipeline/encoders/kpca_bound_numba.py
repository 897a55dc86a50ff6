"""The projection of kernel values in float64: a row's sums come in one order, whatever stands beside it."""

import numpy as np
from numpy.typing import NDArray

from stores.loops import loop

ROWS = 4  # that share a line of the projection

Values = NDArray[np.float64]


@loop
def project(scores: Values, projection: Values, out: Values) -> None:
    """Set ``out`` [n, E] to scores [n, M] times the projection [M, E], landmarks ascending."""
    n, landmarks = scores.shape
    out[:] = 0
    for i in range(0, n - n % ROWS, ROWS):
        p, q, r, s = out[i], out[i + 1], out[i + 2], out[i + 3]
        for k in range(landmarks):
            a, b, c, e = scores[i, k], scores[i + 1, k], scores[i + 2, k], scores[i + 3, k]
            line = projection[k]
            for j in range(line.size):
                p[j] += a * line[j]
                q[j] += b * line[j]
                r[j] += c * line[j]
                s[j] += e * line[j]
    for i in range(n - n % ROWS, n):
        p = out[i]
        for k in range(landmarks):
            a, line = scores[i, k], projection[k]
            for j in range(line.size):
                p[j] += a * line[j]

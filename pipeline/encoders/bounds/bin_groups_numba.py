"""Costs of merging groups of bins: sums over pairs of rows in one order."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.compiling.jit import jit

ROWS = 4  # groups that share a line of differences


@jit
def summed_magnitudes(differences: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Set ``out[i, j]``, i ≤ j, to Σ |differences[p, i] + differences[p, j]|, p ascending."""
    count, groups = differences.shape
    out[:] = 0
    whole = groups - groups % ROWS
    for i in range(0, whole, ROWS):
        p, q, r, s = out[i, i:], out[i + 1, i:], out[i + 2, i:], out[i + 3, i:]
        for pair in range(count):
            line = differences[pair, i:]
            a, b, c, e = line[0], line[1], line[2], line[3]
            for j in range(line.size):
                p[j] += abs(a + line[j])
                q[j] += abs(b + line[j])
                r[j] += abs(c + line[j])
                s[j] += abs(e + line[j])
    for i in range(whole, groups):
        p = out[i, i:]
        for pair in range(count):
            line = differences[pair, i:]
            a = line[0]
            for j in range(line.size):
                p[j] += abs(a + line[j])

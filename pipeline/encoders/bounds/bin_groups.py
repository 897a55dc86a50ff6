"""Groups of bins: merged where that raises the kernel of near rows least."""

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.encoders.bounds.bin_groups_numba import summed_magnitudes
from mercore.pipeline.encoders.bounds.sample import PAIR_VALUES
from mercore.pipeline.kernels import Kernel

QUERIES, NEAR = 256, 32  # rows that stand for queries, and nearest rows of each
SHARE = 8  # one eighth of the groups is merged between two measurements
Group = NDArray[np.int64]


def near_pairs(kernel: Kernel, rows: NDArray[np.generic]) -> tuple[Float64, Float64]:
    """Return queries and their nearest rows in a sample, as pairs of histograms float64[p, d]."""
    prepared = kernel.prepare(rows)
    queries = prepared[: min(QUERIES, len(prepared) // 2 or 1)]
    scores = kernel.block(
        prepared.astype(np.float32), np.ascontiguousarray(queries.T.astype(np.float32))
    ).T
    itself = np.arange(len(queries))
    scores[itself, itself] = -np.inf
    near = max(1, min(NEAR, len(prepared) - 1))
    nearest = np.argpartition(scores, -near, axis=1)[:, -near:]
    histograms = kernel.histograms(prepared)
    return np.repeat(histograms[: len(queries)], near, axis=0), histograms[nearest.ravel()]


def learn_groups(first: Float64, second: Float64, counts: list[int]) -> list[list[Group]]:
    """Return nested groupings of bins, one for each count of groups: merged pair by pair, greedily.

    Merging bins i and j raises Σ min(x, y) by (|a| + |b| − |a + b|) / 2, where a and b are their
    differences x − y: by nothing if one row has more in both.

    Parameters
    ----------
    first, second : float64[p, d]
        Pairs of near histograms.
    counts : descending, at most d
    """
    differences = (first - second).astype(np.float32)
    groups = [np.array([bin_]) for bin_ in range(differences.shape[1])]
    levels = []
    for count in counts:
        groups, differences = _merged(groups, differences, count)
        levels.append([np.sort(group) for group in groups])
    return levels


def _merged(
    groups: list[Group], differences: NDArray[np.float32], count: int
) -> tuple[list[Group], NDArray[np.float32]]:
    """Merge groups until ``count`` are left.

    Return the groups, and the differences of near pairs per group.
    """
    while len(groups) > count:
        step = max(1, differences.size // PAIR_VALUES)
        pairs = _disjoint(
            merging_costs(differences[::step]),
            min(len(groups) - count, max(1, len(groups) // SHARE)),
        )
        merged = {group for pair in pairs for group in pair}
        kept = [group for group in range(len(groups)) if group not in merged]
        groups = [groups[group] for group in kept] + [
            np.concatenate([groups[i], groups[j]]) for i, j in pairs
        ]
        left, right = np.array(pairs).T
        differences = np.concatenate(
            [differences[:, kept], differences[:, left] + differences[:, right]], axis=1
        )
    return groups, differences


def merging_costs(differences: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean increase of pairs' intersection by merging two groups, float32[g, g]."""
    count, groups = differences.shape
    above = np.empty((groups, groups), np.float32)
    summed_magnitudes(np.ascontiguousarray(differences), above)
    alone, together = np.abs(differences).mean(axis=0), np.triu(above) / count
    return np.asarray((alone[:, None] + alone - together - np.triu(together, 1).T) / 2)


def _disjoint(costs: NDArray[np.float32], count: int) -> list[tuple[int, int]]:
    """Return at most ``count`` disjoint pairs, the cheapest first."""
    left, right = np.triu_indices(len(costs), 1)
    pairs: list[tuple[int, int]] = []
    used: set[int] = set()
    for place in np.argsort(costs[left, right], kind="stable").tolist():
        i, j = int(left[place]), int(right[place])
        if i not in used and j not in used:
            pairs.append((i, j))
            used |= {i, j}
            if len(pairs) == count:
                break
    return pairs

"""Centres of cells, by k-means in two levels, and the cells near points.

The points of a sample are clustered into about √C groups, and each group into its share of the C
cells. The cells of a group have successive numbers. A row belongs to the nearest centre among those
of its ``NEAR_GROUPS`` nearest groups: that costs about √C distances, not C. By this rule the points
of the sample then change cells, across the borders of groups, and centres move to their means.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.encoders.codebooks import on_threads
from mercore.pipeline.encoders.encoder import Model
from mercore.pipeline.kernels.blocks import pack_products, products
from mercore.pipeline.kernels.panels import Panels

ITERATIONS = 10  # of k-means in a group: more change little
MOVES = 3  # of the centres of all groups: more change little
PER_GROUP = 1 << 8  # points of the sample that groups are found with, per group
NEAR_GROUPS = 4  # measured on 314 615 rows: as good as all of them
BLOCK = 1 << 14  # points that are assigned at once
NEARNESS = 1 << 22  # distances of points and all centres that are held at once
CENTRES = "centres", "groups", "group_starts"  # model arrays


def learn_centres(points: Float32, cells: int, random_state: int) -> dict[str, NDArray[Any]]:
    """Return the centres of cells, learned from a sample [n, E] of at least ``cells`` points.

    Returns
    -------
    centres : float32[C, E], group by group
    groups : float32[G, E], the centres of the groups
    group_starts : int64[G + 1], the first cell of each group, and C
    """
    count = round(cells**0.5)
    some = points[:: max(1, len(points) // (PER_GROUP * count))]
    (found,) = on_threads(_means, [some], [count], [random_state])
    group = _nearest(points, found)
    counts = np.bincount(group, minlength=len(found))
    ends = np.rint(np.cumsum(counts) * (cells / len(points))).astype(np.int64)
    shares = np.diff(ends, prepend=0)
    kept = np.flatnonzero(shares)

    def divide(number: int) -> Float32:  # copies the points of one group at a time
        return _means(points[group == number], int(shares[number]), random_state)

    centres = on_threads(divide, kept.tolist())
    model = {
        "centres": np.concatenate(centres),
        "groups": found[kept],
        "group_starts": np.append(0, np.cumsum(shares[kept])),
    }
    for _ in range(MOVES):
        model["centres"] = _moved(points, model)
    return model


def _moved(points: Float32, model: Model) -> Float32:
    """Return the mean of the points of each cell; a cell without points keeps its centre."""
    before, old = Centres(model), model["centres"]
    blocks = [points[at : at + BLOCK] for at in range(0, len(points), BLOCK)]
    counts, sums = np.zeros(len(old)), np.zeros(old.shape)
    for block, cells in zip(blocks, on_threads(before.assign, blocks), strict=True):
        order = np.argsort(cells, kind="stable")
        present, first, count = np.unique(cells[order], return_index=True, return_counts=True)
        sums[present] += np.add.reduceat(block[order], first, axis=0, dtype=np.float64)
        counts[present] += count
    taken = counts > 0
    means = old.copy()
    means[taken] = sums[taken] / counts[taken, None]
    return means


def drawn_centres(points: Float32) -> dict[str, NDArray[Any]]:
    """Return points as the centres of cells, in groups of equal size: as ``learn_centres``."""
    groups = round(len(points) ** 0.5)
    starts = np.linspace(0, len(points), groups + 1).astype(np.int64)
    return {"centres": points, "groups": points[starts[:-1]], "group_starts": starts}


def _means(points: Float32, count: int, random_state: int) -> Float32:
    """Return k-means' centres of points, float32[count, E]; of equal points, equal ones."""
    from sklearn.cluster import KMeans

    if count >= len(points):
        return np.resize(points, (count, points.shape[1]))
    means = KMeans(count, n_init=1, max_iter=ITERATIONS, random_state=random_state)
    return np.asarray(means.fit(points).cluster_centers_, np.float32)


def _nearest(points: Float32, centres: Float32) -> NDArray[np.intp]:
    """Return the nearest centre of each point, the first of equally near ones."""
    table = CentreTable(centres)
    blocks = range(0, len(points), BLOCK)
    return np.concatenate([table.nearness(points[at : at + BLOCK]).argmax(axis=1) for at in blocks])


class CentreTable:
    """Centres [m, E], packed to compare points with."""

    def __init__(self, centres: Float32) -> None:
        self._columns: Panels = pack_products(np.ascontiguousarray(centres.T))
        self._halves = (np.square(centres, dtype=np.float64).sum(axis=1) / 2).astype(np.float32)

    def nearness(self, points: Float32) -> Float32:
        """Return ⟨x, c⟩ − ‖c‖² / 2, float32[n, m]: the greater, the nearer.

        A value depends on its point and its centre alone, to the bit.
        """
        found: Float32 = products(points, self._columns) - self._halves
        return found


class Centres:
    """The centres of a model: see ``learn_centres``."""

    def __init__(self, model: Model) -> None:
        self._centres, self._groups = model["centres"], CentreTable(model["groups"])
        self.group_starts: NDArray[np.int64] = model["group_starts"]

    def assign(self, points: Float32) -> NDArray[np.uint32]:
        """Return the cell of each point, uint32[n]: the first of equally near ones.

        The cell of a point does not depend on the others.
        """
        out = np.empty(len(points), np.uint32)
        for start in range(0, len(points), BLOCK):
            out[start : start + BLOCK] = self._assign(points[start : start + BLOCK])
        return out

    def _assign(self, points: Float32) -> NDArray[np.int64]:
        """Return the cells of a block of points."""
        to_groups, every = self._groups.nearness(points), np.arange(len(points))
        near = np.empty((len(points), min(NEAR_GROUPS, to_groups.shape[1])), np.int64)
        for column in near.T:  # twice as fast as argpartition
            column[:] = to_groups.argmax(axis=1)
            to_groups[every, column] = -np.inf
        order = np.argsort(near, axis=None, kind="stable")
        ends = np.cumsum(np.bincount(near.ravel(), minlength=len(self._tables)))
        best = np.full(len(points), -np.inf, np.float32)
        cells = np.zeros(len(points), np.int64)
        for group, chosen in enumerate(np.split(order, ends[:-1])):
            members = chosen // near.shape[1]
            if not len(members):
                continue
            found = self._tables[group].nearness(points[members])
            place = found.argmax(axis=1)
            score = found[np.arange(len(members)), place]
            better = score > best[members]
            best[members[better]] = score[better]
            cells[members[better]] = self.group_starts[group] + place[better]
        return cells

    def nearest(self, points: Float32, count: int) -> NDArray[np.int64]:
        """Return the ``count`` nearest cells of each point, int64[n, count], nearest first."""
        out = np.empty((len(points), count), np.int64)
        for number, nearness in self._to_every(points):
            out[number] = _first(-nearness, count)
        return out

    def rank(self, points: Float32, cells: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        """Return the number of cells nearer to a point than each of its cells, int32[n, K]."""
        out = np.empty(cells.shape, np.int32)
        for number, nearness in self._to_every(points):
            place = np.empty(len(nearness), np.int32)
            place[np.argsort(-nearness, kind="stable")] = np.arange(len(nearness), dtype=np.int32)
            out[number] = place[cells[number]]
        return out

    def _to_every(self, points: Float32) -> Iterator[tuple[int, Float32]]:
        """Yield each point's number and the nearness of all centres, a few points at a time."""
        step = max(1, NEARNESS // len(self._centres))
        for start in range(0, len(points), step):
            yield from enumerate(self._every.nearness(points[start : start + step]), start)

    @cached_property
    def _every(self) -> CentreTable:
        return CentreTable(self._centres)

    @cached_property
    def _tables(self) -> list[CentreTable]:
        """The centres of each group."""
        starts = self.group_starts
        return [
            CentreTable(self._centres[start:stop])
            for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]


def _first(distances: Float32, count: int) -> NDArray[np.intp]:
    """Return the places of the ``count`` least values, the least first: of equal ones the first."""
    if 4 * count < len(distances):  # only the least are sorted
        some = np.flatnonzero(distances <= np.partition(distances, count - 1)[count - 1])
        return some[np.argsort(distances[some], kind="stable")[:count]]
    return np.argsort(distances, kind="stable")[:count]

"""Recall as ann-benchmarks defines it: hits count by their distances, not by their ids.

``python ann_benchmarks.py DATASET.hdf5 RUN.hdf5 K`` prints the recall. The data set holds ``train``,
``test`` and the true ``distances`` [nq, ≥ k]; its attribute ``distance`` is ``euclidean`` or
``angular``. The run holds ``neighbors`` [nq, ≥ k], whose distances are computed here.
"""

import sys
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-3


def euclidean(query: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """‖query − row‖ of every row."""
    return np.asarray(np.linalg.norm(rows - query, axis=1))


def angular(query: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """1 − cos(query, row) of every row."""
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    return np.asarray(1 - rows @ query / lengths)


DISTANCES = {"euclidean": euclidean, "angular": angular}


def recall(dataset: str, run: str, k: int) -> float:
    """Share of the k hits per query that are no farther than the k-th true neighbour + 0.001."""
    with h5py.File(dataset) as data, h5py.File(run) as found:
        train, test = (np.asarray(data[name], np.float64) for name in ("train", "test"))
        distance = DISTANCES[data.attrs["distance"]]
        thresholds = np.asarray(data["distances"])[:, k - 1] + EPSILON
        hits = np.asarray(found["neighbors"])[:, :k]
    near = 0
    for query, ids, threshold in zip(test, hits, thresholds, strict=True):
        near += int((distance(query, train[ids[ids >= 0]]) <= threshold).sum())
    return near / (len(test) * k)


if __name__ == "__main__":
    sys.stdout.write(f"{recall(sys.argv[1], sys.argv[2], int(sys.argv[3]))}\n")

"""Float32 kernel blocks beside BLAS and scikit-learn: one thread, one run, interleaved, medians."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import additive_chi2_kernel, manhattan_distances, rbf_kernel
from threadpoolctl import threadpool_limits

from mercore.pipeline.arrays import Float32
from mercore.pipeline.kernels import make_kernel
from tests.benchmarks.scan import interleaved

Row = dict[str, Any]
Task = Callable[[], object]

ROWS, COLUMNS, DIMENSIONS = 256, 8192, (128, 384)
REPEATS = 7
PEER_ROWS = 16  # of additive_chi2_kernel and manhattan_distances: they are 20 to 100 times slower
BAG_DIMENSIONS, BAG_SHARE = 1000, 0.157  # of ImageNet's bags of words that are not zero
GAMMA = 0.7
KERNELS: dict[str, dict[str, Any]] = {
    "chi2": {},
    "exp_chi2": {"gamma": 1.0},
    "intersection": {},
    "jensen_shannon": {},
    "rbf": {"gamma": GAMMA},
}


def measure() -> list[Row]:
    """Return a row a kernel and dimension: 10⁹ terms a second, and as many times BLAS and
    scikit-learn."""
    with threadpool_limits(1):
        dense = [row for d in DIMENSIONS for row in _compare(*_histograms(d, 1.0), bag=False)]
        return dense + _compare(*_histograms(BAG_DIMENSIONS, BAG_SHARE), bag=True)


def _histograms(d: int, share: float) -> tuple[Float32, Float32]:
    """Return rows [256, d] and [8192, d] that sum to one, a share of them not zero."""
    rng = np.random.default_rng(d)
    rows = rng.gamma(0.5, size=(ROWS + COLUMNS, d)) * (rng.random((ROWS + COLUMNS, d)) < share)
    rows[:, 0] += 1e-3
    prepared = make_kernel("chi2").prepare(rows).astype(np.float32)
    return prepared[:ROWS], prepared[ROWS:]


def _compare(X: Float32, Y: Float32, *, bag: bool) -> list[Row]:
    """Return one row per kernel."""
    d, columns = X.shape[1], np.ascontiguousarray(Y.T)
    ours: dict[str, Task] = {name: _task(name, X, columns) for name in KERNELS}
    peers: dict[str, tuple[Task, int]] = {
        "chi2": (lambda: additive_chi2_kernel(X[:PEER_ROWS], Y), PEER_ROWS),
        "intersection": (lambda: manhattan_distances(X[:PEER_ROWS], Y), PEER_ROWS),
        "rbf": (lambda: rbf_kernel(X, Y, gamma=GAMMA), ROWS),
    }
    tasks = {"sgemm": lambda: X @ columns, **ours} | {
        f"peer {name}": task for name, (task, _) in peers.items()
    }
    seconds = interleaved(tasks, REPEATS)
    terms = {name: ROWS * COLUMNS * d / seconds[name] / 1e9 for name in ("sgemm", *ours)}
    theirs = {
        name: rows * COLUMNS * d / seconds[f"peer {name}"] / 1e9
        for name, (_, rows) in peers.items()
    }
    return [
        {
            "kernel": name,
            "d": d,
            "rows": f"{BAG_SHARE:.0%} not zero" if bag else "dense",
            "G terms/s": terms[name],
            "sgemm G terms/s": terms["sgemm"],
            "times sgemm": terms[name] / terms["sgemm"],
            "times scikit-learn": terms[name] / theirs[name] if name in theirs else None,
        }
        for name in ours
    ]


def _task(name: str, X: Float32, columns: Float32) -> Task:
    """Return what scores a block by the named kernel."""
    kernel = make_kernel(name, **KERNELS[name])
    return lambda: kernel.block(X, columns)

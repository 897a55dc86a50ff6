"""Float32 kernel blocks beside BLAS and scikit-learn: one thread, one run, interleaved, medians."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import additive_chi2_kernel, manhattan_distances, rbf_kernel
from threadpoolctl import threadpool_info, threadpool_limits

from mercore.pipeline.arrays import Float32
from mercore.pipeline.kernels import make_kernel
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.machine import processor
from tests.benchmarks.reporting.tables import Row

Task = Callable[[], object]

ROWS, COLUMNS = 256, 8192
REPEATS = 7
PEER_ROWS = 16  # of additive_chi2_kernel and manhattan_distances: they are 20 to 100 times slower
BAG_DIMENSIONS, BAG_SHARE = 1000, 0.157  # of ImageNet's bags of words that are not zero
GAMMA = 0.7
TIMES_SGEMM = "× sgemm"
CORE_TYPE, WIDE_CORE, NARROW = "OPENBLAS_CORETYPE", "SkylakeX", ("Haswell", "Zen")
KERNELS: dict[str, dict[str, Any]] = {
    "chi2": {},
    "exp_chi2": {"gamma": 1.0},
    "intersection": {},
    "jensen_shannon": {},
    "rbf": {"gamma": GAMMA},
}


def measure(dims: Sequence[int]) -> list[Row]:
    """Return a row per kernel and dimension: 10⁹ terms per second, beside BLAS and scikit-learn.

    Where BLAS takes narrower loops than the processor has, it is measured with wide ones too.
    """
    lines = _measure(dims)
    if _narrow_blas():
        for line, wide in zip(lines, _with_wide_blas(dims), strict=True):
            line[f"× sgemm, {CORE_TYPE}={WIDE_CORE}"] = wide[TIMES_SGEMM]
    return lines


def _measure(dims: Sequence[int]) -> list[Row]:
    with threadpool_limits(1):
        dense = [row for d in dims for row in _compare(*_histograms(d, 1.0), bag=False)]
        return dense + _compare(*_histograms(BAG_DIMENSIONS, BAG_SHARE), bag=True)


def _narrow_blas() -> bool:
    """Return whether numpy's BLAS takes AVX2 loops on a processor that has AVX-512."""
    if "AVX-512" not in processor():
        return False
    return any(
        each.get("architecture") in NARROW
        for each in threadpool_info()
        if "numpy.libs" in str(each["filepath"])
    )


def _with_wide_blas(dims: Sequence[int]) -> list[Row]:
    """Return the measurement in a process whose BLAS takes the loops for AVX-512."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, *map(str, dims)],
        env={**os.environ, CORE_TYPE: WIDE_CORE},
        capture_output=True,
        text=True,
        check=True,
    )
    lines: list[Row] = json.loads(done.stdout)
    return lines


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
            "G terms per second": terms[name],
            "sgemm, G terms per second": terms["sgemm"],
            TIMES_SGEMM: terms[name] / terms["sgemm"],
            "× scikit-learn": terms[name] / theirs[name] if name in theirs else None,
        }
        for name in ours
    ]


def _task(name: str, X: Float32, columns: Float32) -> Task:
    """Return what scores a block by the named kernel."""
    kernel = make_kernel(name, **KERNELS[name])
    return lambda: kernel.block(X, columns)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure([int(word) for word in sys.argv[1:]])))

"""What encoding a row costs on one core, beside its parts, SPAMS and scikit-learn; interleaved
medians of one run."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import spams
from numpy.typing import NDArray
from sklearn.linear_model import orthogonal_mp_gram
from threadpoolctl import threadpool_limits

from mercore.pipeline.encoders.aska import BLOCK_ROWS, PURSUITS, Aska, AskaSpec
from mercore.pipeline.kernels import make_kernel
from tests.support.making import histograms

Row = dict[str, Any]
Tasks = Mapping[str, Callable[[], object]]

KERNELS = ("cosine", "hellinger", "chi2", "intersection", "rbf", "exp_chi2", "jensen_shannon")
GAMMA = {"rbf": 1.0}
DIMS, ATOMS, SPARSITIES = (128, 384), (1024, 8192), (8, 32)
PEER_ROWS, MORE_PEER_ROWS, SKLEARN_ROWS = 2048, 12_000, 2
SIZES = (2048, 4096, 8192)
REPEATS = 5


def measure(rows: int = 2 * BLOCK_ROWS) -> dict[str, list[Row]]:
    """Return the tables: every kernel, its parts; SPAMS and scikit-learn; and whether the cost is
    linear in n."""
    with threadpool_limits(1):
        return {
            "µs a row": [
                row for case in product(KERNELS, DIMS, ATOMS) for row in _costs(*case, rows)
            ],
            "peers, hellinger, m = 8192, α = 8": [row for d in DIMS for row in _peers(d)],
            "linearity, chi2, d = 128, m = 8192, α = 8": _linearity(),
        }


def _costs(kernel: str, d: int, m: int, rows: int) -> list[Row]:
    """Return a line for each α: the whole of encoding with either pursuit, the kernel alone, a
    matrix product alone."""
    encoder, values = _encoder(kernel, d, m), histograms(rows, d, seed=2)
    prepared = encoder.kernel.prepare(values).astype(np.float32)
    atoms_t = np.random.default_rng(0).random((d, m), dtype=np.float32)
    product_of_block = np.empty((BLOCK_ROWS, m), np.float32)
    lines = []
    for alpha in SPARSITIES:
        tasks: dict[str, Callable[[], object]] = {
            pursuit: partial(_encode, encoder, values, pursuit=pursuit, alpha=alpha)
            for pursuit in PURSUITS
        }
        tasks["K(Y, D)"] = lambda: _blocks(
            prepared, lambda block: encoder.kernel.block(block, atoms_t)
        )
        tasks["sgemm"] = lambda: _blocks(
            prepared, lambda block: np.dot(block, atoms_t, out=product_of_block)
        )
        cost = {name: seconds / rows * 1e6 for name, seconds in _interleaved(tasks).items()}
        ratios = {f"{pursuit} / K(Y, D)": cost[pursuit] / cost["K(Y, D)"] for pursuit in PURSUITS}
        lines.append({"kernel": kernel, "d": d, "m": m, "α": alpha, **cost, **ratios})
    return lines


def _peers(d: int, m: int = 8192, alpha: int = 8) -> list[Row]:
    """Return one line per contestant: seconds with the Gram matrix, seconds per further row, and
    the residual²."""
    encoder, values = _encoder("hellinger", d, m), histograms(MORE_PEER_ROWS, d, seed=2)
    unit = encoder.kernel.prepare(values).astype(np.float32)
    atoms = np.asfortranarray(encoder._atoms_t.astype(np.float32))  # as the encoder prepared them
    tasks: dict[str, Callable[[], object]] = {}
    for count in (PEER_ROWS, MORE_PEER_ROWS):
        for pursuit in PURSUITS:
            tasks[f"{pursuit} {count}"] = partial(
                _encode, encoder, values[:count], pursuit=pursuit, alpha=alpha, prepare=True
            )
        tasks[f"spams {count}"] = partial(_spams, unit[:count], atoms, alpha)
    seconds = _interleaved(tasks, repeats=3)
    left = {"spams": _residual(unit[:PEER_ROWS], atoms, _spams(unit[:PEER_ROWS], atoms, alpha))}
    for pursuit in PURSUITS:
        left[pursuit] = _own_residual(encoder, values[:PEER_ROWS], pursuit, alpha)
    assert left["spams"] < 0.9  # with its default arguments it has returned codes that are all zero
    lines = [_peer_line(name, d, seconds, left[name]) for name in ("spams", *PURSUITS)]
    both, marginal = "µs a row, set-up included", "µs a row, marginal"
    for line in lines:
        line["× spams, set-up included"] = lines[0][both] / line[both]
        line["× spams with its set-up, ours made already"] = lines[0][both] / line[marginal]
        line["× spams, marginal"] = lines[0][marginal] / line[marginal]
    return [*lines, _sklearn(d, unit, atoms, alpha)]


def _peer_line(name: str, d: int, seconds: Mapping[str, float], residual: float) -> Row:
    few, many = seconds[f"{name} {PEER_ROWS}"], seconds[f"{name} {MORE_PEER_ROWS}"]
    return {
        "contestant": name,
        "d": d,
        "µs a row, set-up included": few / PEER_ROWS * 1e6,
        "µs a row, marginal": (many - few) / (MORE_PEER_ROWS - PEER_ROWS) * 1e6,
        "mean residual²": residual,
    }


def _sklearn(d: int, unit: NDArray[np.float32], atoms: NDArray[np.float32], alpha: int) -> Row:
    """Return scikit-learn's line: OMP of a few rows, the Gram matrix made already."""
    gram, start = atoms.T @ atoms, (unit[:SKLEARN_ROWS] @ atoms).T
    began = time.perf_counter()
    found = orthogonal_mp_gram(gram, np.ascontiguousarray(start), n_nonzero_coefs=alpha)
    each = (time.perf_counter() - began) / SKLEARN_ROWS * 1e6
    residual = float(np.square(unit[:SKLEARN_ROWS] - (atoms @ found).T).sum(axis=1).mean())
    line = {
        "contestant": "sklearn orthogonal_mp_gram",
        "d": d,
        "µs a row, set-up included": "",
        "µs a row, marginal": each,
    }
    return {
        **line,
        "mean residual²": residual,
        "× spams, set-up included": "",
        "× spams with its set-up, ours made already": "",
        "× spams, marginal": "",
    }


def _linearity() -> list[Row]:
    """Return the cost of a row among ever more of them."""
    encoder, values = _encoder("chi2", 128, 8192), histograms(max(SIZES), 128, seed=2)
    tasks = {str(n): partial(_encode, encoder, values[:n]) for n in SIZES}
    seconds = _interleaved(tasks, repeats=3)
    return [
        {"rows": n, "seconds": seconds[str(n)], "µs a row": seconds[str(n)] / n * 1e6}
        for n in SIZES
    ]


def _encoder(kernel: str, d: int, m: int) -> Aska:
    encoder = Aska(
        AskaSpec(n_atoms=m), make_kernel(kernel, gamma=GAMMA.get(kernel)), histograms(m, d, seed=1)
    )
    encoder.prepare_encoding()
    return encoder


def _encode(
    encoder: Aska,
    values: NDArray[Any],
    *,
    pursuit: str = "ormp",
    alpha: int = 8,
    prepare: bool = False,
) -> None:
    """Encode rows with a pursuit and a sparsity, which the Gram matrix does not depend on; make
    that too if asked."""
    encoder.spec = replace(encoder.spec, pursuit=pursuit, n_nonzero_coefs=alpha)
    if prepare:
        encoder.prepare_encoding()
    for first in range(0, len(values), BLOCK_ROWS):
        encoder.encode(values[first : first + BLOCK_ROWS], first=first)


def _blocks(values: NDArray[Any], use: Callable[[NDArray[Any]], object]) -> None:
    for first in range(0, len(values), BLOCK_ROWS):
        use(values[first : first + BLOCK_ROWS])


def _spams(unit: NDArray[np.float32], atoms: NDArray[np.float32], alpha: int) -> Any:
    """Return SPAMS's codes, a sparse matrix [m, n]."""
    return spams.omp(np.asfortranarray(unit.T), atoms, L=alpha, eps=0.0, lambda1=0.0, numThreads=1)


def _residual(unit: NDArray[np.float32], atoms: NDArray[np.float32], codes: Any) -> float:
    return float(np.square(unit.T - atoms @ codes.toarray()).sum(axis=0).mean())


def _own_residual(encoder: Aska, values: NDArray[Any], pursuit: str, alpha: int) -> float:
    """Return the mean residual² of the weights before they are rounded to bytes."""
    encoder.spec = replace(encoder.spec, pursuit=pursuit, n_nonzero_coefs=alpha, weights="float32")
    residual = encoder.encode(values)["residual"].astype(np.float64)
    encoder.spec = replace(encoder.spec, weights="int8")
    return float(np.square(residual).mean())


def _interleaved(tasks: Tasks, repeats: int = REPEATS) -> dict[str, float]:
    """Return the median seconds of each task; round after round, so that a slow minute meets all of
    them."""
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repeats + 1):
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values[1:]) for name, values in times.items()}

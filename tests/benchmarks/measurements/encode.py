"""What encoding a row costs on one core, beside its parts, SPAMS and scikit-learn; interleaved
medians of one run."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import orthogonal_mp_gram
from threadpoolctl import threadpool_limits

from mercore.pipeline.encoders.aska import BLOCK_ROWS, PURSUITS, Aska, AskaSpec
from mercore.pipeline.kernels import make_kernel
from mercore.testing.stores import histograms
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

try:
    import spams
except ImportError:  # it has no wheel for every Python
    spams = None

KERNELS = ("cosine", "hellinger", "chi2", "intersection", "rbf", "exp_chi2", "jensen_shannon")
GAMMA = {"rbf": 1.0}
SPARSITIES, SKLEARN_ROWS = (8, 32), 2
ORMP, OMP = "ormp", "omp"
PAPER, PAPER_CASE = 1500.0, ("chi2", 128, 8192, 8)  # Davis, Balzer & Soatto 2014
PAPER_TIME = "paper, µs per row"
SPAMS = "spams.omp (ORMP)"
KERNEL_ALONE = "K(y, D), µs per row"
WITH_SET_UP, FURTHER = "µs per row, set-up included", "µs per further row"
RESIDUAL = "mean residual²"


def costs(dims: Sequence[int], atoms: Sequence[int], rows: int) -> list[Row]:
    """Return microseconds per row on one thread by kernel, d, m and α, and of its parts."""
    with threadpool_limits(1):
        return [row for case in product(KERNELS, dims, atoms) for row in _costs(*case, rows)]


def peers(dims: Sequence[int], m: int, sizes: tuple[int, int]) -> list[Row]:
    """Return a row per contestant and d: hellinger, α = 8; ``sizes`` are a few rows, and more."""
    with threadpool_limits(1):
        return [row for d in dims for row in _peers(d, m, sizes)]


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
        cost = {name: seconds / rows * 1e6 for name, seconds in interleaved(tasks).items()}
        whole = cost[ORMP]
        lines.append(
            {
                "kernel": kernel,
                "d": d,
                "m": m,
                "α": alpha,
                "ORMP, µs per row": whole,
                "OMP, µs per row": cost[OMP],
                KERNEL_ALONE: cost["K(Y, D)"],
                "sgemm, µs per row": cost["sgemm"],
                "ORMP / K(y, D)": whole / cost["K(Y, D)"],
                "OMP / sgemm": cost[OMP] / cost["sgemm"],
                PAPER_TIME: PAPER if (kernel, d, m, alpha) == PAPER_CASE else None,
                "paper / ORMP": PAPER / whole if (kernel, d, m, alpha) == PAPER_CASE else None,
            }
        )
    return lines


def _peers(d: int, m: int, sizes: tuple[int, int], alpha: int = 8) -> list[Row]:
    """Return one line per contestant: µs per row with the Gram matrix, per further row, and the
    residual²."""
    few, many = sizes
    encoder, values = _encoder("hellinger", d, m), histograms(many, d, seed=2)
    unit = encoder.kernel.prepare(values).astype(np.float32)
    atoms = np.asfortranarray(encoder._atoms_t.astype(np.float32))  # as the encoder prepared them
    tasks: dict[str, Callable[[], object]] = {}
    for count in sizes:
        for pursuit in PURSUITS:
            tasks[f"{pursuit} {count}"] = partial(
                _encode, encoder, values[:count], pursuit=pursuit, alpha=alpha, prepare=True
            )
        if spams is not None:
            tasks[f"{SPAMS} {count}"] = partial(_spams, unit[:count], atoms, alpha)
    seconds = interleaved(tasks, repeats=3)
    left = {pursuit: _own_residual(encoder, values[:few], pursuit, alpha) for pursuit in PURSUITS}
    if spams is not None:
        left[SPAMS] = _residual(unit[:few], atoms, _spams(unit[:few], atoms, alpha))
        assert left[SPAMS] < 0.9  # with its default arguments it has returned codes of zeros
    lines = [_peer_line(name, d, seconds, sizes, left[name]) for name in left]
    spams_line = lines[-1] if spams is not None else _absent(d)
    if spams is not None:
        lines = [{**line, **_ratios(line, spams_line)} for line in lines[:-1]]
    return [*lines, spams_line, _sklearn(d, unit, atoms, alpha)]


def _absent(d: int) -> Row:
    """Return the line of SPAMS where it is not installed."""
    return {"contestant": SPAMS, "d": d, WITH_SET_UP: "not installed", FURTHER: "not installed"}


def _ratios(line: Row, theirs: Row) -> Row:
    """Return how many times as fast as SPAMS a contestant is."""
    return {
        "× SPAMS, set-up included": theirs[WITH_SET_UP] / line[WITH_SET_UP],
        "× SPAMS with its set-up, Gram matrix made before": theirs[WITH_SET_UP] / line[FURTHER],
        "× SPAMS, further rows": theirs[FURTHER] / line[FURTHER],
    }


def _peer_line(
    name: str, d: int, seconds: Mapping[str, float], sizes: tuple[int, int], residual: float
) -> Row:
    few, many = (seconds[f"{name} {count}"] for count in sizes)
    return {
        "contestant": name if name == SPAMS else f"mercore, {name.upper()}",
        "d": d,
        WITH_SET_UP: few / sizes[0] * 1e6,
        FURTHER: (many - few) / (sizes[1] - sizes[0]) * 1e6,
        RESIDUAL: residual,
    }


def _sklearn(d: int, unit: NDArray[np.float32], atoms: NDArray[np.float32], alpha: int) -> Row:
    """Return scikit-learn's line: OMP of a few rows, the Gram matrix made already."""
    gram, start = atoms.T @ atoms, (unit[:SKLEARN_ROWS] @ atoms).T
    began = time.perf_counter()
    found = orthogonal_mp_gram(gram, np.ascontiguousarray(start), n_nonzero_coefs=alpha)
    each = (time.perf_counter() - began) / SKLEARN_ROWS * 1e6
    residual = float(np.square(unit[:SKLEARN_ROWS] - (atoms @ found).T).sum(axis=1).mean())
    return {
        "contestant": "scikit-learn orthogonal_mp_gram",
        "d": d,
        WITH_SET_UP: None,
        FURTHER: each,
        RESIDUAL: residual,
    }


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

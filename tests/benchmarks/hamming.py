"""The Hamming and the dense scanner beside faiss: the same rows, one thread, one run, interleaved,
medians."""

from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.scanners.dense import DenseScanner
from mercore.pipeline.scanners.hamming import HammingScanner
from mercore.pipeline.scanners.scanner import Scanner
from mercore.pipeline.topk import TopK
from tests.benchmarks import scan_numba
from tests.benchmarks.scan import interleaved

Row = dict[str, Any]
Task = Callable[[], object]

K, BATCHES, REPEATS = 100, (1, 32, 64, 128), 7
BITS, ROWS, BYTES = (
    (64, 128, 256, 512),
    10_000_000,
    320_000_000,
)  # the greatest numbers of rows, and of bytes of codes
PLANTED, FLIPPED = 200, 0.2  # rows near each query, and the share of their bits that differ
DENSE_ROWS, DENSE_DIMENSIONS = 1_000_000, 128


def measure() -> dict[str, list[Row]]:
    """Return a table of each length of codes, and one of float rows."""
    faiss.omp_set_num_threads(1)
    return {f"{bits} bits": hamming(bits) for bits in BITS} | {"inner product, d = 128": dense()}


def hamming(bits: int) -> list[Row]:
    """Return the table of codes of so many bits, after checking that both find the same."""
    n = min(ROWS, BYTES // (bits // 8))
    codes, queries = made_codes(n, bits // 8)
    index = faiss.IndexBinaryFlat(bits)
    index.add(codes)
    tasks: dict[str, tuple[int, Task]] = {}
    for nq in BATCHES:
        compare(codes, queries[:nq], index)
        scanner = HammingScanner(queries[:nq], bits)
        tasks[f"ours, {nq}"] = nq, partial(scanned, scanner, {"code": codes}, nq)
        tasks[f"IndexBinaryFlat, {nq}"] = nq, partial(index.search, queries[:nq], K)
    tasks["bare read of the bytes"] = 1, partial(scan_numba.read, codes.reshape(-1).view(np.uint64))
    return rows_of(tasks, n, "IndexBinaryFlat")


def dense() -> list[Row]:
    """Return the table of float32 rows by inner product; the BLAS behind faiss rounds otherwise, so
    ids may differ."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(DENSE_ROWS, DENSE_DIMENSIONS)).astype(np.float32)
    points = rng.normal(size=(max(BATCHES), DENSE_DIMENSIONS)).astype(np.float32)
    index = faiss.IndexFlatIP(DENSE_DIMENSIONS)
    index.add(values)
    tasks: dict[str, tuple[int, Task]] = {}
    for nq in BATCHES:
        scanner = DenseScanner(points[:nq], "point")
        tasks[f"ours, {nq}"] = nq, partial(scanned, scanner, {"point": values}, nq)
        tasks[f"IndexFlatIP, {nq}"] = nq, partial(index.search, points[:nq], K)
    tasks["bare read of the bytes"] = (
        1,
        partial(scan_numba.read, values.reshape(-1).view(np.uint64)),
    )
    return rows_of(tasks, DENSE_ROWS, "IndexFlatIP")


def made_codes(n: int, width: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return random codes [n, width] and queries [128, width]; some rows are near each query."""
    rng = np.random.default_rng(width)
    codes = rng.integers(0, 256, (n, width), dtype=np.uint8)
    queries = rng.integers(0, 256, (max(BATCHES), width), dtype=np.uint8)
    near = rng.integers(0, n, (len(queries), PLANTED))
    flips = np.packbits(rng.random((len(queries), PLANTED, 8 * width)) < FLIPPED, axis=2)
    codes[near] = queries[:, None] ^ flips
    return codes, queries


def scanned(scanner: Scanner, columns: dict[str, NDArray[Any]], nq: int) -> TopK:
    """Scan all rows as one part."""
    best = TopK(nq, K, np.float32)
    scanner.scan(columns, 0, best)
    return best


def compare(
    codes: NDArray[np.uint8], queries: NDArray[np.uint8], index: faiss.IndexBinaryFlat
) -> None:
    """Check that faiss has the same distances, and the same rows wherever they are nearer than the
    k-th.

    Raises
    ------
    ValueError
        If not.
    """
    bits, nq = 8 * codes.shape[1], len(queries)
    best = scanned(HammingScanner(queries, bits), {"code": codes}, nq)
    distances, ids = index.search(queries, K)
    if not np.array_equal(best.scores, (1 - distances / bits).astype(np.float32)):
        raise ValueError(f"distances of {bits} bits and {nq} queries are not those of faiss")
    for query, nearer in enumerate(distances < distances[:, -1:]):
        if set(best.ids[query, nearer]) != set(ids[query, nearer]):
            raise ValueError(f"rows of {bits} bits and query {query} are not those of faiss")


def rows_of(tasks: dict[str, tuple[int, Task]], n: int, peer: str) -> list[Row]:
    """Return a line a contestant: nanoseconds a pair of row and query, and how many times as fast
    as its peer."""
    seconds = interleaved({name: task for name, (_, task) in tasks.items()}, REPEATS)
    pairs = {name: value / n / tasks[name][0] * 1e9 for name, value in seconds.items()}
    return [
        {
            "contestant, queries": name,
            "ns per row and query": value,
            f"× {peer}": pairs[_peer(name, peer)] / value,
        }
        for name, value in pairs.items()
    ]


def _peer(name: str, peer: str) -> str:
    """Return the contestant of the peer with as many queries; one where there are none."""
    return f"{peer}, {name.split(', ')[1] if ', ' in name else 1}"

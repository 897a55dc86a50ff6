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
from tests.benchmarks.measurements import scan_numba
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

Task = Callable[[], object]

K, BATCHES, REPEATS = 100, (1, 32, 64, 128), 7
OURS, FAISS, READ = "mercore", "faiss", "only reading the bytes"
BITS, ROWS, BYTES = (
    (64, 128, 256, 512),
    10_000_000,
    320_000_000,
)  # the greatest numbers of rows, and of bytes of codes
PLANTED, FLIPPED = 200, 0.2  # rows near each query, and the share of their bits that differ
DENSE_ROWS, DENSE_DIMENSIONS = 1_000_000, 128


def hamming(bits: int, most: int = ROWS) -> Row:
    """Return the row of codes of ``bits`` bits, after checking that both find the same rows."""
    n = min(most, BYTES // (bits // 8))
    codes, queries = made_codes(n, bits // 8)
    index = faiss.IndexBinaryFlat(bits)
    index.add(codes)
    tasks: dict[tuple[str, int], Task] = {}
    for nq in BATCHES:
        compare(codes, queries[:nq], index)
        scanner = HammingScanner(queries[:nq], bits)
        tasks[OURS, nq] = partial(scanned, scanner, {"code": codes}, nq)
        tasks[FAISS, nq] = partial(index.search, queries[:nq], K)
    tasks[READ, 1] = partial(scan_numba.read, codes.reshape(-1).view(np.uint64))
    return {"bits": bits, "rows": n} | beside_faiss(tasks, n)


def dense(rows: int = DENSE_ROWS) -> Row:
    """Return the row of float32 rows by inner product; the BLAS behind faiss rounds otherwise, so
    ids may differ."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(rows, DENSE_DIMENSIONS)).astype(np.float32)
    points = rng.normal(size=(max(BATCHES), DENSE_DIMENSIONS)).astype(np.float32)
    index = faiss.IndexFlatIP(DENSE_DIMENSIONS)
    index.add(values)
    tasks: dict[tuple[str, int], Task] = {}
    for nq in BATCHES:
        scanner = DenseScanner(points[:nq], "point")
        tasks[OURS, nq] = partial(scanned, scanner, {"point": values}, nq)
        tasks[FAISS, nq] = partial(index.search, points[:nq], K)
    tasks[READ, 1] = partial(scan_numba.read, values.reshape(-1).view(np.uint64))
    return {"rows": rows} | beside_faiss(tasks, rows)


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


def beside_faiss(tasks: dict[tuple[str, int], Task], n: int) -> Row:
    """Return ns per row and query of each batch, and the speed as a multiple of that of faiss."""
    seconds = interleaved({f"{name}|{nq}": task for (name, nq), task in tasks.items()}, REPEATS)
    pairs = {(name, nq): seconds[f"{name}|{nq}"] / n / nq * 1e9 for name, nq in tasks}
    row: Row = {}
    for nq in BATCHES:
        batch = "one query" if nq == 1 else f"{nq} queries"
        row[f"{batch}, ns"] = pairs[OURS, nq]
        row[f"{batch}, × faiss"] = pairs[FAISS, nq] / pairs[OURS, nq]
        if nq == 1:
            row["% of the bare read's speed"] = 100 * pairs[READ, 1] / pairs[OURS, 1]
    return row

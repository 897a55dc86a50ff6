"""The scanner beside its peers: one run, interleaved, medians, the same rows and threads; and the
machine's limits."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.aska import Aska
from mercore.pipeline.scanners.sparse import QueryGroup, SparseScanner, float32_weights
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.pipeline.topk import TopK
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.part_store.page_cache import chunk_files, forget
from mercore.stores.rows import open_rows
from tests.benchmarks.measurements import scan_numba
from tests.benchmarks.measurements.timing import REPEATS, interleaved
from tests.benchmarks.reporting.tables import Row

Columns = dict[str, NDArray[Any]]

K, BATCH, BATCHES = 100, 64, (32, 64, 128)
PAPER_ROWS = 79_000_000  # of Davis, Balzer & Soatto 2014
OURS, READ = "mercore", "only reading the bytes"
INDEX_PQ, FAST_SCAN = "faiss IndexPQ, M = 8", "faiss IndexPQFastScan, 16 × 4 bits"
SCIPY = "scipy CSR × dense, scores only"
SPARSE_ROWS = 200_000  # scipy writes all scores, and there would be 64 × 10⁷ of them


class Contest:
    """Everything that is timed scores the same number of rows; times are seconds of one call."""

    def __init__(self, codes: str, queries: str) -> None:
        self.store = open_code_store(Path(codes))
        encoder = encoder_of(self.store)
        assert isinstance(encoder, Aska)
        self.encoder = encoder
        self.n = self.store.rows
        source = open_rows(queries)
        spread = np.linspace(0, source.shape[0] - 1, 2 * BATCH).astype(int)
        self.queries = np.concatenate([source.read(row, row + 1) for row in spread])
        scanner = encoder.scanner(self.queries[:BATCH])
        stored = load(self.store, scanner.names)
        self.columns = dict(encoder.unpacked(stored))
        by_distance = {"factor": stored["scale"].astype(np.float32), "residual": stored["residual"]}
        self.by_distance = {**self.columns, **by_distance}
        self.groups = scanner.groups
        self.one = encoder.scanner(self.queries[:1]).groups
        self.table = self.encoder.table(self.queries[:BATCH])
        self.plain_groups = [QueryGroup(slice(0, BATCH), self.table, alpha=8, int8=False)]
        self.exact, self.fast = faiss_indexes(self.n)
        self.points = np.random.default_rng(1).random((2 * BATCH, 64), dtype=np.float32)
        self.plain_one = [QueryGroup(slice(0, 1), self.table[:, :1], alpha=8, int8=False)]

    def ours(self, groups: list[QueryGroup]) -> TopK:
        """Scan the resident codes, selection and exact rescoring included."""
        return scan_resident(self.columns, groups)


def load(store: CodeStore, names: Sequence[str]) -> Columns:
    """Return columns of a code store in memory, read and checked."""
    parts = [
        {name: store.store.read_chunk(receipt, name) for name in names}
        for receipt in store.receipts
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def scan_resident(columns: Columns, groups: list[QueryGroup]) -> TopK:
    """Scan columns in memory; those with a residual are ranked by distance."""
    metric = "distance" if "residual" in columns else "product"
    best = TopK(groups[-1].queries.stop, K, np.float32)
    SparseScanner(groups, metric=metric).scan(columns, 0, best)
    return best


def faiss_indexes(n: int) -> tuple[faiss.IndexPQ, faiss.IndexPQFastScan]:
    """Return faiss' 8-byte indexes of n random codes: IndexPQ with M = 8, and FastScan with 16 × 4
    bits."""
    rng = np.random.default_rng(0)
    sample = rng.random((20_000, 64), dtype=np.float32)
    exact, fast = faiss.IndexPQ(64, 8, 8), faiss.IndexPQFastScan(64, 16, 4)
    exact.train(sample)
    fast.train(sample)
    faiss.copy_array_to_vector(rng.integers(0, 256, n * 8, dtype=np.uint8), exact.codes)
    exact.ntotal = n
    for start in range(0, n, 500_000):
        fast.add(rng.random((min(500_000, n - start), 64), dtype=np.float32))
    return exact, fast


def one(contest: Contest) -> list[Row]:
    """Return the table of one query on one thread."""
    tasks: dict[str, Callable[[], object]] = {
        OURS: lambda: contest.ours(contest.one),
        f"{OURS}, float32 loop": lambda: contest.ours(contest.plain_one),
        f"{OURS}, by distance": lambda: scan_resident(contest.by_distance, contest.one),
        INDEX_PQ: lambda: contest.exact.search(contest.points[:1], K),
        READ: lambda: [scan_numba.read(_words(values)) for values in contest.columns.values()],
    }
    seconds = {name: value / contest.n for name, value in interleaved(tasks, repeats=9).items()}
    return [
        {
            "contestant": name,
            "queries": 1,
            "ns per row and query": value * 1e9,
            "× IndexPQ": seconds[INDEX_PQ] / value,
            "% of the bare read's speed": 100 * seconds[READ] / value,
            "s per query of 79 million codes": value * PAPER_ROWS,
        }
        for name, value in seconds.items()
    ]


def batches(contest: Contest) -> list[Row]:
    """Return the table of batches on one thread: ours of 32 to 128 queries, the peers' of 64 and
    128."""
    matrix = _sparse(contest)
    groups = {count: contest.encoder.scanner(contest.queries[:count]).groups for count in BATCHES}
    tasks: dict[tuple[str, int], Callable[[], object]] = {
        **{(OURS, count): partial(contest.ours, groups[count]) for count in BATCHES},
        (f"{OURS}, with making its tables K(D, x)", BATCH): lambda: contest.ours(
            contest.encoder.scanner(contest.queries[:BATCH]).groups
        ),
        (f"{OURS}, float32 loop", BATCH): lambda: contest.ours(contest.plain_groups),
        (f"{OURS}, by distance", BATCH): lambda: scan_resident(contest.by_distance, contest.groups),
        (INDEX_PQ, BATCH): lambda: contest.exact.search(contest.points[:BATCH], K),
        (FAST_SCAN, BATCH): lambda: contest.fast.search(contest.points[:BATCH], K),
        (FAST_SCAN, 2 * BATCH): lambda: contest.fast.search(contest.points, K),
        (SCIPY, BATCH): lambda: matrix @ contest.table,
    }
    found = interleaved({f"{name}|{count}": task for (name, count), task in tasks.items()})
    seconds = {(name, count): found[f"{name}|{count}"] / contest.n / count for name, count in tasks}
    seconds[SCIPY, BATCH] *= contest.n / matrix.shape[0]
    return [
        {
            "contestant": name,
            "queries": count,
            "ns per row and query": value * 1e9,
            "× IndexPQ": seconds[INDEX_PQ, BATCH] / value,
            "× FastScan": seconds[FAST_SCAN, BATCH] / value,
        }
        for (name, count), value in seconds.items()
    ]


def streaming(contest: Contest) -> list[Row]:
    """Return GB/s of a scan from disk, the page cache dropped before each, beside reading the same
    files."""
    files = chunk_files(contest.store.store, range(contest.store.parts))
    size = sum(path.stat().st_size for path in files)
    tasks: dict[str, Callable[[], object]] = {
        "readinto": lambda: _read_files(files, scan_numba.nothing),
        "readinto + crc32c": lambda: _read_files(files, scan_numba.checksum),
    }
    for threads in (1, 2):
        for name, queries in (
            ("one query", contest.queries[:1]),
            (f"batch of {BATCH}", contest.queries[:BATCH]),
        ):
            scan = partial(
                scan_codes, OpenCodes(contest.store, contest.encoder), queries, K, threads=threads
            )
            tasks[f"scan, {name}, {'two threads' if threads == 2 else 'one thread'}"] = scan
    cold: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(REPEATS):
        for name, task in tasks.items():
            forget(files)
            began = time.perf_counter()
            task()
            cold[name].append(time.perf_counter() - began)
    warm = interleaved(tasks, repeats=3)
    return [
        {
            "work": name,
            "GB/s, cold": size / statistics.median(cold[name]) / 1e9,
            "GB/s, warm": size / warm[name] / 1e9,
        }
        for name in tasks
    ]


def _read_files(files: list[Path], use: Callable[[NDArray[np.uint8]], object]) -> None:
    """Read files one after another into one buffer."""
    buffer = np.empty(max(path.stat().st_size for path in files), np.uint8)
    for path in files:
        with path.open("rb", buffering=0) as file:
            count = file.readinto(buffer.data)
        use(buffer[:count])


def _words(values: NDArray[Any]) -> NDArray[np.uint64]:
    flat = values.reshape(-1).view(np.uint8)
    return flat[: flat.size // 8 * 8].view(np.uint64)


def _sparse(contest: Contest) -> scipy.sparse.csr_array:
    """Return the first codes as a scipy matrix, float32[rows, m]."""
    columns = {name: values[:SPARSE_ROWS] for name, values in contest.columns.items()}
    n, alpha = columns["atoms"].shape
    starts = np.arange(0, n * alpha + 1, alpha)
    weights, atoms = float32_weights(columns).ravel(), columns["atoms"].astype(np.int32).ravel()
    return scipy.sparse.csr_array((weights, atoms, starts), (n, contest.encoder.spec.n_atoms))

"""The scan of product-quantisation codes beside faiss: the same codes, one thread, one run,
interleaved, medians."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from mercore.jobs.resources.execution import available_cores
from mercore.pipeline.scanners.pq import PqScanner
from mercore.pipeline.topk import TopK
from mercore.stores.rows import open_rows
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

Float32 = NDArray[np.float32]

K, BATCH, BATCHES = 100, 64, (32, 64, 128)
OURS, INDEX_PQ, FAST_SCAN = "mercore", "faiss IndexPQ", "faiss IndexPQFastScan"
PART = 1 << 20  # rows a part, as a store has them
BLOCK = 1 << 17  # rows encoded at once
TRAINING = 1 << 16


class Contest:
    """The same rows as codes of M bytes: ours and faiss' of 8 bits, FastScan's of 4 bits."""

    def __init__(self, base: str, queries: str, M: int) -> None:
        source, asked = open_rows(base), open_rows(queries)
        self.n, self.d = source.shape
        spread = np.linspace(0, asked.shape[0] - 1, max(BATCHES)).astype(int)
        self.queries = np.concatenate([asked.read(row, row + 1) for row in spread]).astype(
            np.float32
        )
        self.exact = faiss.IndexPQ(self.d, M, 8)
        self.product = faiss.IndexPQ(self.d, M, 8, faiss.METRIC_INNER_PRODUCT)
        self.fast = faiss.IndexPQFastScan(self.d, 2 * M, 4)
        sample = np.concatenate(
            [source.read(at, at + 1024) for at in _spread(self.n, TRAINING)]
        ).astype(np.float32)
        for index in (self.exact, self.fast):
            index.train(sample)
        flat = faiss.IndexFlatL2(self.d)
        self.truth = np.full((BATCH, 1), -1, np.int64), np.full((BATCH, 1), np.inf, np.float32)
        for start, rows in _blocks(source):
            self.exact.add(rows)
            self.fast.add(rows)
            flat.add(rows)
            self._nearer(*flat.search(self.queries[:BATCH], 1), start)
            flat.reset()
        self.product.pq, self.product.ntotal, self.product.is_trained = self.exact.pq, self.n, True
        self.product.codes = self.exact.codes
        self.codes = faiss.vector_to_array(self.exact.codes).reshape(self.n, M)

    def _nearer(self, distances: Float32, ids: NDArray[np.int64], start: int) -> None:
        """Take a block's nearest rows into the truth."""
        nearer = distances < self.truth[1]
        self.truth[0][nearer], self.truth[1][nearer] = ids[nearer] + start, distances[nearer]

    def tables(self, count: int, *, product: bool = False) -> Float32:
        """Return faiss' tables as ours, float32[M, 256, count]: −‖q − c‖², or q · c."""
        pq, points = self.exact.pq, np.ascontiguousarray(self.queries[:count])
        values = np.empty((count, pq.M, 256), np.float32)
        make = pq.compute_inner_prod_tables if product else pq.compute_distance_tables
        make(count, faiss.swig_ptr(points), faiss.swig_ptr(values))
        return np.ascontiguousarray(np.moveaxis(values if product else -values, 0, 2))

    def ours(self, count: int, *, product: bool = False) -> TopK:
        """Make the tables and scan the codes part by part, selection and exact rescoring
        included."""
        scanner, best = PqScanner(self.tables(count, product=product)), TopK(count, K, np.float32)
        for first in range(0, self.n, PART):
            scanner.scan({"code": self.codes[first : first + PART]}, first, best)
        return best


def opened(base: str, queries: str, M: int) -> Contest:
    """Encode all rows by faiss on every core; what is timed afterwards runs on one.

    ``base`` are the rows to encode: for ten million, those that the command ``jitter`` writes.
    """
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(available_cores())
    contest = Contest(base, queries, M)
    faiss.omp_set_num_threads(threads)
    return contest


def speed(contest: Contest) -> list[Row]:
    """Return nanoseconds per row and query, and how many times as fast as each peer."""
    tasks: dict[tuple[str, int], Callable[[], object]] = {}
    for count in (1, *BATCHES):
        tasks[OURS, count] = partial(contest.ours, count)
    for count in (1, BATCH):
        points = contest.queries[:count]
        tasks[INDEX_PQ, count] = partial(contest.exact.search, points, K)
        tasks[FAST_SCAN, count] = partial(contest.fast.search, points, K)
    found = interleaved({f"{name}|{count}": task for (name, count), task in tasks.items()})
    seconds = {(name, count): found[f"{name}|{count}"] / contest.n / count for name, count in tasks}
    return [
        {
            "bytes per row": contest.codes.shape[1],
            "contestant": name,
            "queries": count,
            "ns per row and query": value * 1e9,
            "× IndexPQ": seconds[INDEX_PQ, 1 if count == 1 else BATCH] / value,
            "× FastScan": seconds[FAST_SCAN, 1 if count == 1 else BATCH] / value,
        }
        for (name, count), value in seconds.items()
    ]


def agreement(contest: Contest, *, product: bool) -> Row:
    """Return how many of our hits faiss finds; what it does not must tie with its last, within
    rounding."""
    index, best = (
        contest.product if product else contest.exact,
        contest.ours(BATCH, product=product),
    )
    scores, ids = index.search(contest.queries[:BATCH], K)
    same, strays = 0, 0
    for q in range(BATCH):
        last = abs(float(scores[q, -1]))
        shared = np.isin(best.ids[q], ids[q])
        same += int(shared.sum())
        strays += int((np.abs(np.abs(best.scores[q][~shared]) - last) > 1e-6 * last).sum())
    return {
        "bytes per row": contest.codes.shape[1],
        "metric": "inner product" if product else "L2",
        "hits": BATCH * K,
        "faiss has them": same,
        "of the others, not tied with its last": strays,
        "pairs rescored, %": 100 * best.rescored / contest.n / BATCH,
    }


def nearest_found(contest: Contest) -> Row:
    """Return the share of queries whose exact nearest row each finds."""
    points, true = contest.queries[:BATCH], contest.truth[0]
    found = {OURS: contest.ours(BATCH).ids}
    found |= {
        INDEX_PQ: contest.exact.search(points, K)[1],
        FAST_SCAN: contest.fast.search(points, K)[1],
    }
    shares = {name: float((ids == true).any(axis=1).mean()) for name, ids in found.items()}
    return {"bytes per row": contest.codes.shape[1], **shares}


def _spread(n: int, count: int) -> list[int]:
    """Return the starts of runs of 1024 rows, ``count`` rows in all, spread over n."""
    return sorted({int(start) for start in np.linspace(0, max(0, n - 1024), count // 1024)})


def _blocks(source: Any) -> Iterator[tuple[int, Float32]]:
    """Yield the first row and the rows of each block."""
    for start in range(0, source.shape[0], BLOCK):
        yield start, source.read(start, min(start + BLOCK, source.shape[0])).astype(np.float32)

"""The scan of product-quantisation codes beside faiss: the same codes, one thread, one run,
interleaved, medians."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.scanners.pq import PqScanner
from mercore.pipeline.topk import TopK
from mercore.stores.rows import open_rows
from tests.benchmarks.scan import interleaved

Row = dict[str, Any]
Float32 = NDArray[np.float32]

K, BATCH, BATCHES, REPEATS = 100, 64, (32, 64, 128), 5
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


def measure(base: str, queries: str) -> dict[str, list[Row]]:
    """Return the tables: speed and agreement with faiss for codes of 8 and of 16 bytes.

    ``base`` are the rows to encode: for ten million, those that the command ``jitter`` writes.
    """
    threads = faiss.omp_get_max_threads()
    results = {}
    for M in (8, 16):
        faiss.omp_set_num_threads(threads)  # to encode
        contest = Contest(base, queries, M)
        faiss.omp_set_num_threads(1)
        results[f"M = {M}, {contest.n:,} rows"] = _speed(contest)
        results[f"M = {M}, agreement"] = [
            _agreement(contest, product=product) for product in (False, True)
        ]
        results[f"M = {M}, exact neighbour among the first {K}"] = [_recall(contest)]
    return results


def _speed(contest: Contest) -> list[Row]:
    """Return nanoseconds a row and query, and how many times as fast as each peer."""
    tasks: dict[str, tuple[int, Callable[[], object]]] = {
        "ours, one query": (1, partial(contest.ours, 1)),
        "faiss IndexPQ, one query": (1, partial(contest.exact.search, contest.queries[:1], K)),
        "faiss FastScan, one query": (1, partial(contest.fast.search, contest.queries[:1], K)),
        "faiss IndexPQ": (BATCH, partial(contest.exact.search, contest.queries[:BATCH], K)),
        "faiss FastScan": (BATCH, partial(contest.fast.search, contest.queries[:BATCH], K)),
    }
    for count in BATCHES:
        tasks[f"ours, {count} queries"] = count, partial(contest.ours, count)
    seconds = interleaved({name: task for name, (_, task) in tasks.items()})
    seconds = {name: value / contest.n / tasks[name][0] for name, value in seconds.items()}
    return [
        {"contestant": name, "ns per row and query": value * 1e9}
        | {
            f"× {peer}": seconds[_peer(peer, name)] / value
            for peer in ("faiss IndexPQ", "faiss FastScan")
        }
        for name, value in seconds.items()
    ]


def _peer(peer: str, name: str) -> str:
    """Return the peer's task of as many queries."""
    return f"{peer}, one query" if "one query" in name else peer


def _agreement(contest: Contest, *, product: bool) -> Row:
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
        "metric": "inner product" if product else "L2",
        "hits": BATCH * K,
        "faiss has them": same,
        "of the rest, not tied with its last": strays,
        "pairs rescored, of all": best.rescored / contest.n / BATCH,
    }


def _recall(contest: Contest) -> Row:
    """Return the share of queries whose exact nearest row each finds."""
    points, true = contest.queries[:BATCH], contest.truth[0]
    found = {"ours": contest.ours(BATCH).ids}
    found |= {
        "IndexPQ": contest.exact.search(points, K)[1],
        "FastScan": contest.fast.search(points, K)[1],
    }
    return {name: float((ids == true).any(axis=1).mean()) for name, ids in found.items()}


def _spread(n: int, count: int) -> list[int]:
    """Return the starts of runs of 1024 rows, ``count`` rows in all, spread over n."""
    return sorted({int(start) for start in np.linspace(0, max(0, n - 1024), count // 1024)})


def _blocks(source: Any) -> Iterator[tuple[int, Float32]]:
    """Yield the first row and the rows of each block."""
    for start in range(0, source.shape[0], BLOCK):
        yield start, source.read(start, min(start + BLOCK, source.shape[0])).astype(np.float32)

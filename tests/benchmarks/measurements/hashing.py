"""Hashing encoders and sorted orders: the best options, and times beside the scan."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory

from mercore.jobs import api
from mercore.pipeline.measures.recognition import Classifier
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_vectors
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row


@dataclass(frozen=True, eq=False, kw_only=True)
class Named:
    """A set of vectors: its store, its queries, others to choose options by, and labels if known."""

    name: str
    store: str
    queries: str
    other_queries: str | None = None
    classes: Classifier | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return open_vectors(self.store).rows


def best(
    data: Named, kernel: str, options: Sequence[tuple[int, float | None]], others: str
) -> tuple[int, float | None]:
    """Return the rank and the s of the greatest R@100, by a seed and queries of their own.

    Parameters
    ----------
    options : ranks, and s of the transform or None
    others : the other options of klsh, as text
    """
    assert data.other_queries is not None
    _, truth = api.search(data.store, data.other_queries, k=1, kernel=kernel)
    found = {}
    for rank, scale in options:
        with TemporaryDirectory() as folder:
            codes = f"{folder}/codes"
            encoder = f"klsh:{others},rank={rank},random-state=1000"
            api.encode(data.store, codes, encoder=encoder, kernel=kernel, transform=scale)
            _, hits = api.search(codes, data.other_queries, k=100)
            found[rank, scale] = recall_of(hits, truth, 100)
    return max(found, key=lambda each: found[each])


def recall_of(hits: Hits, truth: Hits, rank: int) -> float:
    """Return the share of queries whose true nearest row is among the first ``rank`` hits."""
    return float((hits.ids[:, :rank] == truth.ids[:, :1]).any(axis=1).mean())


@dataclass(frozen=True, eq=False, kw_only=True)
class Searches:
    """Two ways to search binary codes: every code with reranking, and sorted orders.

    ``truth`` has the neighbours of every ``step``-th query.
    """

    codes: str
    orders: str
    queries: str
    truth: Hits
    step: int
    k: int

    def recall(self, hits: Hits) -> float:
        """Return R@1 of hits."""
        some = Hits(ids=hits.ids[:: self.step], scores=None)
        return recall_of(some, self.truth, 1)

    def every_code(self, rerank: int) -> Hits:
        """Scan all codes on one thread, and score the best again."""
        return api.search(self.codes, self.queries, k=self.k, rerank=rerank, threads=1)[1]

    def sorted_orders(self, neighbours: int) -> tuple[Row, Hits]:
        """Search the orders on one thread."""
        return api.search(self.orders, self.queries, k=self.k, neighbours=neighbours, threads=1)


def orders_beside_scan(
    searches: Searches, neighbours: Iterable[int], reranks: Iterable[int], repeats: int
) -> list[Row]:
    """Return a row per ``--neighbours``: its time beside the fastest scan of equal recall@1."""
    scans = {count: searches.recall(searches.every_code(count)) for count in reranks}
    orders = {count: searches.sorted_orders(count) for count in neighbours}
    rows = []
    for count, (report, hits) in orders.items():
        nq, found = len(hits.ids), searches.recall(hits)
        equal = next((r for r, recall in scans.items() if recall >= found), None)
        if equal is None:
            continue
        tasks: dict[str, Callable[[], object]] = {
            "orders": partial(searches.sorted_orders, count),
            "scan": partial(searches.every_code, equal),
        }
        times = interleaved(tasks, repeats)
        rows.append(
            {
                "neighbours": count,
                "rows scored": float(report["candidates_per_query"]),
                "share, %": 100 * float(report["share_of_rows"]),
                "R@1": found,
                "reranked by the scan": equal,
                "R@1 of the scan": scans[equal],
                "orders, µs per query": times["orders"] / nq * 1e6,
                "scan, µs per query": times["scan"] / nq * 1e6,
                "scan / orders": times["scan"] / times["orders"],
            }
        )
    return rows


def bytes_of(store: str) -> int:
    """Return the bytes of a store's columns."""
    return int(api.info(store)["bytes"])

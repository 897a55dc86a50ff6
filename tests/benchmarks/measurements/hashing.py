"""Hashing encoders: hyperplanes, hashed neighbours, sorted orders, and the cost of encoding."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs import api
from mercore.pipeline.encode import lay_out
from mercore.pipeline.encoders.hashing.klsh import KlshSpec
from mercore.pipeline.kernels import Kernel, make_kernel
from mercore.pipeline.measures.overlap import (
    NearPairs,
    Overlap,
    hamming_distances,
    overlap,
    threshold_score,
)
from mercore.pipeline.measures.recognition import Classifier
from mercore.stores.codes import open_code_store
from mercore.stores.formats.array import ArraySource
from mercore.stores.results.hits import Hits
from mercore.stores.rows import SourceVectors, open_vectors
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

Floats = NDArray[np.float64]


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


def hyperplanes(rows: NDArray[Any], p: int, draws: int, each: int) -> dict[str, Floats]:
    """Return hyperplanes of three kinds, float64[draws · each, d], for the linear kernel.

    Those of KLSH are Σ w(i) x(i) with the weights that the encoder learns from p rows. ``random
    weights`` are Σ g(i) x(i) with Gaussian g. ``Gaussian`` are Gaussian themselves.
    """
    points = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    vectors, kernel = SourceVectors(ArraySource(rows)), make_kernel("cosine")
    found: dict[str, list[Floats]] = {"KLSH": [], "random weights": [], "Gaussian": []}
    rng = np.random.default_rng(p)
    for seed in range(draws):
        spec = KlshSpec(n_landmarks=p, n_subset=p // 5, n_bits=each, random_state=seed)
        model = spec.fit(vectors, kernel)
        drawn = points[model["landmark_rows"]]
        found["KLSH"].append(model["projection"].astype(np.float64).T @ drawn)
        found["random weights"].append(rng.standard_normal((each, p)) @ drawn)
        found["Gaussian"].append(rng.standard_normal((each, rows.shape[1])))
    return {name: np.concatenate(parts) for name, parts in found.items()}


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


def encode_cost(store: str, kernel: Kernel, specs: Mapping[str, Any], rows: int) -> list[Row]:
    """Return the time of encoding a row beside its block of kernel values, on one thread."""
    vectors = open_vectors(store)
    some = np.concatenate(
        [vectors.read_part(part) for part in range(-(-rows // vectors.part_rows))]
    )[:rows]
    lines = []
    for name, spec in specs.items():
        plan = lay_out(vectors, kernel, spec)
        encoder, landmarks = spec.encoder(kernel, plan.model), plan.model["landmarks"]
        prepared = kernel.prepare(landmarks).astype(np.float32)
        block = partial(_score, kernel, kernel.packed(np.ascontiguousarray(prepared.T)))
        blocks = [some[at : at + encoder.block_rows] for at in range(0, rows, encoder.block_rows)]
        tasks = {
            "block": partial(_each, block, blocks),
            "encode": partial(_each, encoder.encode, blocks),
        }
        with threadpool_limits(1):
            times = {each: seconds / rows * 1e6 for each, seconds in interleaved(tasks, 5).items()}
        lines.append(
            {
                "encoder": name,
                "kernel": kernel.spec()["name"],
                "block, µs": times["block"],
                "encode, µs": times["encode"],
                "encode / block": times["encode"] / times["block"],
            }
        )
    return lines


def _score(kernel: Kernel, landmarks: Any, rows: NDArray[Any]) -> None:
    """Compute the block of kernel values of raw rows and packed landmarks."""
    kernel.block(kernel.prepare(rows).astype(np.float32), landmarks)


def _each(function: Callable[[Any], object], blocks: Iterable[NDArray[Any]]) -> None:
    for block in blocks:
        function(block)


def bytes_of(store: str) -> int:
    """Return the bytes of a store's columns."""
    return int(api.info(store)["bytes"])


def searched(
    data: Named, kernel: Mapping[str, Any], encoder: str, folder: Path, k: int
) -> tuple[Hits, int]:
    """Encode, and search the codes; return the hits and the bits of a code."""
    codes = folder / "codes"
    api.encode(data.store, codes, encoder=encoder, **kernel)
    bits = int(open_code_store(codes).spec.encoder["n_bits"])
    return api.search(codes, data.queries, k=k)[1], bits


def near_overlap(rows: NDArray[Any], encoder: str, seed: int) -> Overlap:
    """Return the overlap within Hamming distance 3, of 3 000 drawn queries and 1 000 drawn rows."""
    with TemporaryDirectory() as path:
        folder = Path(path)
        rng = np.random.default_rng(seed)
        drawn = rows[rng.permutation(len(rows))[:4000]]
        np.save(folder / "rows.npy", drawn[:1000])
        np.save(folder / "queries.npy", drawn[1000:])
        api.ingest(folder / "rows.npy", folder / "vectors")
        data = Named(
            name="drawn", store=str(folder / "vectors"), queries=str(folder / "queries.npy")
        )
        kernel: Row = {"kernel": "rbf", "gamma": inverse_distance(drawn)}
        _, truth = api.search(data.store, data.queries, k=1000, **kernel)
        hits, bits = searched(data, kernel, f"{encoder},random-state={seed}", folder, 1000)
        assert truth.scores is not None
        true = np.empty_like(truth.scores)
        np.put_along_axis(true, truth.ids, truth.scores, axis=1)
        scored = Hits(ids=hits.ids, scores=np.take_along_axis(true, hits.ids, axis=1))
        near = NearPairs(
            distances=hamming_distances(hits, bits),
            radius=3,
            threshold=threshold_score(truth),
            rows=1000,
        )
        return overlap(scored, near)


def inverse_distance(rows: NDArray[Any]) -> float:
    """Return the inverse of the mean squared distance between rows."""
    values = rows[:1000].astype(np.float64)
    return float(1 / (2 * values.var(axis=0).sum()))


def recall_of_signs(
    rows: NDArray[Any], queries: NDArray[Any], bits: int, seeds: int
) -> dict[str, list[float]]:
    """Return R@100 of signs of projected coordinates of kernel PCA, one value per seed.

    The kernel is chi2, and there are 1024 landmarks. The coordinates are uncentred, as in Eq. 11 of
    Bourrier et al. (2015); then centred, which is to take their mean away.
    """
    kernel = make_kernel("chi2")
    prepared, asked = kernel.prepare(rows), kernel.prepare(queries)
    nearest = _block(kernel, asked, prepared).argmax(axis=1)
    landmarks = prepared[np.random.default_rng(0).permutation(len(prepared))[:1024]]
    values, vectors = np.linalg.eigh(_block(kernel, landmarks, landmarks))
    axes = vectors[:, : -bits - 1 : -1] / np.sqrt(values[: -bits - 1 : -1])
    of_rows, of_queries = (_block(kernel, each, landmarks) @ axes for each in (prepared, asked))
    centre = of_rows.mean(axis=0)
    found: dict[str, list[float]] = {"uncentred": [], "centred": []}
    for seed in range(seeds):
        planes = np.random.default_rng(seed).standard_normal((bits, bits))
        for name, taken in (("uncentred", 0.0), ("centred", centre)):
            signs = [np.sign((each - taken) @ planes) for each in (of_rows, of_queries)]
            agreement = signs[1] @ signs[0].T
            of_nearest = np.take_along_axis(agreement, nearest[:, None], axis=1)
            found[name].append(float(((agreement > of_nearest).sum(axis=1) < 100).mean()))
    return found


def _block(kernel: Kernel, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
    """Return the kernel of prepared rows and columns, 1000 rows at a time."""
    packed = kernel.packed(np.ascontiguousarray(columns.T).astype(np.float32))
    pieces = [
        kernel.block(rows[start : start + 1000].astype(np.float32), packed)
        for start in range(0, len(rows), 1000)
    ]
    return np.concatenate(pieces).astype(np.float64)

"""Choose the bound of an exact search by measuring a sample: how much each lets through, and what that costs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.encoders.bin_bound import ADDITIVE, BinBoundSpec, grouping
from pipeline.encoders.encoder import Encoder, EncoderSpec, draw_rows
from pipeline.encoders.groups import learn_groups, near_pairs
from pipeline.encoders.kpca_bound import KpcaBoundSpec
from pipeline.kernels import Kernel
from pipeline.kernels.kernel import Float64
from pipeline.scanners.bounds import BoundScanner
from stores.header import row_bytes
from stores.vectors import Vectors, gather

SAMPLE, QUERIES = 8192, 64  # rows that are bounded, and other rows that stand for queries
FEWER = 8  # times as small is the sample that shows how the share falls with the rows
COMPONENTS, GROUPS = (32, 64, 128, 256), (16, 32, 64, 128, 256, 512)
BATCH = 100  # queries that share the reading of a row
SCAN, A_BYTE, READ_BYTE = 0.08, 1 / 450, 0.2 / BATCH  # ns a pair, and a pair and byte: compared, multiplied, read
PAIR, A_DIMENSION = 200.0, 1.2  # ns of a true score, and of its dimensions


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A bound and what it costs: ``share`` of the rows that it leaves to the true kernel, ``cost`` in ns a pair."""

    spec: EncoderSpec
    bytes: int
    share: float
    cost: float


def choose_bound(vectors: Vectors, kernel: Kernel, k: int = 10, random_state: int = 0) -> list[Measured]:
    """Return the bounds that serve a kernel, the cheapest first, for a search of k neighbours in batches of 100.

    The choice depends on the rows alone: costs are a model of a scan and of true scores, in nanoseconds; shares are
    measured on a sample and carried on to the store's size by the power of the rows that the sample shows.
    """
    rng = np.random.default_rng(random_state)
    rows = gather(vectors, rng.permutation(draw_rows(rng, vectors.rows, min(SAMPLE + QUERIES, vectors.rows))))
    count = min(QUERIES, max(1, len(rows) // 8))
    queries, sample = rows[:count], rows[min(count, len(rows) - 1) :]  # a store of one row is both
    prepared = kernel.ranking.prepare(queries)
    scores = kernel.ranking.exact(prepared, np.ascontiguousarray(kernel.ranking.prepare(sample).T))
    measured = []
    for spec, encoder in _bounds(vectors, kernel, random_state):
        share = _share(_bound(encoder, sample, queries), scores, vectors.rows / k)
        size = row_bytes(spec.columns("none"))
        cost = SCAN + size * (A_BYTE + READ_BYTE) + share * (PAIR + A_DIMENSION * vectors.dims)
        measured.append(Measured(spec=spec, bytes=size, share=share, cost=cost))
    return sorted(measured, key=lambda bound: bound.cost)


def choose_bytes(vectors: Vectors, kernel: Kernel) -> int:
    """Return the memory that choosing takes: the sample, raw and prepared, a model, and blocks of rows in bytes."""
    rows, dims = vectors.rows, vectors.dims
    kpca, bins = _widest(vectors, 0), BinBoundSpec(n_groups=dims)
    specs = (kpca, bins) if isinstance(kernel.ranking, ADDITIVE) else (kpca,)
    sample = (SAMPLE + QUERIES) * (dims * (2 * vectors.dtype.itemsize + 16) + 16 * QUERIES)
    block = max(spec.block_rows * spec.row_bytes(dims) for spec in specs)
    fit = max(spec.fit_bytes(rows, dims) for spec in specs)
    return sample + kpca.shared_bytes(dims) + fit + block


def _widest(vectors: Vectors, random_state: int) -> KpcaBoundSpec:
    """Return the bound of kernel PCA of which all others that are measured are prefixes."""
    landmarks = min(1024, vectors.rows)
    return KpcaBoundSpec(n_landmarks=landmarks, n_components=min(COMPONENTS[-1], landmarks), random_state=random_state)


def _bounds(vectors: Vectors, kernel: Kernel, random_state: int) -> Iterator[tuple[EncoderSpec, Encoder]]:
    """Yield the bounds that serve a kernel, fitted: each family once, its members are nested."""
    widest = _widest(vectors, random_state)
    learned = widest.learn(vectors, kernel.ranking)
    for count in sorted({min(count, widest.n_components) for count in COMPONENTS}):
        shorter = replace(widest, n_components=count)
        yield shorter, shorter.encoder(kernel, shorter.turned(learned, kernel.ranking))
    if not isinstance(kernel.ranking, ADDITIVE):
        return
    bins = BinBoundSpec(random_state=random_state)
    rng = np.random.default_rng(random_state)
    sample = gather(vectors, draw_rows(rng, vectors.rows, min(bins.n_training, vectors.rows)))
    pairs = near_pairs(kernel.ranking, sample)
    counts = sorted({vectors.dims, *(count for count in GROUPS if count < vectors.dims)}, reverse=True)
    for groups in learn_groups(*pairs, counts):
        spec = replace(bins, n_groups=len(groups))
        yield spec, spec.encoder(kernel, grouping(groups, *pairs))


def _bound(encoder: Encoder, sample: NDArray[Any], queries: NDArray[Any]) -> NDArray[np.float32]:
    """Return the upper bounds of a sample, float32[nq, n]."""
    scanner = encoder.scanner(queries)
    assert isinstance(scanner, BoundScanner)
    size = encoder.block_rows
    blocks = [encoder.encode(sample[start : start + size]) for start in range(0, len(sample), size)]
    codes, terms = (np.concatenate([block[name] for block in blocks]) for name in scanner.names)
    return scanner.bounds(codes, terms.astype(np.float32)).T


def _share(bounds: NDArray[np.float32], scores: Float64, rows_a_neighbour: float) -> float:
    """Return the share of rows whose bound reaches the nearest of so many rows, on average over the queries."""
    shares = []
    for size in (len(scores[0]), max(1, len(scores[0]) // FEWER)):
        reach = bounds[:, :size] >= scores[:, :size].max(axis=1, keepdims=True)
        shares.append(float(reach.mean()))
    power = max(0.0, math.log(shares[1] / shares[0]) / math.log(FEWER))
    expected = float(shares[0] * (len(scores[0]) / rows_a_neighbour) ** power)
    return min(1.0, expected)

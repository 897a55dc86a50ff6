"""Choose the bound of an exact search by the rows that each leaves on a sample, and their cost."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.compiling.first_use import before_choosing_bound
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec, grouping
from mercore.pipeline.encoders.bounds.bin_groups import learn_groups, near_pairs
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec, Projected, landmark_scores
from mercore.pipeline.encoders.bounds.pca_bound import PcaBoundSpec
from mercore.pipeline.encoders.bounds.sample import (
    QUERIES,
    Sample,
    expected_share,
    sample_scores,
    sample_shares,
)
from mercore.pipeline.encoders.encoder import EncoderSpec, Model, draw_rows
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.scanners.bounds.layout import MAX_ROW_BYTES
from mercore.pipeline.scanners.byte_rows import takes_bytes
from mercore.pipeline.search.costs import Search, by_bounds
from mercore.stores.part_store.header import row_bytes
from mercore.stores.vectors import Vectors, gather

SAMPLE = 8192  # rows of the sample
COMPONENTS, GROUPS = (32, 64, 128, 256), (16, 32, 64, 128, 256, 512)
BATCH, NEIGHBOURS = 100, 10  # queries per batch, and k, of the search that a bound is chosen for


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A bound, the ``share`` of rows that it leaves, and its ``cost`` in ns per row and query."""

    spec: EncoderSpec
    bytes: int
    share: float
    cost: float


def choose_bound(
    vectors: Vectors, kernel: Kernel, k: int = NEIGHBOURS, random_state: int = 0
) -> list[Measured]:
    """Return the bounds that serve a kernel, cheapest first, for k neighbours in batches of 100.

    The choice depends on the rows alone. Costs come from a model in nanoseconds. Shares are
    measured on a sample, and extrapolated to the store by the power law that the sample shows.
    """
    before_choosing_bound()
    rng = np.random.default_rng(random_state)
    rows = gather(
        vectors, rng.permutation(draw_rows(rng, vectors.rows, min(SAMPLE + QUERIES, vectors.rows)))
    )
    search = usual_search(vectors, kernel, k)
    measured = []
    of_kernel = _bounds if kernel.normalised else _raw_bounds
    for spec, model, shares in of_kernel(vectors, kernel.ranking, rows, random_state):
        share = expected_share(shares, vectors.rows / k)
        size = row_bytes(spec.columns("none"))
        measured.append(
            Measured(spec=spec, bytes=size, share=share, cost=by_bounds(search, size, model, share))
        )
    return sorted(measured, key=lambda bound: bound.cost)


def usual_search(vectors: Vectors, kernel: Kernel, k: int = NEIGHBOURS) -> Search:
    """Return the search that a bound is chosen for: its queries are of the type of the rows."""
    whole = takes_bytes(kernel, vectors.dtype, vectors.dims)
    return Search(vectors.rows, vectors.dims, vectors.dtype, kernel, BATCH, k, whole)


def choose_bytes(vectors: Vectors, kernel: Kernel) -> int:
    """Return the bytes that choosing takes: a sample in three forms, a model, and blocks."""
    rows, dims = vectors.rows, vectors.dims
    if not kernel.normalised:
        pca = _widest_pca(vectors, 0).memory(dims, rows)
        read = vectors.open_bytes + vectors.read_bytes
        return (
            (SAMPLE + QUERIES) * dims * vectors.dtype.itemsize
            + pca.fit
            + pca.shared
            + 256 * pca.row
            + read
        )
    kpca, bins = _widest(vectors, 0), BinBoundSpec(n_groups=min(dims, MAX_ROW_BYTES))
    specs = (kpca, bins) if kernel.ranking.term_bound else (kpca,)
    sample = (SAMPLE + QUERIES) * (
        dims * (2 * vectors.dtype.itemsize + 16) + 16 * QUERIES + 8 * kpca.n_landmarks
    )
    block = max(spec.block_rows * spec.memory(dims).row for spec in specs)
    fit = max(spec.memory(dims, rows).fit for spec in specs)
    read = vectors.open_bytes + vectors.read_bytes
    return sample + kpca.memory(dims).shared + fit + block + read


def smallest_bound(kernel: Kernel) -> EncoderSpec:
    """Return the bound with the least demands on a store, to check other parameters by."""
    if not kernel.normalised:
        return PcaBoundSpec(n_components=1)
    return KpcaBoundSpec(n_landmarks=1, n_components=1)


def _widest_pca(vectors: Vectors, random_state: int) -> PcaBoundSpec:
    """Return the widest bound by principal components: the others are prefixes of it."""
    return PcaBoundSpec(n_components=min(COMPONENTS[-1], vectors.dims), random_state=random_state)


def _raw_bounds(
    vectors: Vectors, kernel: Kernel, rows: NDArray[Any], random_state: int
) -> Iterator[tuple[EncoderSpec, Model, Float64]]:
    """Yield the fitted bounds of a kernel of raw rows, each with its ``sample_shares``."""
    widest = _widest_pca(vectors, random_state)
    learned = widest.learn(vectors, kernel)
    scores = sample_scores(kernel, kernel.prepare(rows))
    learned = learned._replace(sample=Sample(rows, scores))
    for count in sorted({min(count, widest.n_components) for count in COMPONENTS}):
        spec = replace(widest, n_components=count)
        model = spec.turned(learned, kernel)
        yield spec, model, model["shares"]


def _widest(vectors: Vectors, random_state: int) -> KpcaBoundSpec:
    """Return the widest bound of kernel PCA: the others are prefixes of it."""
    landmarks = min(1024, vectors.rows)
    return KpcaBoundSpec(
        n_landmarks=landmarks,
        n_components=min(COMPONENTS[-1], landmarks),
        random_state=random_state,
    )


def _bounds(
    vectors: Vectors, kernel: Kernel, rows: NDArray[Any], random_state: int
) -> Iterator[tuple[EncoderSpec, Model, Float64]]:
    """Yield the fitted bounds that serve a kernel, each with its ``sample_shares``.

    The members of a family are nested, and share one computation.
    """
    prepared = kernel.prepare(rows)
    scores = sample_scores(kernel, prepared)
    widest = _widest(vectors, random_state)
    learned = widest.learn(vectors, kernel)
    sample = Sample(landmark_scores(kernel, prepared, learned.landmarks), scores)
    for count in sorted({min(count, widest.n_components) for count in COMPONENTS}):
        shorter = replace(widest, n_components=count)
        model = shorter.turned(learned, kernel)
        yield shorter, model, sample_shares(Projected(model), sample)
    if not kernel.term_bound:
        return
    bins = BinBoundSpec(random_state=random_state)
    rng = np.random.default_rng(random_state)
    training = gather(vectors, draw_rows(rng, vectors.rows, min(bins.n_training, vectors.rows)))
    pairs = near_pairs(kernel, training)
    counts = sorted({min(count, vectors.dims) for count in (*GROUPS, MAX_ROW_BYTES)}, reverse=True)
    for groups in learn_groups(*pairs, counts):
        spec, model = replace(bins, n_groups=len(groups)), grouping(groups, *pairs)
        yield spec, model, sample_shares(spec.encoder(kernel, model), Sample(rows, scores))

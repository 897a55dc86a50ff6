"""Hits and truth that evaluate scores again by the true kernel, and Hamming distances of hits."""

from dataclasses import dataclass

import numpy as np

from mercore.jobs.resources.execution import available_cores
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.pipeline.encode import spec_of
from mercore.pipeline.encoders.encoder import check_range
from mercore.pipeline.encoders.hashing.signs import Bits
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.linear_map import mapped_source, mapped_vectors
from mercore.pipeline.measures.overlap import NearPairs, hamming_distances, threshold_score
from mercore.pipeline.search.batch_search import check_queries, check_source
from mercore.pipeline.search.rerank import true_scores
from mercore.stores.codes import open_code_store
from mercore.stores.errors import InputError, counted
from mercore.stores.formats import Sliced
from mercore.stores.formats.source import Source
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_rows, open_vectors
from mercore.stores.vectors import Vectors, original_ids, stored_rows
from mercore.stores.wording import option, setting

BATCH = 4096  # queries that are scored at once


@dataclass(frozen=True, kw_only=True)
class Rescoring:
    """Hits and their truth, to be scored by the true kernel of the vectors.

    Scores of a file decide nothing: they may be distances, or the squares of distances.
    """

    vectors: Vectors
    queries: Source
    kernel: Kernel
    returned: Hits
    truth: Hits

    def scored(self) -> tuple[Hits, Hits]:
        """Return hits and truth with true scores as users see them, float64[nq, k].

        The score of a true neighbour is the least down to its rank: another program may have
        ranked by rounded scores.
        """
        ids = np.concatenate([self.returned.ids, self.truth.ids], axis=1)
        rows, nq, width = stored_rows(ids, self.vectors.dropped), *self.returned.ids.shape
        scores = np.concatenate(
            [
                true_scores(
                    self.vectors,
                    self.kernel,
                    self.queries.read(start, min(start + BATCH, nq)),
                    rows[start : start + BATCH],
                    threads=available_cores(),
                )
                for start in range(0, nq, BATCH)
            ]
        )
        true = np.where(self.truth.ids < 0, np.inf, scores[:, width:])
        scores[:, width:] = np.minimum.accumulate(true, axis=1)
        returned, true = np.split(self.kernel.shown(scores), [width], axis=1)
        return Hits(scores=returned, ids=self.returned.ids), Hits(scores=true, ids=self.truth.ids)


def open_rescoring(
    hits: Hits, truth: Hits, *, vectors: str, queries: str | Sliced, kernel: KernelOptions
) -> Rescoring:
    """Open the vectors and queries of hits and their truth; refuse those of other hits."""
    linear_map = kernel.open_map()
    store = mapped_vectors(open_vectors(vectors), linear_map)
    rows = mapped_source(open_rows(queries), linear_map)
    opened, nq = kernel.open(store), rows.shape[0]
    if len(hits.ids) != nq:
        raise InputError(
            f"{rows.name} holds {counted(nq, 'query', 'queries')}: expected {len(hits.ids)}, as "
            "the hits have. Fix: name their queries."
        )
    for name, ids in (("hits", hits.ids), ("true neighbours", truth.ids)):
        if stored_rows(ids, store.dropped).max(initial=-1) >= store.rows:
            last = original_ids(np.array([store.rows - 1]), store.dropped)[0]
            raise InputError(
                f"the {name} name row {ids.max()}: expected at most {last}, the last row of "
                f"{vectors}. Fix: name the vectors that were searched."
            )
    check_queries(rows, opened, store.dims, vectors)
    return Rescoring(vectors=store, queries=rows, kernel=opened, returned=hits, truth=truth)


def open_near_pairs(
    hits: Hits, truth: Hits, *, codes: str, radius: int, vectors: Vectors
) -> NearPairs:
    """Open the codes of hits; return the Hamming distances of the hits and the threshold.

    Raises
    ------
    InputError
        If the codes are not binary or not of these vectors, the radius is beyond their bits, or the
        scores of the hits are not of such codes.
    """
    store = open_code_store(codes)
    spec = spec_of(store)
    if not isinstance(spec, Bits):
        raise InputError(
            f"{codes} holds codes of {spec.name}: expected binary codes, which have a Hamming "
            "distance. Fix: name codes of an encoder such as klsh, or leave "
            f"{option('overlap')} out."
        )
    check_source(vectors, store)
    check_range("overlap", radius, (0, spec.n_bits), setting(overlap=3), why=", the bits of a code")
    return NearPairs(
        distances=hamming_distances(hits, spec.n_bits),
        radius=radius,
        threshold=threshold_score(truth),
        rows=store.rows,
    )

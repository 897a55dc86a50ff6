"""Exact search: by upper bounds of every row, or by the true kernel of every row; a proof for each query."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.encoders.bounds.sample import expected_share
from mercore.pipeline.search.answers import ExactAnswers, Scored, joined, spliced, taken
from mercore.pipeline.search.bounded import Bounded
from mercore.pipeline.search.costs import SMALL, Search, by_bounds, every_row
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.executor import Executor, QueryBatch, ThreadExecutor
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.topk import TopK
from mercore.stores.part_store.header import row_bytes

SPARE = 16  # rows beyond the k-th that an exhaustive search keeps, for those that tie with it
LONGER = 8  # times as long is the next list of a query that more of them tie with
TIED_PAIRS = 1 << 17  # that such lists hold together, where one query alone does not hold more


@dataclass(frozen=True, kw_only=True)
class ExactSearch:
    """Exact search of vectors, by bounds of them if there are any."""

    truth: ExactScorer
    bounds: OpenCodes | None = None
    beta: float = 1.0  # below it bounds are relaxed (Bourrier et al. 2015, Eq. 28), and answers approximate
    remote: Executor | None = None  # who works on the parts, if not threads of this process

    @cached_property
    def executor(self) -> Executor:
        """Who works on the parts."""
        truth = self.truth
        here = ThreadExecutor(kernel=truth.kernel, threads=truth.threads, vectors=truth.vectors, codes=self.bounds)
        return self.remote or here

    def prove(
        self,
        queries: NDArray[Any],
        k: int,
        *,
        seeds: NDArray[np.int64] | None = None,
        least: Float32 | None = None,
    ) -> ExactAnswers:
        """Return the k rows of highest real score for each query, with what proves them.

        Queries for which bounds rule too little out are answered by the true kernel of every row.

        Parameters
        ----------
        queries : dtype[nq, d], raw rows
        k : int, 1 ≤ k ≤ n
        seeds : int64[nq, ≥ k], optional
            Rows to begin with, distinct for each query: the nearer they are, the less is left.
        least : float32[nq], optional
            What the scores of the seeds, k a query, are said to reach: taken at that word, they cost no pass of their
            own, and a query whose seeds do not keep it one more.
        """
        alone = self.executor.alone()
        if alone is not None:
            return alone.prove(queries, k, beta=self.beta, seeds=seeds, least=least)
        if self.bounds is None or 2 * k >= self.truth.vectors.rows or not self._pays(len(queries), k):
            return self._of_every_row(queries, k)
        bounded = Bounded(self.truth, self.bounds.store, self.executor.batch(queries, beta=self.beta), k)
        if seeds is None:
            bounded.seed()
        elif least is None:
            bounded.start(seeds)
        else:
            bounded.expect(seeds, least)
        bounded.sweep()
        return self._completed(bounded, again=True)

    def _pays(self, queries: int, k: int) -> bool:
        """Return whether bounds are expected to be faster than every row: of a small store, either is fast."""
        assert self.bounds is not None
        store, vectors = self.bounds.store, self.truth.vectors
        if vectors.rows < SMALL or "shares" not in store.model:  # which no sample was measured for when it was made
            return True
        search = Search(vectors.rows, vectors.dims, vectors.dtype, self.truth.kernel, queries, k)
        share = expected_share(store.model["shares"], vectors.rows / k)
        return by_bounds(search, row_bytes(store.store.layout.columns), store.model, share) < every_row(search)

    def _completed(self, bounded: Bounded, *, again: bool) -> ExactAnswers:
        """Return the proofs of a batch: queries that were given up are tried again from the best rows so far, once."""
        failing, k = bounded.failing, bounded.k
        if not failing.any():
            return bounded.proved()
        if again and not failing.all():
            batch = self.executor.batch(bounded.batch.queries[failing], beta=self.beta)
            second = Bounded(self.truth, bounded.codes, batch, k)
            second.start(bounded.scored.best.ids[failing])
            second.sweep()
            others = self._completed(second, again=False)
        else:
            others = self._of_every_row(bounded.batch.queries[failing], k)
        return others if failing.all() else spliced(~failing, taken(bounded.proved(), ~failing), others)

    def _of_every_row(self, queries: NDArray[Any], k: int, spare: int = SPARE) -> ExactAnswers:
        """Return the proofs that score every row: by float32 blocks, and in float64 what those cannot rule out.

        Queries that more rows tie with than lists have room for are asked again with longer lists, as many at a time
        as the memory of all of them was for.
        """
        truth, rows, nq = self.truth, self.truth.vectors.rows, len(queries)
        batch, kept = self.executor.batch(queries), min(rows, k + spare)
        best = batch.nearest(kept)
        if kept == rows:
            return self._of_lists(batch, best, k)
        full = best.scores[:, k - 1] - best.scores[:, -1] <= truth.slack
        if not full.any():
            return self._of_lists(batch, best, k)
        longer = min(rows, LONGER * kept)
        size = max(1, max(nq * kept, TIED_PAIRS) // longer)
        tied = queries[full]
        others = [self._of_every_row(tied[at : at + size], k, longer - k) for at in range(0, len(tied), size)]
        if full.all():
            return joined(others)
        ended = TopK(nq - len(tied), kept, np.float64)
        ended.scores[:], ended.ids[:] = best.scores[~full], best.ids[~full]
        return spliced(~full, self._of_lists(self.executor.batch(queries[~full]), ended, k), joined(others))

    def _of_lists(self, batch: QueryBatch, best: TopK, k: int) -> ExactAnswers:
        """Return the proofs of a batch of which lists hold all that may be among the k best; every row was scored."""
        (nq, kept), scored = best.ids.shape, Scored(len(best.ids), k, self.truth.slack)
        scored.add(np.repeat(np.arange(nq), kept), best.ids.ravel(), np.asarray(best.scores, np.float64).ravel())
        scored.counts[:] = self.truth.vectors.rows
        return scored.proved(self.truth, batch.queries, np.full(nq, -np.inf), batch.raw)

"""Exact search: by upper bounds of every row, or by the true kernel of every row."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.encoders.bounds.sample import expected_share
from mercore.pipeline.scanners.byte_rows import as_bytes
from mercore.pipeline.search.answers import (
    ExactAnswers,
    Scored,
    concatenate_answers,
    merge_answers,
    select_answers,
)
from mercore.pipeline.search.bounded import Bounded
from mercore.pipeline.search.costs import SMALL, Search, by_bounds, every_row
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.executor import Executor, QueryBatch
from mercore.pipeline.search.scan import OpenCodes
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.pipeline.topk import TopK
from mercore.stores.part_store.header import row_bytes
from mercore.stores.selection import Groups, Selection

SPARE = 16  # rows beyond the k-th in the lists of an exhaustive search, for ties with the k-th
LONGER = 8  # factor by which the list of a query grows if more rows tie with its k-th
TIED_PAIRS = 1 << 17  # pairs in such lists at a time, unless one query alone has more


@dataclass(frozen=True, kw_only=True)
class ExactSearch:
    """An exact search of vectors, by bounds of their scores if there are any."""

    scorer: ExactScorer
    bounds: OpenCodes | None = None
    beta: float = 1.0  # < 1: relaxed bounds (Bourrier et al. 2015, Eq. 28), approximate answers
    batches: int = 1  # that run at the same time, and share the threads
    remote: Executor | None = None  # default: threads of this process

    @cached_property
    def executor(self) -> Executor:
        """The executor of the search."""
        scorer = self.scorer
        local = ThreadExecutor(
            kernel=scorer.kernel,
            threads=scorer.threads,
            batches=self.batches,
            vectors=scorer.vectors,
            codes=self.bounds,
        )
        return self.remote or local

    def share(self) -> "ExactSearch":
        """Return the search of the next batch: it has a share of the threads."""
        executor = self.executor.share()
        return self if executor is self.executor else replace(self, remote=executor)

    def among(self, selection: Selection) -> "ExactSearch":
        """Return the search of selected rows, in their numbers, on threads of this process."""
        assert isinstance(self.executor, ThreadExecutor)
        narrow = self.executor.among(selection)
        assert narrow.vectors is not None
        scorer = replace(self.scorer, vectors=narrow.vectors)
        return replace(self, scorer=scorer, bounds=narrow.codes, remote=narrow)

    def prove(
        self,
        queries: NDArray[Any],
        k: int,
        *,
        seeds: NDArray[np.int64] | None = None,
        least: Float32 | None = None,
    ) -> ExactAnswers:
        """Return the k rows of highest real score for each query, with the figures that prove them.

        A query for which the bounds rule too few rows out is answered by the true kernel of every
        row.

        Parameters
        ----------
        queries : dtype[nq, d], raw rows
        k : int, 1 ≤ k ≤ n
        seeds : int64[nq, ≥ k], optional
            Rows to score first, distinct for each query: the nearer they are, the less remains.
        least : float32[nq], optional
            Claimed k-th scores of the seeds, k seeds per query. They are trusted as thresholds at
            first; a query whose claim proves too high is searched again.
        """
        worker = self.executor.single_worker()
        if worker is not None:
            return worker.prove(queries, k, beta=self.beta, seeds=seeds, least=least)
        if self.bounds is None or 2 * k >= self.scorer.vectors.rows or not self.pays(queries, k):
            return self._of_every_row(queries, k)
        bounded = Bounded(
            self.scorer, self.bounds.store, self.executor.batch(queries, beta=self.beta), k
        )
        if seeds is None:
            bounded.score_initial_topk_by_bounds()
        elif least is None:
            bounded.score_initial_topk(seeds)
        else:
            bounded.accept_thresholds(seeds, least)
        bounded.scan()
        return self._completed(bounded, again=True)

    def prove_among(self, queries: NDArray[Any], k: int, groups: Groups) -> ExactAnswers:
        """Return the answers to queries of several groups, each among rows of its own.

        A query with fewer than k rows has −1 and −inf in place of the others.
        """
        nq = len(queries)
        merged = ExactAnswers(
            ids=np.full((nq, k), -1),
            scores=np.full((nq, k), -np.inf),
            greatest=np.full(nq, -np.inf),
            evaluated=np.zeros(nq, np.int64),
            ties=np.zeros(nq, np.int64),
        )
        for some, selection in groups:
            narrow = self.among(selection)
            most = min(k, narrow.scorer.vectors.rows)
            if most:
                found = narrow.prove(queries[some], most)
                merged.ids[some, :most] = selection.rows_of(found.ids)
                merged.scores[some, :most] = found.scores
                for name in ("greatest", "evaluated", "ties"):
                    getattr(merged, name)[some] = getattr(found, name)
        return merged

    def pays(self, queries: NDArray[Any], k: int) -> bool:
        """Return whether bounds are expected to be faster than every row.

        Of a small store, this is not asked: either way is fast.
        """
        assert self.bounds is not None
        store, vectors = self.bounds.store, self.scorer.vectors
        if vectors.rows < SMALL or "shares" not in store.model:  # no sample measured at encoding
            return True
        kernel, dtype = self.scorer.kernel, vectors.dtype
        whole = as_bytes(kernel, queries, dtype) is not None
        search = Search(vectors.rows, vectors.dims, dtype, kernel, len(queries), k, whole)
        share = expected_share(store.model["shares"], vectors.rows / k)
        return by_bounds(
            search, row_bytes(store.store.layout.columns), store.model, share
        ) < every_row(search)

    def _completed(self, bounded: Bounded, *, again: bool) -> ExactAnswers:
        """Return the answers of a batch.

        With ``again``, search once more for queries that were given up.

        The second search starts from their top k so far.
        """
        failing, k = bounded.failing, bounded.k
        if not failing.any():
            return bounded.answers()
        if again and not failing.all():
            batch = self.executor.batch(bounded.batch.queries[failing], beta=self.beta)
            second = Bounded(self.scorer, bounded.codes, batch, k)
            second.score_initial_topk(bounded.scored.top_k.ids[failing])
            second.scan()
            others = self._completed(second, again=False)
        else:
            others = self._of_every_row(bounded.batch.queries[failing], k)
        return (
            others
            if failing.all()
            else merge_answers(~failing, select_answers(bounded.answers(), ~failing), others)
        )

    def _of_every_row(self, queries: NDArray[Any], k: int, spare: int = SPARE) -> ExactAnswers:
        """Return the answers from scores of every row.

        Queries with more ties than their list holds are searched again with longer lists, as many
        queries at a time as fit into the memory of the first lists.
        """
        scorer, rows, nq = self.scorer, self.scorer.vectors.rows, len(queries)
        batch, width = self.executor.batch(queries), min(rows, k + spare)
        lists = batch.score_every_row(partial(TopK, nq, width, np.float64))
        if width == rows:
            return self._of_lists(batch, lists, k)
        kth = np.asarray(lists.scores[:, k - 1], np.float64)
        full = lists.scores[:, -1] >= kth - scorer.slack(kth)
        if not full.any():
            return self._of_lists(batch, lists, k)
        longer = min(rows, LONGER * width)
        size = max(1, max(nq * width, TIED_PAIRS) // longer)
        tied = queries[full]
        others = [
            self._of_every_row(tied[start : start + size], k, longer - k)
            for start in range(0, len(tied), size)
        ]
        if full.all():
            return concatenate_answers(others)
        ended = TopK(nq - len(tied), width, np.float64)
        ended.scores[:], ended.ids[:] = lists.scores[~full], lists.ids[~full]
        answers = self._of_lists(self.executor.batch(queries[~full]), ended, k)
        return merge_answers(~full, answers, concatenate_answers(others))

    def _of_lists(self, batch: QueryBatch, lists: TopK, k: int) -> ExactAnswers:
        """Return the answers of a batch from lists that hold its top k and all ties.

        Every row was scored.
        """
        (nq, width), scored = lists.ids.shape, Scored(len(lists.ids), k, self.scorer)
        scored.add(
            np.repeat(np.arange(nq), width),
            lists.ids.ravel(),
            np.asarray(lists.scores, np.float64).ravel(),
        )
        scored.counts[:] = self.scorer.vectors.rows
        return scored.answers(self.scorer, batch.queries, np.full(nq, -np.inf), batch.raw)

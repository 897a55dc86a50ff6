"""The contract of an executor: it searches open vectors and codes for batches of queries.

Threads of this process fulfil it (``thread_executor``), and so do the workers of a Dask cluster.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.collector import Kept, NewCollector

if TYPE_CHECKING:  # numba takes a while to load
    from mercore.pipeline.search.answers import ExactAnswers
    from mercore.pipeline.search.collect import Collected, PairBudget
    from mercore.pipeline.search.rerank import Threshold
    from mercore.pipeline.topk import TopK

Ids = NDArray[np.int64]
ScorePairs = Callable[[Ids, Ids, "Threshold"], Float64]


class QueryBatch(Protocol):
    """A batch of raw queries, each of whose methods shares its rows out among all workers by parts.

    Answers are the same to the bit, whatever the executor and its number of workers.
    """

    @property
    def queries(self) -> NDArray[Any]:
        """The raw queries, dtype[nq, d]."""
        ...

    def scan(self, parts: Sequence[int], width: int, rows: int | None = None) -> "TopK":
        """Return each query's top ``width`` by code in parts, or in their first ``rows`` rows."""
        ...

    def collect(self, parts: Sequence[int], least: Float32, budget: "PairBudget") -> "Collected":
        """Return the pairs in some parts of the codes whose bound reaches ``least`` float32[nq]."""
        ...

    def score_every_row(self, new: NewCollector[Kept]) -> Kept:
        """Score every row by the true kernel in float64; return the filled collector."""
        ...

    def scores(self, rows: Ids, queries: Ids, k: int | None = None) -> Float64:
        """Return the true scores of pairs, float64[p].

        Each part that holds one of the rows is read once. With ``k``, the score of a pair that
        cannot be among the query's k best may be −inf; no pair may then come twice.
        """
        ...

    def fetch_to_score(self, rows: Ids) -> ScorePairs:
        """Fetch rows int64[p], ascending.

        Return a function that scores pairs of them, as ``pair_scores`` does.

        The function takes positions in ``rows``, queries and a threshold.
        """
        ...

    def raw(self, rows: Ids) -> NDArray[Any]:
        """Return raw rows, dtype[p, d]; ``rows`` int64[p] ascend."""
        ...


class SingleWorker(Protocol):
    """One worker of an executor, which searches for complete batches of queries."""

    def answer(self, queries: NDArray[Any], k: int, rerank: int | None) -> "TopK":
        """Return the top k of each query, as ``batch_search.answer`` does."""
        ...

    def prove(
        self,
        queries: NDArray[Any],
        k: int,
        *,
        beta: float,
        seeds: Ids | None,
        least: Float32 | None,
    ) -> "ExactAnswers":
        """Return the exact answers, as ``ExactSearch.prove`` does."""
        ...


class Executor(Protocol):
    """An executor: workers with the vectors and codes open."""

    @property
    def concurrent_batches(self) -> int:
        """The number of batches to work on at the same time."""
        ...

    def share(self) -> "Executor":
        """Return the executor of the next batch: it has a share of the threads."""
        ...

    def single_worker(self) -> SingleWorker | None:
        """Return a single worker for the next batch, or None if all workers share its parts."""
        ...

    def batch(self, queries: NDArray[Any], *, beta: float | None = None) -> QueryBatch:
        """Return a batch of raw queries for all workers.

        With β, codes are scanned for upper bounds of scores; with β < 1, these are relaxed.
        """
        ...

    def check_rest(self) -> None:
        """Read the parts that no search has read.

        Raises
        ------
        IntegrityError
            If a byte of a store differs from the byte that was written.
        """
        ...

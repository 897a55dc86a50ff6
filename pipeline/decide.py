"""Decide the order of near-equal scores: by float64 where its proven error allows, by decimals where it does not."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernels import Kernel
from pipeline.kernels.decimals import TIE, decimal_score
from pipeline.kernels.kernel import Float64
from pipeline.rerank import FetchRows
from pipeline.truth import Truth


class Candidates(NamedTuple):
    """Pairs among which the k best of each query are: queries int64[p], rows int64[p], scores float64[p]."""

    queries: NDArray[np.int64]
    rows: NDArray[np.int64]
    scores: Float64

    def ordered(self) -> "Candidates":
        """Return them by query, the best first, equal scores by row."""
        order = np.lexsort((self.rows, -self.scores, self.queries))
        return Candidates(self.queries[order], self.rows[order], self.scores[order])


class Decided(NamedTuple):
    """The k best of each query: rows int64[nq, k], float64 scores, and how many others tie with the k-th, int64[nq]."""

    ids: NDArray[np.int64]
    scores: Float64
    ties: NDArray[np.int64]


def decide(truth: Truth, queries: NDArray[Any], candidates: Candidates, k: int, raw: FetchRows) -> Decided:
    """Return the k best of each query by their real scores; those no further apart than ``decimals.TIE`` go by row.

    Parameters
    ----------
    queries : dtype[nq, d], raw
    candidates : at least k of each query, and all whose score is within ``truth.slack`` of its k-th best
    raw : what returns raw rows, dtype[p, d], of int64[p], ascending
    """
    found = candidates.ordered()
    starts = np.searchsorted(found.queries, np.arange(len(queries) + 1))
    apart = np.ones(len(found.rows) + 1, np.bool_)  # whether a pair does not tie with the one before it
    apart[1:-1] = (found.queries[1:] != found.queries[:-1]) | (found.scores[1:] != found.scores[:-1])
    runs = list(_near_runs(found, starts[:-1], k, truth.slack))
    if runs:
        chosen, at = np.unique(np.concatenate([found.rows[run] for run in runs]), return_inverse=True)
        values = raw(chosen)
        ends = np.cumsum([run.stop - run.start for run in runs])
        for run, places in zip(runs, np.split(at, ends[:-1]), strict=True):
            settled = settle(truth.kernel, values[places], queries[found.queries[run.start]], found.rows[run])
            if settled is not None:
                order, found.scores[run], apart[run.start + 1 : run.stop] = settled
                found.rows[run] = found.rows[run][order]
    first = starts[:-1, None] + np.arange(k)
    next_apart = np.flatnonzero(apart)[np.searchsorted(np.flatnonzero(apart), first[:, -1], side="right")]
    return Decided(found.rows[first], found.scores[first], next_apart - first[:, -1] - 1)


def _near_runs(found: Candidates, starts: NDArray[np.int64], k: int, slack: float) -> Iterator[slice]:
    """Yield the runs of neighbours that float64 cannot tell apart and that begin among the first k of a query."""
    near = (found.queries[1:] == found.queries[:-1]) & (found.scores[:-1] - found.scores[1:] <= slack)
    changes = np.flatnonzero(np.diff(np.concatenate([[False], near, [False]]).astype(np.int8)))
    for begin, end in zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True):
        if begin - starts[found.queries[begin]] < k:
            yield slice(begin, end + 1)


def settle(
    kernel: Kernel, rows: NDArray[Any], query: NDArray[Any], ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Float64, NDArray[np.bool_]] | None:
    """Return the order of rows by their real scores, those as float64, and which but the first is apart from the last.

    None if the rows are equal, or if the kernel has no formula: then float64 is all that there is to tell them apart.
    """
    contents = [row.tobytes() for row in rows]
    distinct = dict(zip(contents, rows, strict=True))
    if len(distinct) == 1:
        return None
    exact = {content: decimal_score(kernel, row, query) for content, row in distinct.items()}
    scores = [score for score in map(exact.get, contents) if score is not None]
    if len(scores) < len(contents):
        return None
    ranked = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)  # a minus would round to 28 digits
    levels = dict(zip(ranked, _levels([scores[place] for place in ranked]), strict=True))
    order = np.array(sorted(ranked, key=lambda place: (levels[place], ids[place])))
    apart = np.diff([levels[place] for place in order]) > 0
    return order, np.array([float(scores[place]) for place in order]), apart


def _levels(scores: list[Decimal]) -> list[int]:
    """Return for descending scores how many lie apart from the one before, up to each."""
    levels = [0]
    for one, another in pairwise(scores):
        levels.append(levels[-1] + (one - another > TIE))
    return levels

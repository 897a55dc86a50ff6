"""Decide the order of near-equal scores: by float64 where its proven error allows, by decimals where it does not."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.decimals import decimal_score, is_of_shared_terms, tie_at
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.rerank import FetchRows

RAW_BYTES = 1 << 24  # of raw rows that are told apart at a time


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


def decide(truth: ExactScorer, queries: NDArray[Any], candidates: Candidates, k: int, raw: FetchRows) -> Decided:
    """Return the k best of each query by their real scores; those no further apart than ``decimals.tie_at`` go by row.

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
    most = max(1, RAW_BYTES // (truth.vectors.dims * truth.vectors.dtype.itemsize))
    for runs in _groups(list(_near_runs(found, starts[:-1], k, truth.slack)), most):
        fetch = raw if len(runs) == 1 else _fetched(raw, np.unique(np.concatenate([found.rows[run] for run in runs])))
        for run in runs:
            ids, inside = np.sort(found.rows[run]), slice(run.start + 1, run.stop)
            blocks = (fetch(ids[at : at + most]) for at in range(0, len(ids), most))
            settled = settle(truth.kernel, blocks, queries[found.queries[run.start]], ids)
            if settled is None:
                apart[inside] = False
            else:
                order, found.scores[run], apart[inside] = settled
                found.rows[run] = ids[order]
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


def _groups(runs: Sequence[slice], most: int) -> Iterator[list[slice]]:
    """Yield runs that are of so many pairs together, or one that alone is of more."""
    group: list[slice] = []
    size = 0
    for run in runs:
        length = run.stop - run.start
        if group and size + length > most:
            yield group
            group, size = [], 0
        group.append(run)
        size += length
    if group:
        yield group


def _fetched(raw: FetchRows, rows: NDArray[np.int64]) -> FetchRows:
    """Fetch rows, ascending, at once; return what returns some of them."""
    values = raw(rows)
    return lambda some: np.asarray(values[np.searchsorted(rows, some)])


def settle(
    kernel: Kernel, blocks: Iterable[NDArray[Any]], query: NDArray[Any], ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Float64, NDArray[np.bool_]] | None:
    """Return the order of rows by their real scores, those as float64, and which but the first is apart from the last.

    None if the rows are equal, or if the kernel has no formula: then there is nothing to tell them apart.

    Parameters
    ----------
    blocks : the raw rows, dtype[_, d] after dtype[_, d], of which one is held at a time
    """
    kinds, examples = _kinds(kernel, blocks, query)
    if len(examples) == 1:
        return None
    scores = [score for row in examples if (score := decimal_score(kernel, row, query)) is not None]
    if len(scores) < len(examples):
        return None
    ranked = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)  # a minus would round to 28 digits
    levels = np.empty(len(scores), np.int64)
    levels[ranked] = _levels(kernel, [scores[place] for place in ranked])
    order = np.lexsort((ids, levels[kinds]))
    apart = np.diff(levels[kinds][order]) > 0
    return order, np.array([float(score) for score in scores])[kinds][order], apart


def _kinds(
    kernel: Kernel, blocks: Iterable[NDArray[Any]], query: NDArray[Any]
) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Return of which kind each row is, int64[p], and a row of each kind: those of a kind have one score.

    They are equal, or share no dimension with the query, and have no term.
    """
    numbers: dict[bytes, int] = {}
    examples: list[NDArray[Any]] = []
    kinds: list[int] = []
    shared, wanted = query != 0, is_of_shared_terms(kernel)
    for rows in blocks:
        apart = ~(rows[:, shared] != 0).any(axis=1) if wanted else np.zeros(len(rows), np.bool_)
        for row, nothing in zip(rows, apart.tolist(), strict=True):
            number = numbers.setdefault(b"" if nothing else row.tobytes(), len(numbers))
            if number == len(examples):
                examples.append(row.copy())
            kinds.append(number)
    return np.array(kinds), examples


def _levels(kernel: Kernel, scores: list[Decimal]) -> list[int]:
    """Return for descending scores how many lie apart from the one before, up to each."""
    levels = [0]
    for one, another in pairwise(scores):
        levels.append(levels[-1] + (one - another > tie_at(kernel, one)))
    return levels

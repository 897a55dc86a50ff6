"""Resolve ties: order scores by decimals where the error of float64 leaves the order open."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float64
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.kernels.decimals import decimal_score, is_of_shared_terms, tie_at
from mercore.pipeline.scanners.byte_rows import are_whole
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.fetch import FetchRows

RAW_BYTES = 1 << 24  # of raw rows that are compared at a time


class Candidates(NamedTuple):
    """Pairs that hold each query's top k: queries int64[p], rows int64[p], scores float64[p]."""

    queries: NDArray[np.int64]
    rows: NDArray[np.int64]
    scores: Float64

    def ordered(self) -> "Candidates":
        """Return the pairs by query, by descending score, then by row."""
        order = np.lexsort((self.rows, -self.scores, self.queries))
        return Candidates(self.queries[order], self.rows[order], self.scores[order])


class ResolvedTopK(NamedTuple):
    """The top k of each query: rows int64[nq, k], scores float64[nq, k].

    ``ties`` int64[nq] counts the rows beyond the k that tie with the k-th.
    """

    ids: NDArray[np.int64]
    scores: Float64
    ties: NDArray[np.int64]


def resolve_ties(
    scorer: ExactScorer, queries: NDArray[Any], candidates: Candidates, k: int, raw: FetchRows
) -> ResolvedTopK:
    """Return the top k of each query by real score.

    Scores no further apart than ``decimals.tie_at`` tie.

    Ties go to the lower row.

    Parameters
    ----------
    queries : dtype[nq, d], raw
    candidates : at least k per query, and all with scores within ``scorer.slack`` of its k-th
    raw : fetches raw rows, dtype[p, d], given int64[p], ascending
    """
    pairs = candidates.ordered()
    starts = np.searchsorted(pairs.queries, np.arange(len(queries) + 1))
    # whether a pair does not tie with the one before it
    apart = np.ones(len(pairs.rows) + 1, np.bool_)
    apart[1:-1] = (pairs.queries[1:] != pairs.queries[:-1]) | (
        pairs.scores[1:] != pairs.scores[:-1]
    )
    most = max(1, RAW_BYTES // (scorer.vectors.dims * scorer.vectors.dtype.itemsize))
    whole = are_whole(scorer.kernel, queries, scorer.vectors.dtype)  # equal scores are true ties
    near = [] if whole else list(_near_runs(pairs, starts[:-1], k, scorer))
    for runs in _groups(near, most):
        fetch = (
            raw
            if len(runs) == 1
            else _prefetched(raw, np.unique(np.concatenate([pairs.rows[run] for run in runs])))
        )
        for run in runs:
            ids, inside = np.sort(pairs.rows[run]), slice(run.start + 1, run.stop)
            blocks = (fetch(ids[start : start + most]) for start in range(0, len(ids), most))
            resolved = order_near_equal(
                scorer.kernel, blocks, queries[pairs.queries[run.start]], ids
            )
            if resolved is None:
                apart[inside] = False
            else:
                order, pairs.scores[run], apart[inside] = resolved
                pairs.rows[run] = ids[order]
    first = starts[:-1, None] + np.arange(k)
    next_apart = np.flatnonzero(apart)[
        np.searchsorted(np.flatnonzero(apart), first[:, -1], side="right")
    ]
    return ResolvedTopK(pairs.rows[first], pairs.scores[first], next_apart - first[:, -1] - 1)


def _near_runs(
    pairs: Candidates, starts: NDArray[np.int64], k: int, scorer: ExactScorer
) -> Iterator[slice]:
    """Yield the runs of pairs that float64 cannot order and that begin in the top k of a query."""
    higher, lower = pairs.scores[:-1], pairs.scores[1:]
    slack = np.maximum(scorer.slack(higher), scorer.slack(lower))
    near = (pairs.queries[1:] == pairs.queries[:-1]) & (higher - lower <= slack)
    changes = np.flatnonzero(np.diff(np.concatenate([[False], near, [False]]).astype(np.int8)))
    for begin, end in zip(changes[::2].tolist(), changes[1::2].tolist(), strict=True):
        if begin - starts[pairs.queries[begin]] < k:
            yield slice(begin, end + 1)


def _groups(runs: Sequence[slice], most: int) -> Iterator[list[slice]]:
    """Group consecutive runs up to ``most`` pairs; a longer run is a group of its own."""
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


def _prefetched(raw: FetchRows, rows: NDArray[np.int64]) -> FetchRows:
    """Fetch rows, ascending, in one call; return a function that returns some of them."""
    values = raw(rows)
    return lambda some: np.asarray(values[np.searchsorted(rows, some)])


def order_near_equal(
    kernel: Kernel, blocks: Iterable[NDArray[Any]], query: NDArray[Any], ids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], Float64, NDArray[np.bool_]] | None:
    """Order rows by real score: return the order, the scores, and where neighbours do not tie.

    Return None if the rows are equal or the kernel has no decimal formula: then all of them tie.

    Parameters
    ----------
    blocks : the raw rows, dtype[_, d], block by block; one block is in memory at a time
    ids : int64[p], their numbers
    """
    kinds, examples = _kinds(kernel, blocks, query)
    if len(examples) == 1:
        return None
    scores = [score for row in examples if (score := decimal_score(kernel, row, query)) is not None]
    if len(scores) < len(examples):
        return None
    # a minus would round to 28 digits
    ranked = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
    levels = np.empty(len(scores), np.int64)
    levels[ranked] = _levels(kernel, [scores[kind] for kind in ranked])
    order = np.lexsort((ids, levels[kinds]))
    apart = np.diff(levels[kinds][order]) > 0
    return order, np.array([float(score) for score in scores])[kinds][order], apart


def _kinds(
    kernel: Kernel, blocks: Iterable[NDArray[Any]], query: NDArray[Any]
) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """Return the kind of each row, int64[p], and one row of each kind.

    Rows of a kind have the same score.

    Rows of a kind are equal, or share no dimension with the query and so have no term.
    """
    numbers: dict[bytes, int] = {}
    examples: list[NDArray[Any]] = []
    kinds: list[int] = []
    shared, by_terms = query != 0, is_of_shared_terms(kernel)
    for rows in blocks:
        without = ~(rows[:, shared] != 0).any(axis=1) if by_terms else np.zeros(len(rows), np.bool_)
        for row, no_term in zip(rows, without.tolist(), strict=True):
            number = numbers.setdefault(b"" if no_term else row.tobytes(), len(numbers))
            if number == len(examples):
                examples.append(row.copy())
            kinds.append(number)
    return np.array(kinds), examples


def _levels(kernel: Kernel, scores: list[Decimal]) -> list[int]:
    """Return for each of the descending scores the number of gaps wider than a tie above it."""
    levels = [0]
    for score, lower in pairwise(scores):
        levels.append(levels[-1] + (score - lower > tie_at(kernel, score)))
    return levels

"""The search of rows by themselves, in which each pair is scored once.

A score of two rows serves both. Each row has a limit: a score that its k-th neighbour has at least.
Rows take turns, the lowest limit first, and each row scores the rows behind it. So of a pair the
row with the lower limit scores the other, and keeps all that either of the two needs. Limits are
measured first, among near rows, for about a hundredth of the pairs. The higher they are, the fewer
pairs are kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mercore.pipeline.arrays import Float64, float32_below
from mercore.pipeline.parallel import in_order
from mercore.pipeline.search.answers import ExactAnswers, Scored
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.exhaustive import RowsBatch
from mercore.pipeline.search.fetch import fetch
from mercore.pipeline.search.within import Ids, Limit, RangeAnswers, search_within
from mercore.pipeline.topk import TopK
from mercore.stores.selection import BitSelection
from mercore.stores.vectors import Vectors

CELLS = 2  # times √n cells, of one row each and of those nearest to it
LARGEST = 2  # times √n rows of a cell are looked at: a cell may hold most rows
PROBES = 8  # cells in which a row looks for near rows
ASSIGNED = 1 << 13  # rows at a time


@dataclass(frozen=True, eq=False)
class Turns:
    """The turns of n rows that each ask the rows behind them.

    ``least`` float64[n] are scores that at least k rows have with each row, less the error of a
    score: all that may be among the k nearest, or tie with them, reach it.
    """

    least: Float64

    @cached_property
    def rows(self) -> Ids:
        """The rows in the order of their turns."""
        return np.argsort(self.least, kind="stable")

    @cached_property
    def turn(self) -> Ids:
        """The turn of each row."""
        turns = np.empty_like(self.rows)
        turns[self.rows] = np.arange(len(turns))
        return turns

    @property
    def digest(self) -> str:
        """The digest of the scores, and so of the turns."""
        return blake2b(self.least.tobytes(), digest_size=16).hexdigest()

    def behind(self, first: int) -> BitSelection:
        """Return the rows whose turn is ``first`` or later."""
        return BitSelection(np.packbits(self.turn >= first, bitorder="little"))


class RowsInTurn:
    """Vectors as a source of queries, in the order of their turns."""

    def __init__(self, vectors: Vectors, turns: Turns) -> None:
        self._vectors, self._turns = vectors, turns
        self.name = vectors.where
        self.shape = (vectors.rows, vectors.dims)
        self.dtype = self.source_dtype = vectors.dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the rows of the turns [start, stop), dtype[stop − start, d]."""
        rows = self._turns.rows[start:stop]
        order = np.argsort(rows)
        values = np.empty((len(rows), self._vectors.dims), self.dtype)
        values[order] = _fetched(self._vectors, rows[order])
        return values

    def fingerprint(self) -> str:
        """Return the fingerprint of the vectors."""
        return self._vectors.fingerprint


def turn_bytes(vectors: Vectors, k: int) -> int:
    """Return the bytes of the rows in memory, of their turns, and of their answers.

    Pairs are not counted.
    """
    a_row = vectors.dims * vectors.dtype.itemsize
    return vectors.rows * (a_row + 8 * (3 * PROBES + 6 * k + 8))


def turns_of(scorer: ExactScorer, k: int) -> Turns:
    """Return turns by the k-th best score of each row among the rows of its nearest cells.

    Parameters
    ----------
    scorer : with rows in memory
    k : int, 1 ≤ k ≤ √n
    """
    vectors, root = scorer.vectors, isqrt(scorer.vectors.rows)
    count, most = CELLS * root, LARGEST * root
    nearest, kth = _nearest_cells(scorer, count, k)
    members, asking = _by_cell(nearest[:, :1], count), _by_cell(nearest, count)
    best = np.full((vectors.rows, k), -np.inf)

    def among_members(asked: tuple[int, Ids]) -> tuple[Ids, Float64]:
        cell, rows = asked
        some = members[cell][:: -(-len(members[cell]) // most)]
        lists = TopK(len(rows), k, np.float64, kth[rows])  # others complete kth: it only rises
        batch = RowsBatch(scorer.kernel, _fetched(vectors, rows), vectors.dtype)
        batch.search(_fetched(vectors, some), 0, lists)
        return rows, np.where(lists.ids < 0, -np.inf, lists.scores)

    asks = (
        (cell, rows)
        for cell in range(count)
        if len(members[cell])
        for rows in np.array_split(asking[cell], -(-len(asking[cell]) // ASSIGNED))
    )
    for rows, scores in in_order(asks, among_members, scorer.threads):
        best[rows] = np.sort(np.concatenate([best[rows], scores], axis=1), axis=1)[:, -k:]
        kth[rows] = np.maximum(kth[rows], best[rows, 0])
    return Turns(kth - scorer.slack(kth))


def ask(
    search: ExactSearch, turns: Turns, queries: NDArray[Any], first: int, limit: tuple[int, int]
) -> RangeAnswers:
    """Return the pairs that rows of consecutive turns keep, with the rows behind the first turn.

    Parameters
    ----------
    queries : dtype[nq, d], the raw rows of the turns from ``first`` on
    limit : k, and the number of pairs that may be kept
    """
    behind, (k, max_pairs) = turns.behind(first), limit
    least = turns.least[turns.rows[first : first + len(queries)]]
    found = search_within(search.among(behind), queries, Limit(least, max_pairs), k)
    return replace(found, ids=behind.rows_of(found.ids))


def answers_by_row(
    scorer: ExactScorer, turns: Turns, found: RangeAnswers, k: int, batch: int
) -> Iterator[ExactAnswers]:
    """Yield the exact top k of batches of consecutive rows, from what all rows kept in turn.

    Parameters
    ----------
    batch : the number of rows that asked at a time: among these, both rows of a pair asked
    """
    vectors, n = scorer.vectors, len(turns.least)
    row, other = turns.rows[np.repeat(np.arange(n), np.diff(found.lims))], found.ids
    later = turns.turn[other] // batch > turns.turn[row] // batch
    back = later & (found.scores >= turns.least[other])
    both = np.concatenate([row, other[back]]), np.concatenate([other, row[back]])
    pairs = csr_array((np.concatenate([found.scores, found.scores[back]]), both), shape=(n, n))
    evaluated = np.bincount(other[back], minlength=n)
    evaluated[turns.rows] += found.evaluated
    greatest = float32_below(turns.least - scorer.slack(turns.least)).astype(np.float64)

    def answers(first: int) -> ExactAnswers:
        rows = np.arange(first, min(first + batch, n))
        of_rows = slice(*pairs.indptr[[rows[0], rows[-1] + 1]])
        of_query = np.repeat(rows - first, np.diff(pairs.indptr[first : rows[-1] + 2]))
        scored = Scored(len(rows), k, scorer)
        scored.add(of_query, pairs.indices[of_rows].astype(np.int64), pairs.data[of_rows])
        raw = partial(_fetched, vectors)
        exact = scored.answers(scorer, raw(rows), greatest[rows], raw)
        return replace(exact, evaluated=evaluated[rows])

    return in_order(range(0, n, batch), answers, scorer.threads)


def _nearest_cells(scorer: ExactScorer, count: int, k: int) -> tuple[Ids, Float64]:
    """Return the cells of each row, int64[n, PROBES], and the k-th best score of their centres.

    The centres are rows, drawn at random.
    """
    vectors, kernel = scorer.vectors, scorer.kernel
    n = vectors.rows
    drawn = np.random.default_rng(0).choice(n, count, replace=False)
    centres = _fetched(vectors, np.sort(drawn))
    nearest, kth = np.empty((n, PROBES), np.int64), np.empty(n)

    def among_centres(first: int) -> tuple[slice, TopK]:
        rows = np.arange(first, min(first + ASSIGNED, n))
        lists = TopK(len(rows), max(k, PROBES), np.float64)
        batch = RowsBatch(kernel, _fetched(vectors, rows), vectors.dtype)
        batch.search(centres, 0, lists)
        return slice(first, first + len(rows)), TopK.merge([lists])

    for rows, lists in in_order(range(0, n, ASSIGNED), among_centres, scorer.threads):
        nearest[rows], kth[rows] = lists.ids[:, :PROBES], lists.scores[:, k - 1]
    return nearest, kth


def _by_cell(cells: Ids, count: int) -> list[Ids]:
    """Return the rows of each cell, ascending; ``cells`` int64[n, any] are those of each row."""
    order = np.argsort(cells, axis=None, kind="stable")
    ends = np.cumsum(np.bincount(cells.ravel(), minlength=count))
    return np.split(order // cells.shape[1], ends[:-1])


def _fetched(vectors: Vectors, rows: Ids) -> NDArray[Any]:
    """Return raw rows, dtype[p, d]; ``rows`` ascend."""
    return fetch(vectors.look_up(rows), threads=1)

"""The pairs of queries and rows whose bounds reach a threshold, and queries that are given up for having too many."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.parallel import over_parts
from mercore.pipeline.scanners.bounds import FEW_ROWS, BoundScanner, Pairs, joined
from mercore.pipeline.search.scan import OpenCodes, read_parts

FAILING, A_ROW = 0.1, 8  # the true score of every row costs so much of a pair a query, and so many pairs a row
SHORT_OF_ROOM = 0.02  # of the rows: lists for more would leave room for few queries at once


class PairBudget(NamedTuple):
    """How many pairs queries may have: k neighbours are sought.

    Every row's score is taken to cost ``share`` of a pair a query and row, and ``a_row`` pairs a row.
    """

    k: int
    a_row: int = A_ROW
    share: float = FAILING

    @classmethod
    def of(cls, k: int, *, roomy: bool) -> "PairBudget":
        """Return that of a search, which need not save memory if there is room."""
        return cls(k) if roomy else cls(k, 0, SHORT_OF_ROOM)


class Collected(NamedTuple):
    """The pairs that reach, in any order, and the queries bool[nq] that were given up: of theirs not all are there."""

    pairs: Pairs
    failing: NDArray[np.bool_]


def collect(
    codes: OpenCodes, scanner: BoundScanner, parts: Sequence[int], least: tuple[Float32, PairBudget], *, threads: int
) -> Collected:
    """Return the pairs of some parts whose bound reaches; what is found of a part depends on no other part.

    Parameters
    ----------
    least : float32[nq] that a query's bounds must reach, and how many may
    """
    limits, budget = least
    give_up = partial(too_many, budget=budget)

    def work(taken: Iterator[int]) -> list[Collected]:
        found: list[Collected] = []
        for part, columns in read_parts(codes, scanner.names, taken):
            found.append(Collected(*scanner.collect(columns, codes.store.store.bounds(part)[0], limits, give_up)))
        return found

    every = over_parts(list(parts), threads, work)
    return together([one for found in every for one in found], len(limits))


def together(found: Sequence[Collected], queries: int) -> Collected:
    """Return what was found of several parts as one."""
    failing = np.zeros(queries, np.bool_)
    for one in found:
        failing |= one.failing
    return Collected(joined([one.pairs for one in found]), failing)


def too_many(pairs: NDArray[np.int64], rows: int, budget: PairBudget) -> NDArray[np.bool_]:
    """Return the queries with most pairs among so many rows, if every row's score is cheaper than all of theirs."""
    many = pairs > FEW_ROWS + 2 * budget.k + budget.share * rows
    cheaper = int(pairs[many].sum()) > (budget.share * int(many.sum()) + budget.a_row) * rows
    return many if cheaper else np.zeros_like(many)

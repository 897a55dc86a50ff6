"""Collect the pairs whose bound reaches a threshold, and give up queries with too many."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32
from mercore.pipeline.parallel import over_parts
from mercore.pipeline.scanners.bounds.layout import FEW_ROWS
from mercore.pipeline.scanners.scanner import Bounds, Pairs, joined
from mercore.pipeline.search.scan import OpenCodes, read_parts

# Cost of scoring every row: 0.1 pair per (query, row), plus 8 pairs per row.
FAILING, A_ROW = 0.1, 8
# pairs per (query, row) where memory is short: longer lists would shrink batches
SHORT_OF_MEMORY = 0.02


class PairBudget(NamedTuple):
    """The number of pairs that queries may have in a search for k neighbours.

    Scoring every row costs as much as ``share`` pairs per (query, row), plus ``a_row`` pairs per
    row.
    """

    k: int
    a_row: int = A_ROW
    share: float = FAILING

    @classmethod
    def of(cls, k: int, *, roomy: bool) -> "PairBudget":
        """Return the budget of a search; ``roomy`` says that it need not save memory."""
        return cls(k) if roomy else cls(k, 0, SHORT_OF_MEMORY)


class Collected(NamedTuple):
    """The pairs that reach, and the queries that were given up, bool[nq].

    Pairs are in any order; those of a query that was given up are incomplete.
    """

    pairs: Pairs
    failing: NDArray[np.bool_]


def collect(
    codes: OpenCodes,
    scanner: Bounds,
    parts: Sequence[int],
    least: tuple[Float32, PairBudget],
    *,
    threads: int,
) -> Collected:
    """Return the pairs of some parts whose bound reaches.

    The pairs of a part depend on no other part.

    Parameters
    ----------
    least : float32[nq], the bound to reach for each query; and the budget of pairs
    """
    limits, budget = least
    give_up = partial(too_many, budget=budget)

    def work(parts: Iterator[int]) -> list[Collected]:
        collected: list[Collected] = []
        for part, columns in read_parts(codes, scanner.names, parts):
            first, _ = codes.store.bounds(part)
            collected.append(Collected(*scanner.collect(columns, first, limits, give_up)))
        return collected

    by_thread = over_parts(list(parts), threads, work)
    return merge_collected([part for collected in by_thread for part in collected], len(limits))


def merge_collected(collected: Sequence[Collected], queries: int) -> Collected:
    """Return the pairs of several parts as one."""
    failing = np.zeros(queries, np.bool_)
    for part in collected:
        failing |= part.failing
    return Collected(joined([part.pairs for part in collected]), failing)


def too_many(pairs: NDArray[np.int64], rows: int, budget: PairBudget) -> NDArray[np.bool_]:
    """Return the queries to give up, bool[nq]: scoring every row is cheaper than all their pairs.

    Parameters
    ----------
    pairs : int64[nq], the number of pairs of each query among these rows
    """
    many = pairs > FEW_ROWS + 2 * budget.k + budget.share * rows
    cheaper = int(pairs[many].sum()) > (budget.share * int(many.sum()) + budget.a_row) * rows
    return many if cheaper else np.zeros_like(many)

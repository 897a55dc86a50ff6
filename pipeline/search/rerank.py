"""Score pairs of rows and queries by the true kernel, behind a float32 prefilter.

Everywhere a tuple ``pairs`` is (rows, queries): int64[p] each.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.parallel import over_parts
from mercore.pipeline.scanners.byte_rows import byte_queries
from mercore.pipeline.topk import TopK
from mercore.stores.errors import InputError
from mercore.stores.vectors import Vectors

PAIRS = 1 << 12  # pairs that a thread scores per step, in float32 and in float64
EXACT_BYTES = 1 << 20  # of prepared rows that are scored in float64 per step: they stay in cache
Ids = NDArray[np.int64]


class Threshold(NamedTuple):
    """The threshold of pairs to score in float64.

    A pair must reach ``least[query]``, and be able to be in, or tie with, the query's top k.

    The top k is that of the pairs at hand, None for all of them; ``least`` is float32[nq].
    """

    k: int | None
    least: Float32


class Prepared:
    """A batch of queries for pairs with rows of a dtype: prepared by the kernel, float64[nq, d].

    They have a float32 prefilter if the kernel has one. For rows of bytes, whole queries are packed
    as bytes, and their scores in integers are both filter and true scores: see ``byte_rows``.
    """

    def __init__(self, kernel: Kernel, queries: NDArray[Any], dtype: np.dtype[Any]) -> None:
        self.kernel = kernel
        self.values = kernel.prepare(queries, label="query")
        self.bytes = byte_queries(kernel, queries, dtype)
        self.prefilter = self.bytes or kernel.prefilter(self.values)


def true_scores(
    vectors: Vectors, kernel: Kernel, queries: NDArray[Any], rows: Ids, *, threads: int
) -> Float64:
    """Return the true score of each query and each of its rows int64[nq, R], float64[nq, R].

    The score of row −1 is −inf.
    """
    prepared = Prepared(kernel, queries, vectors.dtype)

    def score(listed: Ids, of_query: Ids) -> Float64:
        return scores_of_pairs(vectors, prepared, (listed, of_query), threads=threads)

    return scores_of_lists(rows, score)


def scores_of_lists(lists: Ids, score: Callable[[Ids, Ids], Float64]) -> Float64:
    """Return the scores of lists of rows int64[nq, R], float64[nq, R]; −inf for row −1.

    Parameters
    ----------
    score : a function that scores pairs, given their rows and queries
    """
    scores, present = np.full(lists.shape, -np.inf), lists >= 0
    scores[present] = score(lists[present], np.nonzero(present)[0])
    return scores


def scores_of_pairs(
    vectors: Vectors,
    prepared: Prepared,
    pairs: tuple[Ids, Ids],
    *,
    threads: int,
    k: int | None = None,
) -> Float64:
    """Return the true scores of pairs, float64[p].

    Rows are looked up a few parts at a time, and scored before the next.

    Parameters
    ----------
    pairs : rows of the store, and queries; with ``k`` no pair twice
    k : int, optional
        The score of a pair that cannot be among the query's k best may be −inf. Such a pair is left
        out by its float32 score, whose error is proven.
    """
    rows, queries = pairs
    scores, order = np.full(len(rows), -np.inf), np.argsort(rows)  # pairs of a row in any order
    distinct, positions = _distinct(rows[order])
    lookup = vectors.look_up(distinct)
    ends = np.searchsorted(positions, [0, *(place.stop for place in lookup.places)])

    def work(steps: Iterator[int]) -> None:
        best = None if k is None else TopKPrefilter(prepared, k)
        for step in steps:
            place, here = lookup.places[step], slice(ends[step], ends[step + 1])
            values, places = lookup.read(step), order[here]
            pairs = positions[here] - place.start, queries[places]
            if best is not None:
                kept = best.possible(values, pairs, place.start)
                places, pairs = places[kept], (pairs[0][kept], pairs[1][kept])
            scores[places] = _exact(prepared, values, pairs, distinct[place])

    over_parts(lookup.steps, lookup.readers(threads), work)
    return scores


class TopKPrefilter:
    """The float32 scores of the k best pairs of each query so far, to leave out hopeless pairs."""

    def __init__(self, prepared: Prepared, k: int) -> None:
        self._prepared = prepared
        self._top_k = TopK(len(prepared.values), k, np.float64)

    def possible(self, values: NDArray[Any], pairs: tuple[Ids, Ids], first: int) -> Ids:
        """Return the positions of pairs that may be among the k best, int64[≤ p].

        Parameters
        ----------
        values : dtype[n, d], raw rows; the first of them has the number ``first``, for ties
        pairs : positions in ``values``, ascending, and queries
        """
        prefilter, (rows, queries) = self._prepared.prefilter, pairs
        if prefilter is None:
            return np.arange(len(rows))
        scores = prefilter.scores(values, pairs)
        known = ~np.isnan(scores)
        self._top_k.insert(queries[known], rows[known] + first, scores[known])
        kth = self._top_k.kth
        least = kth - float32_slack(self._prepared, values.shape[1], kth)
        return np.flatnonzero(~(scores < least[queries]))  # NaN, an unknown score, stays


def float32_slack(prepared: Prepared, dims: int, kth: NDArray[np.floating]) -> Float64:
    """Return the most by which one of the k best is below the k-th score in float32."""
    assert prepared.prefilter is not None
    return 2 * prepared.prefilter.error_at(kth) + prepared.kernel.slack(dims, kth)


def pair_scores(
    prepared: Prepared,
    values: NDArray[Any],
    pairs: tuple[Ids, Ids],
    threshold: Threshold,
    *,
    threads: int,
) -> Float64:
    """Return the true scores of pairs, float64[p]; −inf where the prefilter leaves one out.

    A pair is left out only if its float32 score is below the threshold by more than its proven
    error.

    Parameters
    ----------
    values : dtype[n, d], raw rows
    pairs : positions in ``values``, and queries; no pair twice
    """
    rows, queries = pairs
    scores, order = np.full(len(rows), -np.inf), np.argsort(rows, kind="stable")
    if prepared.prefilter is not None:
        order = order[
            _reaching(prepared, values, (rows[order], queries[order]), threshold, threads=threads)
        ]

    def work(slices: Iterator[int]) -> None:
        for number in slices:
            step = order[number * PAIRS : (number + 1) * PAIRS]
            scores[step] = _exact(prepared, values, (rows[step], queries[step]))

    over_parts(list(range(-(-len(order) // PAIRS))), threads, work)
    return scores


def _reaching(
    prepared: Prepared,
    values: NDArray[Any],
    pairs: tuple[Ids, Ids],
    threshold: Threshold,
    *,
    threads: int,
) -> NDArray[np.bool_]:
    """Return which pairs may reach the threshold, bool[p]; their rows ascend."""
    (rows, queries), prefilter = pairs, prepared.prefilter
    assert prefilter is not None
    scores = np.empty(len(rows))

    def work(slices: Iterator[int]) -> None:
        for number in slices:
            step = slice(number * PAIRS, (number + 1) * PAIRS)
            scores[step] = prefilter.scores(values, (rows[step], queries[step]))

    over_parts(list(range(-(-len(rows) // PAIRS))), threads, work)
    least = threshold.least.astype(np.float64)
    limits = least - prefilter.error_at(least)
    if threshold.k is not None:
        top_k, known = TopK(len(least), threshold.k, np.float64), ~np.isnan(scores)
        top_k.insert(queries[known], rows[known], scores[known])
        kth = top_k.kth
        limits = np.maximum(limits, kth - float32_slack(prepared, values.shape[1], kth))
    return np.asarray(~(scores < limits[queries]))  # NaN, an unknown score, stays


def _exact(
    prepared: Prepared, values: NDArray[Any], pairs: tuple[Ids, Ids], numbers: Ids | None = None
) -> Float64:
    """Return the float64 scores of pairs, rows ascending, float64[p].

    ``numbers`` are those of the rows ``values`` in the store.
    """
    rows, queries = pairs
    scores, size = np.empty(len(rows)), max(1, EXACT_BYTES // (8 * values.shape[1]))
    for start in range(0, len(rows), size):
        step = slice(start, start + size)
        if prepared.bytes is not None:
            scores[step] = prepared.bytes.scores(values, (rows[step], queries[step]))
            if not np.isnan(scores[step]).any():  # else a row is all zero
                continue
        distinct, positions = _distinct(rows[step])
        block = _prepare_rows(prepared.kernel, values, distinct, numbers)
        scores[step] = prepared.kernel.exact_pairs(block, prepared.values, positions, queries[step])
    return scores


def _prepare_rows(kernel: Kernel, values: NDArray[Any], rows: Ids, numbers: Ids | None) -> Float64:
    """Return some rows, prepared by the kernel.

    An error names the row by its number in the store.
    """
    try:
        return kernel.prepare(values[rows])
    except InputError:
        for row in rows.tolist():
            number = row if numbers is None else int(numbers[row])
            kernel.prepare(values[row : row + 1], first=number)
        raise


def _distinct(ascending: Ids) -> tuple[Ids, Ids]:
    """Return the distinct values of an ascending array, and each value's position among them."""
    first = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
    return ascending[first], np.cumsum(first) - 1

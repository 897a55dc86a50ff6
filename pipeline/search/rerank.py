"""Score chosen rows by the true kernel: fetched from the vector store in whole parts, each part read once."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.parallel import over_parts
from mercore.pipeline.topk import TopK
from mercore.stores.errors import InputError
from mercore.stores.vectors import Vectors

PAIRS = 1 << 12  # scored in float32 at a time
EXACT_BYTES = 1 << 20  # of prepared rows that are scored in float64 at a time: they stay in cache
KEPT_BYTES = 1 << 22  # of raw rows that were scored in float64
Ids = NDArray[np.int64]
FetchRows = Callable[[Ids], NDArray[Any]]


class Threshold(NamedTuple):
    """Which pairs are of account: with a score of at least ``least`` float32[nq], among the k best of a query or tied.

    The k best are those of the pairs at hand.
    """

    k: int
    least: Float32


class Prepared:
    """A batch of raw queries as the kernel wants them, float64[nq, d], and what rules out their pairs in float32."""

    def __init__(self, kernel: Kernel, queries: NDArray[Any]) -> None:
        self.kernel = kernel
        self.values = kernel.prepare(queries, label="query")
        self.prefilter = kernel.prefilter(self.values)


def true_scores(
    vectors: Vectors, kernel: Kernel, queries: NDArray[Any], rows: NDArray[np.int64], *, threads: int
) -> Float64:
    """Return the true score of each query and each of its rows, float64[nq, R]; −inf where the row is −1."""
    scores, found = np.full(rows.shape, -np.inf), rows >= 0
    pairs = np.nonzero(found)[0], rows[found]
    scores[found] = scores_of_pairs(vectors, Prepared(kernel, queries), pairs, threads=threads)
    return scores


def scores_of_pairs(vectors: Vectors, queries: Prepared, pairs: tuple[Ids, Ids], *, threads: int) -> Float64:
    """Return the true scores of pairs (query, row), float64[p].

    Every part of the vector store that holds a wanted row is read once, and its rows are scored before the next.

    Parameters
    ----------
    pairs : int64[p] twice: queries, and rows of the store
    """
    of, rows = pairs
    scores = np.empty(len(rows))
    order = np.argsort(rows, kind="stable")
    wanted = rows[order]

    def work(parts: Iterator[int]) -> None:
        for part in parts:
            first, last = vectors.bounds(part)
            here = slice(*np.searchsorted(wanted, [first, last]))
            values = vectors.read_part(part)
            scores[order[here]] = _exact(queries, values, (wanted[here] - first, of[order[here]]), first)

    over_parts(np.unique(wanted // vectors.part_rows).tolist(), threads, work)
    return scores


def fetch(vectors: Vectors, rows: NDArray[np.int64], *, threads: int) -> NDArray[Any]:
    """Return the named rows, dtype[len(rows), d]; every part that holds one is read once.

    Parameters
    ----------
    rows : int64[p], ascending
    """
    out = np.empty((len(rows), vectors.dims), vectors.dtype)

    def work(parts: Iterator[int]) -> None:
        for part in parts:
            first, last = vectors.bounds(part)
            here = slice(*np.searchsorted(rows, [first, last]))
            np.take(vectors.read_part(part), rows[here] - first, axis=0, out=out[here], mode="clip")  # else buffered

    parts = rows // vectors.part_rows
    over_parts(parts[np.diff(parts, prepend=-1) > 0].tolist(), threads, work)
    return out


class Kept:
    """Raw rows of vectors, as many as 4 MiB hold, so that the parts that they lie in need not be read again."""

    def __init__(self, vectors: Vectors, threads: int) -> None:
        self._vectors, self._threads = vectors, threads
        self._some: list[tuple[Ids, NDArray[Any]]] = []
        self._room = KEPT_BYTES

    def keep(self, rows: Ids, values: NDArray[Any], at: Ids) -> None:
        """Keep those rows of int64[p], dtype[p, d], that ``at`` names, ascending, if there is room for all of them."""
        size = len(at) * values[:1].nbytes
        if 0 < size <= self._room:
            self._some.append((rows[at], values[at]))
            self._room -= size

    def fetch(self, rows: Ids) -> NDArray[Any]:
        """Return the named rows, int64[p], ascending, dtype[p, d]; those that are not kept are read."""
        out, left = np.empty((len(rows), self._vectors.dims), self._vectors.dtype), np.ones(len(rows), np.bool_)
        for some, values in self._some:
            at = np.minimum(np.searchsorted(some, rows), len(some) - 1)
            here = left & (some[at] == rows)
            out[here] = values[at[here]]
            left &= ~here
        out[left] = fetch(self._vectors, rows[left], threads=self._threads)
        return out


def pair_scores(
    queries: Prepared, rows: NDArray[Any], pairs: tuple[Ids, Ids], threshold: Threshold, *, threads: int
) -> Float64:
    """Return the true scores of pairs (rows[at[p]], queries[of[p]]), float64[p]; −inf where the cut leaves one out.

    A pair is left out only if its float32 score lies lower by more than the proven error of that.

    Parameters
    ----------
    rows : dtype[n, d], raw
    pairs : int64[p] twice, ``at`` and ``of``; none twice
    """
    at, of = pairs
    scores, order = np.full(len(at), -np.inf), np.argsort(at, kind="stable")
    if queries.prefilter is not None:
        order = order[_of_account(queries, rows, (at[order], of[order]), threshold, threads=threads)]

    def work(slices: Iterator[int]) -> None:
        for number in slices:
            some = order[number * PAIRS : (number + 1) * PAIRS]
            scores[some] = _exact(queries, rows, (at[some], of[some]))

    over_parts(list(range(-(-len(order) // PAIRS))), threads, work)
    return scores


def _of_account(
    queries: Prepared, rows: NDArray[Any], pairs: tuple[Ids, Ids], threshold: Threshold, *, threads: int
) -> NDArray[np.bool_]:
    """Return which pairs, ``at`` ascending, the cut may leave, bool[p]."""
    (at, of), prefilter = pairs, queries.prefilter
    assert prefilter is not None
    scores = np.empty(len(at))

    def work(slices: Iterator[int]) -> None:
        for number in slices:
            some = slice(number * PAIRS, (number + 1) * PAIRS)
            scores[some] = prefilter.scores(rows, (at[some], of[some]))

    over_parts(list(range(-(-len(at) // PAIRS))), threads, work)
    best, known = TopK(len(threshold.least), threshold.k, np.float64), ~np.isnan(scores)
    best.insert(of[known], at[known], scores[known])
    ties = 2 * queries.kernel.exact_error(rows.shape[1])
    limits = np.maximum(threshold.least.astype(np.float64) - prefilter.error, best.kth - (2 * prefilter.error + ties))
    return np.asarray(~(scores < limits[of]))  # so that one that is not known may be left


def _exact(queries: Prepared, rows: NDArray[Any], pairs: tuple[Ids, Ids], first: int = 0) -> Float64:
    """Return the float64 scores of pairs, ``at`` ascending, float64[p]; ``first`` is the number of the first row."""
    at, of = pairs
    scores, size = np.empty(len(at)), max(1, EXACT_BYTES // (8 * rows.shape[1]))
    for start in range(0, len(at), size):
        some = slice(start, start + size)
        wanted, places = _distinct(at[some])
        prepared = _prepared(queries.kernel, rows, wanted, first)
        scores[some] = queries.kernel.exact_pairs(prepared, queries.values, places, of[some])
    return scores


def _prepared(kernel: Kernel, rows: NDArray[Any], wanted: Ids, first: int) -> Float64:
    """Return some of the rows as the kernel wants them; one that it does not take is named by its own number."""
    try:
        return kernel.prepare(rows[wanted])
    except InputError:
        for row in wanted.tolist():
            kernel.prepare(rows[row : row + 1], first=first + row)
        raise


def _distinct(values: Ids) -> tuple[Ids, Ids]:
    """Return the distinct ones of ascending values, and the place of each value among them."""
    first = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first], np.cumsum(first) - 1

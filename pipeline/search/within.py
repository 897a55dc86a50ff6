"""Range search: every row whose true score reaches a threshold, by bounds or from every row."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import psutil
from numpy.typing import NDArray

from mercore.pipeline.arrays import Float32, Float64, float32_below
from mercore.pipeline.kernels import Kernel, kernel_from_spec
from mercore.pipeline.scanners.scanner import joined, select_pairs
from mercore.pipeline.search.batch_search import (
    Advance,
    SearchSettings,
    answer,
    query_batches,
)
from mercore.pipeline.search.bounded import MANY_FAILING, windows
from mercore.pipeline.search.collect import PairBudget, too_many
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.executor import Executor, QueryBatch
from mercore.pipeline.search.rerank import Threshold
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError
from mercore.stores.formats.source import Source
from mercore.stores.results.hits import Hits
from mercore.stores.results.range_hits import RangeHits
from mercore.stores.selection import Groups
from mercore.stores.vectors import Vectors
from mercore.stores.wording import option

Ids = NDArray[np.int64]
Pairs = tuple[Ids, Ids, NDArray[np.floating[Any]]]  # queries, rows and scores
PAIR_BYTES = 64  # of a pair that is kept, sorted and written
FIRST_WIDTH, LONGER = 128, 8  # codes in the lists of queries at first, and how lists grow
MAX_LISTED = 1 << 22  # codes in all lists at a time, unless one list has more
STEPS = 64  # of a bisection of all float64
BELOW = 1e-12  # share of a score by which functions of it may fail to ascend


class TooManyPairsError(InputError):
    """More pairs are within the threshold than may be kept."""


class Limit(NamedTuple):
    """The threshold of a range search, one or float64[nq], and how many pairs may be kept."""

    threshold: float | Float64
    max_pairs: int


def pairs_in(memory: int | None) -> int:
    """Return the number of pairs that fit into some bytes, by default half of the free memory."""
    free = psutil.virtual_memory().available // 2
    return max(1, (free if memory is None else memory) // PAIR_BYTES)


class Reaching:
    """The pairs (query, row) whose score reaches a threshold: a ``Collector``."""

    def __init__(self, nq: int, limit: Limit) -> None:
        self.nq, self.limit = nq, limit
        self._lists: list[tuple[Ids, Ids, Float64]] = []
        self.count = 0

    def least(self, scores: Float32, error: float | Float64) -> Float64:
        """Return the approximate score below which no pair reaches: see ``Collector``."""
        return np.broadcast_to(self.limit.threshold, self.nq) - error

    def insert(self, queries: Ids, rows: Ids, scores: NDArray[np.floating[Any]]) -> None:
        """Keep the pairs that reach.

        Raises
        ------
        InputError
            If they are too many for the memory.
        """
        kept = scores >= np.broadcast_to(self.limit.threshold, self.nq)[queries]
        self._lists.append((queries[kept], rows[kept], scores[kept].astype(np.float64)))
        self.count += int(kept.sum())
        check_count(self.count, self.limit)

    @classmethod
    def merge(cls, collectors: Sequence[Self]) -> Self:
        """Merge collectors of disjoint rows into one."""
        merged = cls(collectors[0].nq, collectors[0].limit)
        for each in collectors:
            merged._lists += each._lists
            merged.count += each.count
        check_count(merged.count, merged.limit)
        return merged

    def pairs(self) -> tuple[Ids, Ids, Float64]:
        """Return the queries, rows and scores of all pairs, in any order."""
        none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        lists = zip(none, *self._lists, strict=True)
        queries, rows, scores = (np.concatenate(each) for each in lists)
        return queries, rows, scores


def check_count(count: int, limit: Limit) -> None:
    """Refuse more pairs than may be kept."""
    if count > limit.max_pairs:
        raise TooManyPairsError(
            f"more than {limit.max_pairs:,} pairs reach {option('within')}, and the memory holds "
            f"no more. Fix: a nearer {option('within')}, fewer queries, or more {option('memory')}."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RangeAnswers:
    """All rows within the threshold of each query of a batch, and the figures that prove it.

    The rows of query q are ``ids[lims[q]:lims[q + 1]]``, int64, with ``scores`` float64, which
    descend; ties go to the lower row. ``greatest`` float64[nq] is below the threshold and not below
    an upper bound of a row whose true score was not computed, −inf if every row was scored.
    ``evaluated`` int64[nq] counts the rows that were scored.
    """

    lims: Ids
    ids: Ids
    scores: Float64
    greatest: Float64
    evaluated: Ids

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def concatenate_ranges(batches: Sequence[RangeAnswers]) -> RangeAnswers:
    """Return the answers of consecutive batches as the answers to all their queries."""
    counts = np.concatenate([np.diff(each.lims) for each in batches])
    arrays = [each.arrays() for each in batches]
    joined_arrays = {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}
    return RangeAnswers(**joined_arrays | {"lims": lims_of(counts)})


def keep_pairs(answers: RangeAnswers, kept: NDArray[np.bool_]) -> RangeAnswers:
    """Return answers with some of their pairs, bool[pairs]."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    lims, ids, scores = before[answers.lims], answers.ids[kept], answers.scores[kept]
    return replace(answers, lims=lims, ids=ids, scores=scores)


def lims_of(counts: Ids) -> Ids:
    """Return the first position of each query in flat lists of some lengths, and the end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def search_within(
    search: ExactSearch, queries: NDArray[Any], limit: Limit, expected: int = 1
) -> RangeAnswers:
    """Return every row whose float64 score reaches a threshold, for each query.

    By bounds, a row is left out if its bound is below the threshold by more than the error of a
    score. A query for which the bounds leave too many rows is answered from scores of every row.

    Parameters
    ----------
    queries : dtype[nq, d], raw rows
    limit : its threshold is a score of the kernel that the search ranks by
    expected : int, about how many rows reach it, which decides whether bounds pay

    Raises
    ------
    InputError
        If more pairs reach the threshold.
    """
    nq, rows = len(queries), search.scorer.vectors.rows
    every, counts = np.ones(nq, np.bool_), np.zeros(nq, np.int64)
    found: list[tuple[Ids, Ids, Float64]] = []
    threshold = np.broadcast_to(limit.threshold, nq)
    least = float32_below(threshold - search.scorer.slack(threshold))
    if search.bounds is not None and search.pays(queries, expected):
        batch = search.executor.batch(queries, beta=search.beta)
        kept, counts, every = _by_bounds(search, batch, least, Reaching(nq, limit))
        pairs = kept.pairs()
        proved = ~every[pairs[0]]
        found.append((pairs[0][proved], pairs[1][proved], pairs[2][proved]))
    if every.any():
        left = np.flatnonzero(every)
        new = partial(Reaching, len(left), limit._replace(threshold=threshold[left]))
        of_query, near, scores = search.executor.batch(queries[every]).score_every_row(new).pairs()
        found.append((left[of_query], near, scores))
    of_query, near, scores = (np.concatenate(each) for each in zip(*found, strict=True))
    check_count(len(near), limit)
    order = np.lexsort((near, -scores, of_query))
    return RangeAnswers(
        lims=lims_of(np.bincount(of_query, minlength=nq)),
        ids=near[order],
        scores=scores[order],
        greatest=np.where(every, -np.inf, least.astype(np.float64)),
        evaluated=np.where(every, rows, counts),
    )


def search_within_among(
    search: ExactSearch, queries: NDArray[Any], limit: Limit, groups: Groups
) -> RangeAnswers:
    """Return the answers to queries of several groups, each among rows of its own."""
    nq, found = len(queries), [_no_pairs()]
    greatest, evaluated = np.full(nq, -np.inf), np.zeros(nq, np.int64)
    for some, selection in groups:
        narrow = search.among(selection)
        if narrow.scorer.vectors.rows:
            part = search_within(narrow, queries[some], limit)
            greatest[some], evaluated[some] = part.greatest, part.evaluated
            of_query = np.repeat(some, np.diff(part.lims))
            found.append((of_query, selection.rows_of(part.ids), part.scores))
    of_query, ids, scores = (np.concatenate(each) for each in zip(*found, strict=True))
    check_count(len(ids), limit)
    order = np.argsort(of_query, kind="stable")
    return RangeAnswers(
        lims=lims_of(np.bincount(of_query, minlength=nq)),
        ids=ids[order],
        scores=scores[order].astype(np.float64),
        greatest=greatest,
        evaluated=evaluated,
    )


def _by_bounds(
    search: ExactSearch, batch: QueryBatch, least: Float32, kept: Reaching
) -> tuple[Reaching, Ids, NDArray[np.bool_]]:
    """Score the rows whose bound reaches; return the pairs, their counts, and who was given up."""
    assert search.bounds is not None
    codes, scorer, nq = search.bounds.store, search.scorer, len(batch.queries)
    budget = PairBudget.of(0, roomy=scorer.window is None)
    counts, failing = np.zeros(nq, np.int64), np.zeros(nq, np.bool_)
    for parts in windows(codes.parts, codes.part_rows, nq, scorer.window):
        if failing.mean() > MANY_FAILING:
            return kept, counts, np.ones(nq, np.bool_)
        limits = np.where(failing, np.float32(np.inf), least)
        collected = batch.collect(parts, limits, budget)
        first, end = codes.bounds(parts[0])[0], codes.bounds(parts[-1])[1]
        pairs = collected.pairs
        some = np.bincount(pairs.queries, minlength=nq)
        failing |= collected.failing | too_many(some, end - first, budget)
        pairs = joined([select_pairs(pairs, ~failing[pairs.queries])])
        counts += np.bincount(pairs.queries, minlength=nq)
        distinct, positions = np.unique(pairs.rows, return_inverse=True)
        scores = batch.fetch_to_score(distinct)(positions, pairs.queries, Threshold(None, limits))
        kept.insert(pairs.queries, pairs.rows, scores)
    return kept, counts, failing


def search_codes_within(
    store: CodeStore,
    queries: Source,
    settings: SearchSettings,
    limit: Limit,
    *,
    advance: Advance = lambda queries: None,
) -> RangeHits:
    """Return the rows whose score by code is within, or of the best by code the true score.

    Lists of codes grow until their last one is not within.

    Parameters
    ----------
    queries, settings : as of ``search_code_store``, with an executor; with ``settings.rerank`` so
        many of the best codes are scored by the true kernel
    limit : its threshold is what the kernel shows: the least score, or the greatest distance
    """
    executor, labels = settings.executor, settings.labels
    assert executor is not None
    found = [_no_pairs()]
    for first, raw in query_batches(queries, settings.batch):
        if labels is None:
            of_query, rows, scores = _codes_within(store, executor, raw, settings, limit)
            found.append((first + of_query, rows, scores))
        else:
            assert isinstance(executor, ThreadExecutor)
            for some, selection in labels.groups(first, len(raw)):
                narrow = executor.among(selection)
                assert narrow.codes is not None
                of_query, rows, scores = _codes_within(
                    narrow.codes.store, narrow, raw[some], settings, limit
                )
                found.append((first + some[of_query], selection.rows_of(rows), scores))
        check_count(sum(len(rows) for _, rows, _ in found), limit)
        advance(len(raw))
    of_query, rows, scores = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.argsort(of_query, kind="stable")
    lims = lims_of(np.bincount(of_query, minlength=queries.shape[0]))
    return RangeHits(lims=lims, ids=store.ids_of(rows[order]), scores=scores[order])


def _codes_within(
    store: CodeStore,
    executor: Executor,
    raw: NDArray[Any],
    settings: SearchSettings,
    limit: Limit,
) -> Pairs:
    """Return the pairs within of a batch of raw queries and the codes of an executor."""
    kernel = kernel_from_spec(store.spec.kernel, settings.custom)
    todo, width = np.arange(len(raw)), min(settings.rerank or FIRST_WIDTH, store.rows)
    found, parts = [_no_pairs()], range(store.parts)
    while len(todo) and width:
        longer: list[Ids] = []
        for some in np.array_split(todo, -(-len(todo) * width // MAX_LISTED)):
            batch = executor.batch(raw[some])
            top_k = answer(batch, parts, width, width if settings.rerank else None)
            scores = kernel.shown(top_k.scores)
            near = shows_within(kernel, scores, limit.threshold) & (top_k.ids >= 0)
            full = near[:, -1] & (width < store.rows) & (settings.rerank is None)
            near &= ~full[:, None]
            found.append((some[np.nonzero(near)[0]], top_k.ids[near], scores[near]))
            check_count(sum(len(rows) for _, rows, _ in found), limit)
            longer.append(some[full])
        todo, width = np.concatenate(longer), min(store.rows, LONGER * width)
    of_query, rows, scores = (np.concatenate(each) for each in zip(*found, strict=True))
    return of_query, rows, scores


def _no_pairs() -> Pairs:
    """Return no pairs: a batch may have none."""
    return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)


def range_hits(kernel: Kernel, vectors: Vectors, answers: RangeAnswers, within: float) -> RangeHits:
    """Return the answers within, with the scores that users see, and ids in place of rows."""
    answers = keep_pairs(answers, reaches(kernel, answers.scores, within))
    shown = kernel.shown(kernel.from_ranking(answers.scores.copy()))
    return RangeHits(lims=answers.lims, ids=vectors.ids_of(answers.ids), scores=shown)


def hits_within(kernel: Kernel, hits: Hits, within: float | None) -> Hits:
    """Return the hits within a threshold, all without one; −1 and no score in place of others."""
    assert hits.scores is not None
    kept = hits.ids >= 0
    if within is not None:
        kept &= shows_within(kernel, hits.scores, within)
    if kept.all():
        return hits
    none = kernel.shown(np.full(1, -np.inf, hits.scores.dtype))
    return Hits(scores=np.where(kept, hits.scores, none), ids=np.where(kept, hits.ids, -1))


def least_score(kernel: Kernel, within: float) -> float:
    """Return a score of ``kernel.ranking`` that every row within has, and few others.

    Parameters
    ----------
    within : what ``kernel`` shows: the least score, or the greatest distance
    """
    low, high = (-np.finfo(np.float64).max, np.finfo(np.float64).max)
    low_bits, high_bits = _ordered(low), _ordered(high)
    for _ in range(STEPS):
        middle = (low_bits + high_bits) // 2
        if reaches(kernel, np.array([_float_of(middle)]), within)[0]:
            high_bits = middle
        else:
            low_bits = middle
    least = _float_of(high_bits)
    return least - BELOW * abs(least)


def reaches(kernel: Kernel, scores: Float64, within: float) -> NDArray[np.bool_]:
    """Return which scores of ``kernel.ranking`` are within, as ``kernel`` shows them."""
    with np.errstate(over="ignore", invalid="ignore"):
        return shows_within(kernel, kernel.shown(kernel.from_ranking(scores.copy())), within)


def shows_within(
    kernel: Kernel, shown: NDArray[np.floating[Any]], within: float | Float64
) -> NDArray[np.bool_]:
    """Return which scores, as the kernel shows them, are within."""
    shown = shown.astype(np.float64, copy=False)
    return np.asarray(shown <= within if kernel.ascending else shown >= within)


def _ordered(value: float) -> int:
    """Return a whole number that ascends with the value."""
    bits = int(np.float64(value).view(np.int64))
    return bits if bits >= 0 else -(bits & (2**63 - 1))


def _float_of(ordered: int) -> float:
    """Return the value of a whole number of ``_ordered``."""
    size = float(np.int64(abs(ordered)).view(np.float64))
    return size if ordered >= 0 else -size

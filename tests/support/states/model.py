"""What stores hold and searches must answer, in NumPy: rows are numbers of a pool of few distinct
rows, whose scores are fractions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]
DIMS = 6


def _pool() -> NDArray[np.float32]:
    """Row 0 is all zero. Others are permutations and multiples of each other, so that they tie."""
    rng = np.random.default_rng(7)
    rows = [[0] * DIMS, *(np.roll([3, 2, 1, 0, 0, 0], shift) for shift in range(DIMS))]
    rows += [[6, 4, 2, 0, 0, 0], [1] * DIMS, [2] * DIMS, [0, 0, 0, 0, 0, 5]]
    rows += [*rng.integers(0, 4, (20, DIMS))]
    return np.array(rows, np.float32)


POOL = _pool()
QUERIES = np.concatenate([POOL[[9, 3, 15]], [[1, 0, 2, 7, 0, 1]]]).astype(np.float32)
BATCHES = {  # rows by their numbers in the pool
    "a": np.random.default_rng(1).integers(0, len(POOL), 37),
    "b": np.random.default_rng(2).integers(0, len(POOL), 21),
    "c": np.array([3, 3, 0, 3, 9, 0, 11]),
    "one": np.array([5]),
    "long": np.random.default_rng(3).integers(1, len(POOL), 70),
}
BATCHES["alike"] = np.where(np.arange(70) == 10, BATCHES["long"] % 30 + 1, BATCHES["long"])


class Encoder(NamedTuple):
    """An encoder that fits the smallest store: its kernel, and what its codes serve for."""

    name: str
    kernel: str
    scans: bool = True
    proves: bool = False
    indexed: str | None = None  # the kind of the index of these codes


ENCODERS = [
    Encoder("pq:subquantizers=3", "euclidean", proves=True, indexed="cells"),
    Encoder("map-pq:components=8,subquantizers=4", "chi2", proves=True, indexed="cells"),
    Encoder("klsh:bits=16,landmarks=16,subset=4", "chi2", indexed="orders"),
    Encoder("aska:atoms=16,sparsity=2", "chi2"),
    Encoder("kpca-bound:landmarks=16,components=4", "chi2", scans=False, proves=True),
    Encoder("bin-bound:groups=4", "chi2", scans=False, proves=True),
]
FEWEST = 20  # rows, for which all of them fit


def _exact_score(kernel: str, x: list[int], y: list[int]) -> Fraction:
    """Return the score of two rows of whole numbers; of euclidean the negative squared distance."""
    if kernel == "euclidean":
        return Fraction(-sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))
    pairs = [(Fraction(a, sum(x)), Fraction(b, sum(y))) for a, b in zip(x, y, strict=True)]
    return sum((2 * a * b / (a + b) for a, b in pairs if a and b), Fraction(0))


@cache
def scores(kernel: str) -> tuple[NDArray[np.float64], Ids]:
    """Return the score that is shown of every query and row of the pool, and its rank: equal for
    equal scores, and greater for nearer rows."""
    table = [
        [_exact_score(kernel, x, y) if any(y) else Fraction(-1) for y in POOL.astype(int).tolist()]
        for x in QUERIES.astype(int).tolist()
    ]
    order = {score: rank for rank, score in enumerate(sorted({s for row in table for s in row}))}
    shown = np.array(table, np.float64)
    if kernel == "euclidean":
        shown = np.sqrt(-shown)
    return shown, np.array([[order[score] for score in row] for row in table])


@dataclass(frozen=True, eq=False)
class Rows:
    """What a vector store holds: the number in the pool of every id, and whether its row was kept
    and is deleted.

    ``history`` are the ingest and the appends that made it.
    """

    numbers: Ids
    kept: Mask
    deleted: Mask
    history: tuple[tuple[str, ...], ...]
    source = ""  # the name of the store that it was made of

    @classmethod
    def ingested(cls, batches: list[str]) -> "Rows":
        """Return the rows of a new store."""
        numbers = np.concatenate([BATCHES[name] for name in batches])
        kept = numbers > 0
        return cls(numbers, kept, kept & False, (tuple(batches),))

    def appended(self, batches: list[str], *, again: bool = False) -> "Rows":
        """Return the rows after an append, which an earlier one may have done."""
        step = tuple(batches)
        if step in self.history[1:] and not again:
            return self
        more = np.concatenate([BATCHES[name] for name in batches])
        numbers = np.concatenate([self.numbers, more])
        kept = np.concatenate([self.kept, more > 0])
        deleted = np.concatenate([self.deleted, more < 0])
        history = (*self.history, step)
        return Rows(numbers, kept, deleted, history)

    def without(self, ids: Ids) -> "Rows":
        """Return the rows after a deletion."""
        gone = np.isin(np.arange(len(self.numbers)), ids) & self.kept
        return replace(self, deleted=self.deleted | gone)

    def compacted(self) -> "Rows":
        """Return the rows of a compacted store: the ids go on behind the last one."""
        made = ("compacted", str(self.numbers[self.live]), str(np.flatnonzero(self.live)))
        none = self.kept & False
        return Rows(self.numbers, self.live, none, (made,))

    @property
    def live(self) -> Mask:
        """The rows that count."""
        return np.asarray(self.kept & ~self.deleted)

    @property
    def count(self) -> int:
        """The number of stored rows."""
        return int(self.kept.sum())

    def fits(self, report: Mapping[str, Any]) -> bool:
        """Return whether a store that is described so may hold these rows."""
        return (report["rows"], report.get("deleted_rows", 0)) == (self.count, self.deleted.sum())

    def killed(self, before: "Model | None", report: Mapping[str, Any]) -> "Rows":
        """Return the rows after a verb was killed: all of them."""
        return self

    def continues(self, other: "Rows") -> bool:
        """Return whether the other rows are these, or an earlier state of them."""
        return self.history[: len(other.history)] == other.history


@dataclass(frozen=True, eq=False)
class Derived:
    """What codes or an index hold: the encoded rows, and the name under which these were found.

    ``whole`` is False after a kill that may have left parts undone. ``index`` is the kind of an
    index, and ``measured`` says whether its recall was measured.
    """

    rows: Rows
    encoder: Encoder
    source: str
    whole: bool = True
    index: str | None = None
    measured: bool = True

    def follows(self, other: "Derived") -> bool:
        """Return whether the same encoder has made the other store of the same or earlier rows."""
        return self.encoder == other.encoder and self.rows.continues(other.rows)

    def proves(self, rows: Rows, kernel: str) -> bool:
        """Return whether these are bounds of the scores of all rows."""
        proving = self.encoder.proves and self.index is None and self.whole
        return proving and (self.rows.history, self.encoder.kernel) == (rows.history, kernel)

    def fits(self, report: Mapping[str, Any]) -> bool:
        """Return whether a store that is described so may be this one."""
        return bool(report["rows"] == self.rows.count)

    def killed(self, before: "Model | None", report: Mapping[str, Any]) -> "Derived":
        """Return the state of this store after a verb was killed."""
        whole = isinstance(before, Derived) and before.whole
        return replace(self, whole=whole, source=Path(report["source"]).name)


Model: TypeAlias = Rows | Derived


def nearest(kernel: str, rows: Rows, among: Mask, query: int) -> Ids:
    """Return the ids of the rows that take part, the nearest first."""
    ids = np.flatnonzero(among)
    ranks = scores(kernel)[1][query, rows.numbers[ids]]
    return ids[np.lexsort((ids, -ranks))]

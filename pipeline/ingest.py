"""Stream a foreign source into a vector store, and count its special rows."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.ingest_numba import hash_rows, row_ranges
from mercore.pipeline.parallel import idle_pool
from mercore.stores.distinct import DistinctCounter
from mercore.stores.errors import InputError
from mercore.stores.formats.source import Source
from mercore.stores.formats.streams import row_blocks
from mercore.stores.rows import StoredRows
from mercore.stores.vector_writer import RowWriter
from mercore.stores.vectors import VectorStore

DELETED = "deleted"  # kind of rows that a compaction leaves out
BLOCK_BYTES = 8 << 20  # of a block, at least: far sources are not to be asked often


@dataclass(frozen=True)
class Drop:
    """The rows that ingest leaves out: those that are all zero, those with NaN or infinity.

    ``missing`` int64, ascending, are ids that no row of the source has, None for none; the rows of
    the source have the other ids, and all of them are kept.
    """

    zero: bool = False
    bad: bool = False
    missing: NDArray[np.int64] | None = None


@dataclass(kw_only=True)
class RowReport:
    """Counts and range of the rows so far; ``dropped_kinds`` counts the dropped ones by kind."""

    drop: Drop = Drop()
    zero_rows: int = 0
    nan_rows: int = 0
    infinite_rows: int = 0
    negative_rows: int = 0
    value_min: float | None = None
    value_max: float | None = None
    dropped: list[NDArray[np.int64]] = field(default_factory=list)
    dropped_kinds: Counter[str] = field(default_factory=Counter)

    def add(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Add a block of rows, dtype[b, d]; return which are to be dropped, bool[b]."""
        low, high = _ranges(rows)
        kinds = _kinds(rows, low, high)
        dropped = np.zeros(len(rows), np.bool_)
        if self.drop.zero:
            dropped |= kinds["zero"]
        if self.drop.bad:
            dropped |= kinds["nan"] | kinds["infinite"]
        for kind, those in kinds.items():
            count = int(np.count_nonzero(those))
            setattr(self, f"{kind}_rows", getattr(self, f"{kind}_rows") + count)
            self.dropped_kinds[kind] += int(np.count_nonzero(those & dropped)) if count else 0
        odd = kinds["nan"] | kinds["infinite"]
        finite = rows[np.isfinite(rows)] if odd.any() else np.concatenate([low, high])
        if finite.size:
            least, most = float(finite.min()) + 0.0, float(finite.max()) + 0.0  # no −0
            self.value_min = least if self.value_min is None else min(least, self.value_min)
            self.value_max = most if self.value_max is None else max(most, self.value_max)
        return dropped

    def facts(self) -> dict[str, Any]:
        """Return the fields of ``VectorSpec`` that the report states."""
        names = ("zero", "nan", "infinite", "negative")
        by_kind = {kind: self.dropped_kinds[kind] for kind in names}
        only_zero = sum(by_kind.values()) == by_kind["zero"]
        return {
            "dropped_rows": sum(map(len, self.dropped)),
            **{f"{kind}_rows": getattr(self, f"{kind}_rows") for kind in names},
            "value_min": self.value_min,
            "value_max": self.value_max,
            "dropped_kinds": {} if only_zero else by_kind,
        }


def _ranges(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the least and the greatest number of each row, dtype[b] each.

    NaN lies beyond infinity, on the side of its sign.
    """
    if rows.dtype.kind != "f":
        return _integer_ranges(rows)
    # As integers, floats ascend if they are positive, and descend if they are negative.
    low, high = _integer_ranges(rows.view(f"i{rows.itemsize}"))
    magnitudes = _integer_ranges(rows.view(f"u{rows.itemsize}"))
    lowest, highest = (each.view(low.dtype) for each in magnitudes)
    low, high = np.where(low < 0, highest, low), np.where(high < 0, lowest, high)
    return low.view(rows.dtype), high.view(rows.dtype)


def _integer_ranges(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the least and the greatest integer of each row, dtype[b] each."""
    low, high = np.empty(len(rows), rows.dtype), np.empty(len(rows), rows.dtype)
    row_ranges(rows, low, high)
    return low, high


def _kinds(
    rows: NDArray[Any], low: NDArray[Any], high: NDArray[Any]
) -> dict[str, NDArray[np.bool_]]:
    """Return which rows of a block are of each kind that reports count, bool[b] each.

    Parameters
    ----------
    low, high : from ``_ranges``
    """
    kinds = {
        "zero": (low == 0) & (high == 0),
        "nan": np.zeros(len(rows), np.bool_),
        "infinite": np.zeros(len(rows), np.bool_),
        "negative": low < 0,
    }
    odd = ~(np.isfinite(low) & np.isfinite(high)) if rows.dtype.kind == "f" else kinds["nan"]
    if odd.any():
        kinds["nan"][odd] = np.isnan(rows[odd]).any(axis=1)
        kinds["infinite"][odd] = np.isinf(rows[odd]).any(axis=1)
        kinds["negative"][odd] = (rows[odd] < 0).any(axis=1)
    return kinds


def ingest(
    source: Source,
    writer: RowWriter,
    counter: DistinctCounter,
    *,
    drop: Drop = Drop(),
    advance: Callable[[int], None] = lambda rows: None,
) -> VectorStore:
    """Copy every row of ``source`` into the store of ``writer``, in order and in bounded memory.

    Parameters
    ----------
    drop : the rows to leave out; the other rows keep their ids
    advance : called with the number of rows read since the last call

    Raises
    ------
    InputError
        If no row is left, or a value cannot be stored.
    """
    report = RowReport(drop=drop)
    part_bytes = writer.part_rows * source.shape[1] * source.dtype.itemsize
    parts = -(-BLOCK_BYTES // part_bytes)  # of a block: whole ones are written without a copy
    blocks = row_blocks(source, parts * writer.part_rows)
    with idle_pool(1) as pool:
        ahead = pool.submit(next, blocks, None)
        try:
            while (block := ahead.result()) is not None:
                ahead = pool.submit(next, blocks, None)  # while this block is worked on
                start, rows = block
                dropped = report.add(rows)
                counter.add(row_digests(rows))
                if dropped.any():
                    report.dropped.append(np.flatnonzero(dropped) + start)
                writer.append(rows[~dropped] if dropped.any() else rows)
                advance(len(rows))
        finally:
            wait([ahead])
    n = source.shape[0]  # of a stream, known only now
    ids = np.concatenate(report.dropped) if report.dropped else np.empty(0, np.int64)
    if n == ids.size:
        raise InputError(
            f"{source.name} has no row to store: found {n} rows, {_why(ids.size, drop)}. "
            "Fix: check the source."
        )
    facts = {
        "source": source.name,
        "source_dtype": source.source_dtype.name,
        "source_rows": n,
        "duplicate_rows": n - counter.count(),
        **report.facts(),
    }
    if drop.missing is not None:
        ids = drop.missing
        facts |= {"dropped_rows": ids.size, "dropped_kinds": {DELETED: ids.size}}
        facts |= {"source_rows": n + ids.size}
    return writer.finish(facts, ids)


def is_append_of(source: Source, vectors: VectorStore, number: int) -> bool:
    """Return whether an append of ``vectors`` stored the rows of ``source``, byte by byte.

    Rows that the append dropped are not stored: these need only be all zero or not finite, too.
    """
    row, behind, dropped = vectors.rows_of_append(number)
    if source.shape[0] != behind - row + len(dropped):
        return False
    stored = StoredRows(vectors)
    for start, rows in row_blocks(source, vectors.part_rows):
        gone = np.isin(np.arange(start, start + len(rows)), dropped)
        kept, kinds = rows[~gone], _kinds(rows[gone], *_ranges(rows[gone]))
        if not (kinds["zero"] | kinds["nan"] | kinds["infinite"]).all():
            return False
        if len(kept) and kept.tobytes() != stored.read(row, row + len(kept)).tobytes():
            return False
        row += len(kept)
    return True


def _why(dropped: int, drop: Drop) -> str:
    """Return the number of rows that are left out, and the reason."""
    what = "all zero or not finite" if drop.bad and drop.zero else "not finite"
    return f"{dropped} of them {what if drop.bad else 'all zero'}"


def row_digests(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a 64-bit digest of each row, uint64[b]: distinct rows hardly ever share one."""
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    missing = -data.shape[1] % 8
    words = np.pad(data, ((0, 0), (0, missing))) if missing else data
    out = np.empty(len(rows), np.uint64)
    hash_rows(words.view(np.uint64), out)
    return out

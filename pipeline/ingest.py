"""Stream a foreign source into a vector store, and count its special rows."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.ingest_numba import hash_rows
from mercore.stores.distinct import DistinctCounter
from mercore.stores.errors import InputError
from mercore.stores.formats.source import Source
from mercore.stores.formats.streams import row_blocks
from mercore.stores.vector_writer import VectorWriter
from mercore.stores.vectors import VectorStore

BLOCK_BYTES = 8 << 20


@dataclass(kw_only=True)
class RowReport:
    """Counts and range of the rows so far."""

    zero_rows: int = 0
    nan_rows: int = 0
    infinite_rows: int = 0
    negative_rows: int = 0
    value_min: float | None = None
    value_max: float | None = None
    dropped: list[NDArray[np.int64]] = field(default_factory=list)

    def add(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Add a block of rows, dtype[b, d]; return which are all zero, bool[b]."""
        zero = ~rows.any(axis=1)
        self.zero_rows += int(zero.sum())
        if rows.dtype.kind != "u":
            self.negative_rows += int((rows < 0).any(axis=1).sum())
        finite = rows
        if rows.dtype.kind == "f":
            self.nan_rows += int(np.isnan(rows).any(axis=1).sum())
            self.infinite_rows += int(np.isinf(rows).any(axis=1).sum())
            finite = rows[np.isfinite(rows)]
        if finite.size:
            low, high = float(finite.min()), float(finite.max())
            self.value_min = low if self.value_min is None else min(low, self.value_min)
            self.value_max = high if self.value_max is None else max(high, self.value_max)
        return np.asarray(zero)


def ingest(
    source: Source,
    writer: VectorWriter,
    counter: DistinctCounter,
    *,
    drop_zero_rows: bool = False,
    advance: Callable[[int], None] = lambda rows: None,
) -> VectorStore:
    """Copy every row of ``source`` into the store of ``writer``, in order and in bounded memory.

    Parameters
    ----------
    drop_zero_rows : bool
        Leave all-zero rows out; the other rows keep their ids.
    advance : called with the number of rows read since the last call

    Raises
    ------
    InputError
        If no row is left, or a value cannot be stored.
    """
    d = source.shape[1]
    report = RowReport()
    step = max(1, BLOCK_BYTES // (d * source.dtype.itemsize))
    for start, rows in row_blocks(source, step):
        zero = report.add(rows)
        counter.add(row_digests(rows))
        if drop_zero_rows and zero.any():
            report.dropped.append(np.flatnonzero(zero) + start)
            writer.append(rows[~zero])
        else:
            writer.append(rows)
        advance(len(rows))
    n = source.shape[0]  # of a stream, known only now
    dropped = np.concatenate(report.dropped) if report.dropped else np.empty(0, np.int64)
    if n == dropped.size:
        raise InputError(
            f"{source.name} has no row to store: found {n} rows, {dropped.size} of them all zero. "
            "Fix: check the source."
        )
    facts = {
        "source": source.name,
        "source_dtype": source.source_dtype.name,
        "source_rows": n,
        "dropped_rows": int(dropped.size),
        "zero_rows": report.zero_rows,
        "nan_rows": report.nan_rows,
        "infinite_rows": report.infinite_rows,
        "negative_rows": report.negative_rows,
        "duplicate_rows": n - counter.count(),
        "value_min": report.value_min,
        "value_max": report.value_max,
    }
    return writer.finish(facts, dropped)


def row_digests(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a 64-bit digest of each row, uint64[b]: distinct rows hardly ever share one."""
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    missing = -data.shape[1] % 8
    words = np.pad(data, ((0, 0), (0, missing))) if missing else data
    out = np.empty(len(rows), np.uint64)
    hash_rows(words.view(np.uint64), out)
    return out

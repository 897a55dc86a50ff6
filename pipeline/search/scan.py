"""Search codes exhaustively: scan every part for a batch of queries, and merge the lists.

A long list is slow to keep: most rows that enter it are replaced by better ones later. So a sample
of the rows is scanned first. It gives a score that about k rows of the whole store reach. In the
scan of all rows, only rows that reach it enter the list.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.encoders.encoder import Encoder
from mercore.pipeline.parallel import over_parts, read_ahead
from mercore.pipeline.scanners.scanner import Scanner
from mercore.pipeline.topk import TopK
from mercore.pipeline.topk_numba import LONGEST_SORTED
from mercore.stores.codes import CodeStore, Room
from mercore.stores.part_store.part_reader import PartCache, PartReader

FIRST_PARTS = 16  # the sample is taken from at least 16 parts, and from at least one part in 16
DEVIATIONS = 4  # standard deviations by which the sample may hold more of the best rows
MIN_ROWS_PER_ENTRY = 64  # of a list: in smaller stores the sample costs more than it saves


@dataclass(frozen=True)
class OpenCodes:
    """An open code store: its encoder, a cache of its parts, and the parts that are checked.

    ``idle`` are readers by the columns that they read: their buffers are used again, as new memory
    is slow.
    """

    store: CodeStore
    encoder: Encoder
    cache: PartCache = field(default_factory=lambda: PartCache(0))
    checked: set[int] = field(default_factory=set)
    idle: dict[tuple[str, ...], list[PartReader]] = field(default_factory=dict)

    @property
    def unread(self) -> list[int]:
        """The parts that no search has read."""
        return sorted(set(range(self.store.parts)) - self.checked)

    def check(self, parts: Iterable[int]) -> None:
        """Read parts; raise ``IntegrityError`` if a byte differs from the one written."""
        store = self.store.store
        for part in parts:
            receipt = self.store.receipts[self.store.stored_part(part)]
            for name in store.layout.column_names:
                store.check_chunk(receipt, name)


def scan_codes(codes: OpenCodes, queries: NDArray[Any], k: int, *, threads: int) -> TopK:
    """Return each query's top k, float32: the same to the bit for any threads, batch and parts.

    Parameters
    ----------
    queries : dtype[nq, d], raw rows
    k : int, 1 ≤ k ≤ n

    Raises
    ------
    IntegrityError
        If a byte of the store differs from the one written; no result is then returned.
    """
    scanner, every = codes.encoder.scanner(queries), range(codes.store.parts)
    return scan_parts(codes, scanner, (every, None), (len(queries), k), threads=threads)


def scan_parts(
    codes: OpenCodes,
    scanner: Scanner,
    scanned: tuple[Sequence[int], int | None],
    shape: tuple[int, int],
    *,
    threads: int,
) -> TopK:
    """Return the top k of some parts in lists of a shape (nq, k).

    Parameters
    ----------
    scanned : the parts, and the number of first rows to scan of each, None for all
    """
    (nq, k), scan = shape, PartScan(codes, scanner, threads)
    first = _first_pass(codes, scanned, k)
    if first is None:
        return TopK.merge(scan.lists(scanned, shape))
    reached = TopK.merge(scan.lists((first.parts, first.rows), (nq, first.best))).kth
    found = TopK.merge(scan.lists(scanned, shape, reached))
    short = found.ids[:, -1] < 0  # fewer than k rows reach the score: the sample was too good
    if short.any():
        least = np.where(short, -np.inf, found.kth)
        found = TopK.merge(scan.lists(scanned, shape, least))
    return found


class FirstPass(NamedTuple):
    """A sample of the rows, scanned first: the first ``rows`` rows of some parts.

    ``best`` is a rank in the sample, chosen so that about k rows of the store reach its score.
    """

    parts: list[int]
    rows: int
    best: int


def _first_pass(
    codes: OpenCodes, scanned: tuple[Sequence[int], int | None], k: int
) -> FirstPass | None:
    """Return the sample to scan first for k rows, or None if a sample costs more than it saves."""
    (parts, rows), part_rows = scanned, codes.store.part_rows
    most = part_rows if rows is None else min(rows, part_rows)
    every, step = len(parts) * most, max(1, min(len(parts) // FIRST_PARTS, FIRST_PARTS))
    if not codes.store.store.is_local:  # its parts are read twice
        step = FIRST_PARTS
    if k <= LONGEST_SORTED or every < MIN_ROWS_PER_ENTRY * k or step > len(parts):
        return None
    # A larger sample costs insertions of its own; a smaller one gives a lower score, which costs
    # insertions in the scan of all rows. Both together are fewest about here.
    expected = (k / 4) ** (2 / 3)  # of the k best rows, those in the sample
    chosen = list(parts)[::step]
    best = ceil(expected + DEVIATIONS * sqrt(expected))
    return FirstPass(chosen, min(most, ceil(every / len(chosen) * expected / k)), best)


@dataclass(frozen=True)
class PartScan:
    """The scan of open codes by a scanner on some threads."""

    codes: OpenCodes
    scanner: Scanner
    threads: int

    def lists(
        self,
        scanned: tuple[Sequence[int], int | None],
        shape: tuple[int, int],
        least: NDArray[np.floating] | None = None,
    ) -> list[TopK]:
        """Return the top k of each thread's parts, of rows whose score reaches ``least``."""
        parts, rows = scanned

        def work(parts: Iterator[int]) -> TopK:
            top_k = TopK(*shape, np.float32, least)
            for part, columns in read_parts(self.codes, self.scanner.names, parts):
                first = (
                    columns
                    if rows is None
                    else {name: values[:rows] for name, values in columns.items()}
                )
                self.scanner.scan(first, self.codes.store.bounds(part)[0], top_k)
            return top_k

        return over_parts(list(parts), self.threads, work)


def read_parts(
    codes: OpenCodes, names: Sequence[str], parts: Iterator[int]
) -> Iterator[tuple[int, Mapping[str, NDArray[Any]]]]:
    """Yield parts and their columns, for one thread; columns are overwritten after the next part.

    Columns hold the selected rows; the cache holds all rows of a part, for any selection. Parts
    that are not cached are read, checked, and offered to the cache, with all columns: the next
    search may need others.
    """
    store, room = codes.store, Room()
    if codes.cache.cache_bytes:
        names = store.store.layout.column_names
    if len(codes.cache) == store.store.layout.parts:
        for part in parts:
            yield part, store.select(part, codes.cache.held(store.stored_part(part)), room)
        return
    idle = codes.idle.setdefault(tuple(names), [])
    readers = [_reader(codes, names, idle) for _ in range(2)]

    def read(part: int, slot: int) -> Mapping[str, NDArray[Any]]:
        stored = store.stored_part(part)
        cached = codes.cache.get(stored)
        if cached is not None:
            return cached
        columns = codes.encoder.unpacked(readers[slot].read(stored))
        codes.checked.add(part)
        codes.cache.offer(stored, columns)
        return columns

    try:
        for part, columns in read_ahead(parts, read):  # reading takes longer than selecting
            yield part, store.select(part, columns, room)
    finally:
        idle.extend(readers)


def _reader(codes: OpenCodes, names: Sequence[str], idle: list[PartReader]) -> PartReader:
    """Return an idle reader, or a new one."""
    try:
        return idle.pop()
    except IndexError:
        return PartReader(codes.store.store, codes.store.receipts, names)

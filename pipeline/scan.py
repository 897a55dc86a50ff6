"""Search codes exhaustively: every part past a batch of queries, the best merged."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.best import Best, merge
from pipeline.encoders.encoder import Encoder
from pipeline.parallel import over_parts, read_ahead
from stores.codes import CodeStore
from stores.reader import HeldParts, PartReader


@dataclass(frozen=True)
class OpenCodes:
    """A code store with its model, and those of its parts that are in memory."""

    store: CodeStore
    encoder: Encoder
    held: HeldParts = field(default_factory=lambda: HeldParts(0))


def scan_codes(codes: OpenCodes, queries: NDArray[Any], k: int, *, threads: int) -> Best:
    """Return the k rows of highest score for each query, float32; bit-equal whatever threads, batch or parts.

    Parts that are not in memory are read, checked, and offered to be kept.

    Parameters
    ----------
    queries : dtype[nq, d], raw rows
    k : int, 1 ≤ k ≤ n

    Raises
    ------
    IntegrityError
        If any byte of the store is not the one that was written; no result is then returned.
    """
    scanner = codes.encoder.scanner(queries)
    store, receipts = codes.store.store, codes.store.receipts

    def work(parts: Iterator[int]) -> Best:
        best = Best(len(queries), k, np.float32)
        readers = [PartReader(store, receipts, scanner.names) for _ in range(2)]

        def read(part: int, slot: int) -> Mapping[str, NDArray[Any]]:
            columns = codes.held.get(part)
            if columns is None:
                columns = readers[slot].read(part)
                codes.held.offer(part, columns)
            return columns

        for part, columns in read_ahead(parts, read):
            first, _ = store.bounds(part)
            scanner.scan(columns, first, best)
        return best

    return merge(over_parts(list(range(codes.store.parts)), threads, work))

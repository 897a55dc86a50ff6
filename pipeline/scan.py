"""Search codes exhaustively: K(D, x) once a query, then α look-ups a row (Davis et al. 2014, Eq. 12)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.best import Best, merge
from pipeline.encoders.aska import Aska
from pipeline.parallel import over_parts, read_ahead
from stores.codes import CodeStore
from stores.reader import PartReader

QUERY_GROUP = 64  # columns of a table: a row of it is 256 bytes
BLOCK_ROWS = 1 << 14  # decoded codes of a block stay in L2 while each group of queries passes over them


class Tables:
    """K(D, x) of a batch of queries, cut into groups whose tables are [m, ≤ 64], C-contiguous."""

    def __init__(self, encoder: Aska, queries: NDArray[Any]) -> None:
        starts = range(0, len(queries), QUERY_GROUP)
        self.groups = [(at, np.ascontiguousarray(encoder.table(queries[at : at + QUERY_GROUP]))) for at in starts]


def scan_codes(store: CodeStore, encoder: Aska, queries: NDArray[Any], k: int, *, threads: int) -> Best:
    """Return the k rows of highest ASKA score for each query, float32; bit-equal whatever threads, batch or parts.

    Parameters
    ----------
    queries : dtype[nq, d], raw rows
    k : int, 1 ≤ k ≤ n

    Raises
    ------
    IntegrityError
        If any byte of the store is not the one that was written; no result is then returned.
    """
    tables = Tables(encoder, queries)
    receipts = store.receipts
    names = store.store.layout.column_names  # all, scored or not: a store with a wrong byte gives no answer

    def work(parts: Iterator[int]) -> Best:
        best = Best(len(queries), k, np.float32)
        readers = [PartReader(store.store, receipts, names) for _ in range(2)]
        for part, columns in read_ahead(parts, lambda part, slot: readers[slot].read(part)):
            first, _ = store.store.bounds(part)
            scan_columns(encoder, columns, tables, first, best)
        return best

    return merge(over_parts(list(range(store.parts)), threads, work))


def scan_columns(encoder: Aska, columns: Mapping[str, NDArray[Any]], tables: Tables, first: int, best: Best) -> None:
    """Score the codes of one part, whose first row is ``first``, for every query of the batch."""
    from pipeline.scan_numba import scan_batch, scan_one

    atoms = columns["atoms"]
    for start in range(0, len(atoms), BLOCK_ROWS):
        block = {name: values[start : start + BLOCK_ROWS] for name, values in columns.items()}
        weights = encoder.weights(block)
        for at, table in tables.groups:
            count = table.shape[1]
            scores, ids = best.scores[at : at + count], best.ids[at : at + count]
            if count == 1:
                scan_one(block["atoms"], weights, table[:, 0], first + start, scores[0], ids[0])
            else:
                sums = np.empty(count, np.float32)
                scan_batch(block["atoms"], weights, table, first + start, sums, scores, ids)

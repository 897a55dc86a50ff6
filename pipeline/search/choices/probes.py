"""Measure where queries have their true neighbours: in which cells, and how far down by code."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.cells.centres import Centres
from mercore.pipeline.cells.curve import BEYOND, CURVE, LISTED
from mercore.pipeline.cells.plan import coordinate_spec
from mercore.pipeline.encoders.encoder import CoordinateEncoder, draw_rows, read_rows
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.stores.formats.source import Source
from mercore.stores.part_store.row_lookup import read_ranges

HELD_BACK, NEIGHBOURS = 512, 100  # rows that are queries, and their neighbours


def measure_curve(
    codes: OpenCodes,
    search: ExactSearch,
    centres: Centres,
    queries: Source | None,
) -> dict[str, NDArray[Any]]:
    """Return the model arrays of a curve: ranks of the true neighbours of queries.

    Parameters
    ----------
    search : finds the true neighbours
    queries : a sample of queries; the first ``HELD_BACK`` of them are taken. None samples rows of
        the store, and leaves each row out of its own neighbours.
    """
    store, vectors = codes.store, search.scorer.vectors
    rows = vectors.rows
    drawn = draw_rows(np.random.default_rng(rows), rows, min(HELD_BACK, rows))
    own, asked = int(queries is None), read_rows(vectors, drawn)
    if queries is not None:
        asked = queries.read(0, min(HELD_BACK, queries.shape[0]))
        drawn = np.full(len(asked), -1)
    width = min(rows, NEIGHBOURS + own)
    near = _others(search.prove(asked, width).ids, drawn)
    width, threads = min(rows, LISTED + own), search.scorer.threads
    listed = _others(scan_codes(codes, asked, width, threads=threads).ids, drawn)
    embed = cast(CoordinateEncoder, codes.encoder).embed
    found, place = np.unique(near, return_inverse=True)
    spec = coordinate_spec(store)
    ranges = [(row, row + 1) for row in found.tolist()]
    columns = {
        name: read_ranges(store.store, store.receipts, name, ranges) for name in spec.scanned_names
    }
    cells = centres.assign(spec.decode(store.model, columns))[place].reshape(near.shape)
    cell_ranks = centres.rank(embed(asked, label="query"), cells)
    code_ranks = np.stack([_places(*each) for each in zip(near, listed, strict=True)])
    return dict(zip(CURVE, (cell_ranks, code_ranks), strict=True))


def _others(ids: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return lists without the row that each belongs to, or without the last of their rows.

    A list of row −1 stays.
    """
    other = ids != rows[:, None]
    other[other.all(axis=1) & (rows >= 0), -1] = False
    return np.reshape(ids[other], (len(ids), -1))


def _places(near: NDArray[np.int64], listed: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the place of each row of ``near`` in a list, ``BEYOND`` if it is not in it."""
    order = np.argsort(listed)
    found = np.minimum(np.searchsorted(listed, near, sorter=order), len(listed) - 1)
    place = order[found]
    return np.where(listed[place] == near, place, BEYOND).astype(np.int32)

"""Choose how many cells to probe and how many rows to rerank, from ranks that were measured."""

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mercore.pipeline.cells.centres import Centres
from mercore.pipeline.cells.plan import coordinate_spec
from mercore.pipeline.encoders.encoder import CoordinateEncoder, Model, draw_rows, read_rows
from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.scan import OpenCodes, scan_codes
from mercore.stores.errors import InputError
from mercore.stores.formats.source import Source
from mercore.stores.part_store.row_lookup import read_ranges
from mercore.stores.wording import option, setting

HELD_BACK, NEIGHBOURS = 512, 100  # rows that are queries, and their neighbours
LISTED = 1 << 10  # best codes among which a neighbour has a rank
BEYOND = np.iinfo(np.int32).max  # the rank of a neighbour behind them
CURVE = "cell_ranks", "code_ranks"  # model arrays


class Probing(NamedTuple):
    """A choice: cells, best codes to rerank or None, and the recall of sampled rows by it."""

    probes: int
    rerank: int | None
    recall: float | None


class RecallCurve(NamedTuple):
    """Where queries have their true neighbours, int32[m, K] each, the nearest first.

    ``cell_ranks`` is the number of cells nearer to the query than that of the neighbour.
    ``code_ranks`` is the number of rows whose codes score better than the neighbour's.
    """

    cell_ranks: NDArray[np.int32]
    code_ranks: NDArray[np.int32]

    def recall(self, k: int, probes: int, listed: int) -> float:
        """Return the share of the k nearest rows in ``probes`` cells and ``listed`` best codes."""
        found = (self.cell_ranks < probes) & (self.code_ranks < listed)
        return float(found[:, :k].mean())

    def choose(self, recall: float, k: int, rerank: int | None = None) -> Probing:
        """Return the fewest cells, and best codes unless they are given, that reach a recall.

        The k best codes alone are taken if they lose little. Codes may lose half of what the recall
        leaves to lose.

        Raises
        ------
        InputError
            If even all cells do not reach it.
        """
        lists = [k]
        while lists[-1] < LISTED:
            lists.append(min(2 * lists[-1], LISTED))
        cells = int(self.cell_ranks.max()) + 1
        wanted = [rerank] if rerank is not None else lists
        reached = [self.recall(k, cells, listed) for listed in wanted]
        enough = [each >= (1 + recall) / 2 for each in reached]
        place = enough.index(True) if any(enough) else int(np.argmax(reached))
        if reached[place] < recall:
            raise InputError(
                f"codes do not reach a recall of {recall:g}: of the true neighbours of the "
                f"sample {reached[place]:.3f} are among the {wanted[place]} best codes. Fix: "
                f"{setting(recall=np.floor(100 * reached[place]) / 100)}, a greater "
                f"{option('rerank')}, or codes of more bytes."
            )
        listed = wanted[place]
        ranks = np.where(self.code_ranks < listed, self.cell_ranks, BEYOND)[:, :k]
        probes = int(np.quantile(ranks, recall, method="inverted_cdf")) + 1
        return Probing(
            probes,
            None if rerank is None and listed == k else listed,
            self.recall(k, probes, listed),
        )


def curve_of(model: Model) -> RecallCurve | None:
    """Return the curve in a model, or None if none was measured."""
    return RecallCurve(*(model[name] for name in CURVE)) if CURVE[0] in model else None


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
    queries : a sample of queries, of which the first are taken; None for sampled rows, each of
        which is left out of its own neighbours
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

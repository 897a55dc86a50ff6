"""Hits as a table of other libraries: one row per hit, with query, rank, id and score."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import naming_extras

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from scipy.sparse import csr_array

Ids = NDArray[np.int64]
HitLists = tuple[Ids, Ids, NDArray[np.floating[Any]] | None]  # lims, ids, scores


class HitTable(ABC):
    """Hits of queries, which become tables, edges and sparse matrices of other libraries.

    A table has one row per hit: ``query``, ``rank`` from 1 on, ``id``, and ``score`` if there are
    scores. Libraries that read Arrow take the hits as they are: ``polars.DataFrame(hits)``.
    """

    @abstractmethod
    def lists(self) -> HitLists:
        """Return the hits of all queries in one list: those of query q begin at ``lims[q]``."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of the table by name."""
        lims, ids, scores = self.lists()
        counts = np.diff(lims)
        columns: dict[str, NDArray[Any]] = {
            "query": np.repeat(np.arange(len(counts)), counts),
            "rank": np.arange(1, len(ids) + 1) - np.repeat(lims[:-1], counts),
            "id": ids,
        }
        return columns if scores is None else columns | {"score": scores}

    def to_arrow(self) -> "pyarrow.Table":
        """Return the table as one of pyarrow."""
        with naming_extras():
            import pyarrow as pa  # takes a while to load
        return pa.table(self.columns())

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the table as a data frame of pandas."""
        with naming_extras():
            import pandas as pd
        return pd.DataFrame(self.columns())

    def to_polars(self) -> "polars.DataFrame":
        """Return the table as a data frame of polars."""
        with naming_extras():
            import polars as pl
        return pl.DataFrame(self.columns())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow, for every library that reads one."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_edges(self) -> "pandas.DataFrame":
        """Return a data frame of the edges of a graph: ``source``, ``target`` and ``weight``.

        ``networkx.from_pandas_edgelist(edges, edge_attr=True)`` makes a graph of it.
        """
        names = {"query": "source", "id": "target", "score": "weight"}
        return self.to_pandas().drop(columns="rank").rename(columns=names)

    def to_scipy(self, n: int | None = None) -> "csr_array":
        """Return the scores as a sparse matrix [queries, n], with ones if there are no scores.

        ``n`` is the number of ids of the store. By default it is as many as the ids need, and as
        the queries: the matrix of a graph is square.
        """
        from scipy.sparse import csr_array

        lims, ids, scores = self.lists()
        values = np.ones(len(ids), np.float32) if scores is None else scores
        least = max(len(lims) - 1, int(ids.max(initial=-1)) + 1)
        return csr_array((values, ids, lims), shape=(len(lims) - 1, least if n is None else n))

"""Hits as a table of other libraries: one row per hit, with query, rank, id and score."""

from abc import ABC, abstractmethod
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from mercore.stores.errors import naming_extras
from mercore.stores.results.names import AnyNames, Names, open_names

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from scipy.sparse import csr_array

Ids = NDArray[np.int64]
HitLists = tuple[Ids, Ids, NDArray[np.floating[Any]] | None]  # lims, ids, scores


class HitTable(ABC):
    """Hits of queries, which become tables, edges and sparse matrices of other libraries.

    A table has one row per hit: ``query``, ``rank`` from 1 on, ``id``, ``name`` if the hits are
    ``named``, and ``score`` if there are scores. Libraries that read Arrow take the hits as they
    are: ``polars.DataFrame(hits)``.
    """

    naming: Names | None = None

    @abstractmethod
    def lists(self) -> HitLists:
        """Return the hits of all queries in one list: those of query q begin at ``lims[q]``."""

    def named(self, names: AnyNames | None) -> Self:
        """Return the hits with a name for each id; with None, the hits as they are.

        Parameters
        ----------
        names : One text or whole number per id of the store: a .npy, FILE.parquet::COLUMN, an
            array, a list, or a column of a data frame or of Arrow. They are read when they are
            used, and only where an id was found.

        Raises
        ------
        MercoreError
            If they cannot be read, hold something else, or are fewer than the ids.
        """
        if names is None:
            return self
        naming = open_names(names)
        naming.check_ids(self.lists()[1])
        hits = copy(self)
        object.__setattr__(hits, "naming", naming)
        return hits

    @property
    def names(self) -> NDArray[Any] | None:
        """The names of ``lists``' ids, None if the hits are not ``named``."""
        return None if self.naming is None else self.naming.of(self.lists()[1])

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of the table by name."""
        lims, ids, scores = self.lists()
        counts = np.diff(lims)
        columns: dict[str, NDArray[Any]] = {
            "query": np.repeat(np.arange(len(counts)), counts),
            "rank": np.arange(1, len(ids) + 1) - np.repeat(lims[:-1], counts),
            "id": ids,
        }
        if self.naming is not None:
            columns["name"] = self.naming.of(ids)
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
        return pl.DataFrame(
            {
                name: values.tolist() if values.dtype == object else values
                for name, values in self.columns().items()
            }
        )

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow, for every library that reads one."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_edges(self, names: AnyNames | None = None) -> "pandas.DataFrame":
        """Return a data frame of the edges of a graph: ``source``, ``target`` and ``weight``.

        ``networkx.from_pandas_edgelist(edges, edge_attr=True)`` makes a graph of it.

        Parameters
        ----------
        names : Names of the rows, as of ``named``, which take the place of their ids.
        """
        edges = self.to_pandas().rename(
            columns={"query": "source", "id": "target", "score": "weight"}
        )
        ends = ["source", "target"]
        if names is not None:
            naming = open_names(names)
            for end in ends:
                ids = edges[end].to_numpy()
                naming.check_ids(ids)
                edges[end] = naming.of(ids)
        return edges[[*ends, "weight"] if "weight" in edges else ends]

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

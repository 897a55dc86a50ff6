"""mercore as an algorithm of ann-benchmarks and of VIBE, whose runners load this class.

``notebooks/guide/exchange.md`` has the files that the runners want.
"""

from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from mercore.jobs import api
from mercore.jobs.session import opening
from mercore.jobs.session.open_store import OpenStore
from mercore.stores.errors import InputError
from mercore.stores.results.hits import Hits

KERNELS = {  # of the runners' metrics
    "euclidean": "euclidean",
    "angular": "cosine",
    "cosine": "cosine",
    "normalized": "cosine",
    "ip": "inner_product",
}
Ids = NDArray[np.int64]


class Mercore:
    """Stores in a temporary folder, made by ``fit`` and searched by ``query``.

    Parameters
    ----------
    metric : euclidean, angular, cosine, normalized or ip
    encoder : a name such as ``"pca-pq"``, or a text with options; None to score every row
    cells : the number of cells of an index of the codes; None for no index

    Raises
    ------
    InputError
        If mercore has no kernel of the metric.
    """

    def __init__(self, metric: str, encoder: str | None = None, cells: int | None = None) -> None:
        if metric not in KERNELS:
            raise InputError(
                f"metric is {metric!r}: expected {', '.join(KERNELS)}. Fix: leave mercore out for "
                "this data set."
            )
        self._kernel, self._encoder, self._cells = KERNELS[metric], encoder, cells
        self._rerank: int | None = None
        self._probes: int | None = None

    def fit(self, X: NDArray[Any]) -> None:
        """Write the rows, dtype[n, d], and their codes and index, and read what a search needs."""
        self._temporary = TemporaryDirectory(prefix="mercore-")
        folder = Path(self._temporary.name)
        self._searched = vectors = folder / "vectors.zarr"
        api.ingest(X, vectors)
        if self._encoder is not None:
            self._searched = codes = folder / "codes.zarr"
            api.encode(vectors, codes, kernel=self._kernel, encoder=self._encoder)
        if self._cells is not None:
            self._searched = folder / "cells.zarr"
            api.index(codes, self._searched, cells=self._cells)
        self._store = self._opened(threads=1)

    def set_query_arguments(self, rerank: int, probes: int | None = None) -> None:
        """Score the ``rerank`` best codes again, 0 for none; look at ``probes`` cells."""
        self._rerank, self._probes = rerank or None, probes

    def query(self, v: NDArray[Any], n: int) -> Ids:
        """Return the ids of the n nearest rows, int64[n] or fewer, found by one thread."""
        return self._search(self._store, v[None], n).of(0)[0]

    def batch_query(self, X: NDArray[Any], n: int) -> None:
        """Search for all queries, dtype[nq, d], by all cores; ``get_batch_results`` has the ids."""
        self._found = self._search(self._parallel, X, n)

    def get_batch_results(self) -> list[Ids]:
        """Return the ids of the last batch, one array per query."""
        return [self._found.of(query)[0] for query in range(len(self._found))]

    def get_memory_usage(self) -> float:
        """Return the memory of this process in KiB."""
        return float(psutil.Process().memory_info().rss) / 1024

    def get_additional(self) -> dict[str, Any]:
        """Return nothing more to be stored with a result."""
        return {}

    def done(self) -> None:
        """Close the stores, and delete their folder."""
        for store in (self.__dict__.get("_store"), self.__dict__.pop("_parallel", None)):
            if store is not None:
                store.close()
        if "_temporary" in self.__dict__:
            self._temporary.cleanup()

    def __str__(self) -> str:
        given = {"cells": self._cells, "rerank": self._rerank, "probes": self._probes}
        options = [f"{name}={value}" for name, value in given.items() if value is not None]
        return f"mercore({', '.join([self._encoder or 'every row', *options])})"

    def _search(self, store: OpenStore, queries: NDArray[Any], n: int) -> Hits:
        """Return the n nearest rows of each query."""
        rerank = self._rerank and min(store.rows, max(n, self._rerank))
        return store.search(queries, k=min(n, store.rows), rerank=rerank, probes=self._probes)

    @cached_property
    def _parallel(self) -> OpenStore:
        """The store that all cores search."""
        return self._opened(threads=None)

    def _opened(self, threads: int | None) -> OpenStore:
        """Open the store that is searched, and read it into memory."""
        kernel = self._kernel if self._encoder is None else None
        store = opening.open(self._searched, kernel=kernel, threads=threads)
        store.prefetch()
        return store

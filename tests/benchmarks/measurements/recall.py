"""Recall of ASKA codes against the exhaustive search by the true kernel."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mercore.jobs import api
from mercore.jobs.encoder_options import spec_of_options
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.verbs.evaluate import recalls
from mercore.pipeline.encoders import EncoderSpec
from mercore.stores.codes import open_code_store
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_rows
from mercore.stores.vectors import open_vector_store

FOUND = 100
FEWEST = 30  # queries that a share of recall is stated of


@dataclass(frozen=True, eq=False, kw_only=True)
class Data:
    """A vector store, a file of queries, a folder for codes, and the encoder's options.

    A ``seed`` draws what the codes learn from.
    """

    name: str = ""
    store: str
    queries: str
    folder: Path
    atoms: int
    sparsity: int
    seed: int = 0

    def __str__(self) -> str:
        rows, nq = self.shape[0], open_rows(self.queries).shape[0]
        share = f"{self.atoms / rows:.1%}".replace("%", " % of the rows")
        return f"{rows:,} rows, {nq:,} queries, m = {self.atoms:,} ({share}), α = {self.sparsity}"

    @property
    def shape(self) -> tuple[int, int]:
        """The rows of the store, and their dimension."""
        vectors = open_vector_store(Path(self.store))
        return vectors.rows, vectors.dims


@dataclass(frozen=True, kw_only=True)
class Found:
    """The bytes of codes, and their recall by ``definition@rank``."""

    code_bytes: int
    bytes_per_row: float
    recall: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Codes whose encoder drew ``rows`` of the store, its atoms or landmarks.

    ``nearest`` and ``first_hits`` are the shares of queries whose nearest row, or first hit, is one
    of these. ``recall`` is that of each group of queries by ``definition@rank``.
    """

    rows: int
    nearest: float
    first_hits: float
    recall: dict[str, dict[str, float] | None]


@cache
def truth(data: Data, kernel: str) -> Hits:
    """Return the neighbours by the true kernel."""
    _, hits = api.search(
        data.store, data.queries, k=FOUND, kernel=kernel, threads=available_cores()
    )
    return hits


@cache
def found(data: Data, kernel: str, *, rerank: int = 0, **options: object) -> Found:
    """Encode a store by ASKA, search the codes, and compare with the true neighbours."""
    codes = str(data.folder / "-".join([kernel, *map(str, options.values())]))
    sizes = {"atoms": data.atoms, "sparsity": data.sparsity}
    encoder = spec_of_options("aska", {**options, **sizes})
    made = api.encode(data.store, codes, kernel=kernel, encoder=encoder)
    _, hits = api.search(
        codes, data.queries, k=FOUND, rerank=rerank or None, threads=available_cores()
    )
    report = api.evaluate(
        hits, truth(data, kernel), vectors=data.store, queries=data.queries, kernel=kernel
    )
    recall = {f"{row['definition']}@{row['rank']}": float(row["value"]) for row in report["recall"]}
    return Found(code_bytes=made["bytes"], bytes_per_row=made["bytes_per_row"], recall=recall)


def by_drawn_rows(data: Data, kernel: str, spec: EncoderSpec, codes: Path) -> Drawn:
    """Encode a store at ``codes``, search, and tell queries apart by their nearest row."""
    api.encode(data.store, codes, kernel=kernel, encoder=spec)
    _, hits = api.search(codes, data.queries, k=FOUND, threads=available_cores())
    model, true = open_code_store(codes).model, truth(data, kernel)
    drawn = np.concatenate([rows for name, rows in model.items() if name.endswith("_rows")])
    nearest = np.isin(true.ids[:, 0], drawn)
    return Drawn(
        rows=len(drawn),
        nearest=float(nearest.mean()),
        first_hits=float(np.isin(hits.ids[:, 0], drawn).mean()),
        recall={
            "all queries": recall_of(hits, true),
            "nearest row drawn": _recall(hits, true, nearest),
            "nearest row not drawn": _recall(hits, true, ~nearest),
        },
    )


def _recall(hits: Hits, true: Hits, chosen: NDArray[np.bool_]) -> dict[str, float] | None:
    """Return the recall of the chosen queries by ``definition@rank``; None if they are too few."""
    if chosen.sum() < FEWEST:
        return None
    some, true_some = (Hits(scores=None, ids=each.ids[chosen]) for each in (hits, true))
    return recall_of(some, true_some)


def recall_of(hits: Hits, true: Hits) -> dict[str, float]:
    """Return the recall by ``definition@rank``."""
    return {f"{row['definition']}@{row['rank']}": row["value"] for row in recalls(hits, true)}


def ratios(data: Data, code_bytes: int) -> tuple[float, float]:
    """Return how many times the raw values, and the same rows as ``.fvecs``, are as large."""
    vectors = open_vector_store(Path(data.store))
    raw = vectors.rows * vectors.dims * vectors.dtype.itemsize
    return raw / code_bytes, vectors.rows * (4 * vectors.dims + 4) / code_bytes

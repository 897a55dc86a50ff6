"""Recall of ASKA codes against the exhaustive search by the true kernel."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mercore.jobs import api
from mercore.jobs.encoder_options import spec_of_options
from mercore.jobs.resources.execution import available_cores
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_rows
from mercore.stores.vectors import open_vector_store

FOUND = 100


@dataclass(frozen=True, eq=False, kw_only=True)
class Data:
    """A vector store, a file of queries, a folder for codes, and the encoder's options."""

    store: str
    queries: str
    folder: Path
    atoms: int
    sparsity: int

    def __str__(self) -> str:
        rows, nq = open_vector_store(Path(self.store)).rows, open_rows(self.queries).shape[0]
        return f"{rows:,} rows, {nq:,} queries, m = {self.atoms:,}, α = {self.sparsity}"


@dataclass(frozen=True, kw_only=True)
class Found:
    """The bytes of codes, and their recall by ``definition@rank``."""

    code_bytes: int
    bytes_per_row: float
    recall: dict[str, float]


@cache
def truth(data: Data, kernel: str) -> Hits:
    """Return the neighbours by the true kernel."""
    _, hits = api.search(
        data.store, data.queries, k=FOUND, kernel=kernel, threads=available_cores()
    )
    return hits


@cache
def found(
    data: Data, kernel: str, *, weights: str = "int8", metric: str = "product", rerank: int = 0
) -> Found:
    """Encode a store, search the codes, and compare with the true neighbours."""
    codes = str(data.folder / f"{kernel}-{weights}-{metric}")
    options = {"weights": weights, "metric": metric}
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


def ratios(data: Data, code_bytes: int) -> tuple[float, float]:
    """Return how many times the raw values, and the same rows as ``.fvecs``, are as large."""
    vectors = open_vector_store(Path(data.store))
    raw = vectors.rows * vectors.dims * vectors.dtype.itemsize
    return raw / code_bytes, vectors.rows * (4 * vectors.dims + 4) / code_bytes

"""An index of cells on unseen queries: what recall was asked for, what was found, and the time."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from mercore.jobs import api
from mercore.pipeline.cells.probe import OpenCells
from mercore.pipeline.encode import encoder_of
from mercore.pipeline.encoders.encoder import CoordinateEncoder
from mercore.pipeline.search.scan import OpenCodes, read_parts, scan_codes
from mercore.stores.codes import open_code_store
from mercore.stores.indexes import CellStore
from mercore.stores.part_store.part_reader import PartCache
from mercore.stores.rows import open_rows, open_vectors
from tests.benchmarks.measurements.timing import interleaved
from tests.benchmarks.reporting.tables import Row

RANKS = 1, 10, 100
RECALLS = 0.9, 0.95, 0.99
LISTED = 100  # best codes
SINGLE = 50  # queries that are timed one by one
IN_MEMORY = 1 << 40
SAMPLE_PER_CELL = 40  # rows that faiss' centres are learned from, as ours


@dataclass(frozen=True)
class Indexed:
    """A set whose codes are indexed, and queries that the index has not seen."""

    name: str
    vectors: str
    codes: str
    index: str
    queries: NDArray[Any]
    kernel: str
    sample: str

    @property
    def truth(self) -> NDArray[np.int64]:
        """The ids of the true neighbours of the queries, int64[nq, 100]."""
        path = Path(f"{self.index}.truth.npy")
        if not path.exists():
            hits = api.search(self.vectors, self.queries, k=max(RANKS), kernel=self.kernel)[1]
            np.save(path, hits.ids)
        return cast("NDArray[np.int64]", np.load(path))

    @property
    def named(self) -> Row:
        """The columns that name the set."""
        info = api.info(self.index)
        return {"set": self.name, "rows": info["rows"], "cells": info["cells"]}


def make_index(
    folder: Path, files: tuple[str, str, str], codes: tuple[str, str], sample: int
) -> Indexed:
    """Encode and index a set, if that is not done.

    Parameters
    ----------
    files : the name of the set, its rows or a vector store of them, and its queries
    codes : the kernel and the encoder
    sample : queries that measure recall, and are not searched; 0 for rows of the store
    """
    (name, base, asked), (kernel, encoder) = files, codes
    stem = folder / f"{name}-{kernel}-{encoder}".replace(" ", "-").replace(":", "-")
    vectors = base if base.endswith(".zarr") else f"{folder / name.replace(' ', '-')}.zarr"
    if not os.path.exists(vectors):  # noqa: PTH110 - a path of a user
        api.ingest(base, vectors)
    api.encode(vectors, f"{stem}.codes", kernel=kernel, encoder=encoder)
    source = open_rows(asked)
    queries = source.read(0, source.shape[0])
    seen, unseen = queries[:sample], queries[sample:]
    index = f"{stem}-{sample}.cells"
    api.index(f"{stem}.codes", index, queries=seen if sample else None)
    by = f"{sample} queries" if sample else "rows of the store"
    return Indexed(name, vectors, f"{stem}.codes", index, unseen[:1000], kernel, by)


def promised(made: Indexed) -> list[Row]:
    """Return the recall that was asked for beside the recall that was found, by k."""
    rows = []
    for k in RANKS:
        for asked in RECALLS:
            report, hits = api.search(made.index, made.queries, k=k, recall=asked)
            rows.append(
                {**made.named, "sample": made.sample, "k": k, "asked": asked}
                | {"found": f"{found_in(hits.ids, made.truth[:, :k]):.3f}"}
                | {"cells probed": report["probes"], "reranked": report["reranked"]}
                | {"of the rows, %": 100 * report["share_of_rows"]}
            )
    return rows


def found_in(ids: NDArray[np.int64], true: NDArray[np.int64]) -> float:
    """Return the share of the true ids that are among the ids of their query."""
    return float(np.mean([np.isin(*pair).mean() for pair in zip(true, ids, strict=True)]))


def timed(made: Indexed, folder: Path, probes: Sequence[int]) -> list[Row]:
    """Return recall and time by number of cells: ours, faiss' ``IndexIVFPQ``, and a scan of all."""
    cells = CellStore.open(made.index)
    encoder = encoder_of(cells)
    embed = cast(CoordinateEncoder, encoder).embed
    points = _points(made, folder, embed)
    inverted = _inverted(made, folder, points, cells)
    flat = OpenCodes(open_code_store(made.codes), encoder, PartCache(IN_MEMORY))
    for _ in read_parts(flat, flat.store.store.layout.column_names, iter(range(flat.store.parts))):
        pass
    rows, queries, truth = [], made.queries, made.truth[:, :10]
    for count in probes:
        opened = OpenCells.of(cells, encoder, count, IN_MEMORY)
        ours = opened.scan(queries, LISTED, threads=1)
        inverted.nprobe = count
        theirs = inverted.search(embed(queries, label="query"), LISTED)[1]

        def alone(search: Any) -> None:
            for number in range(SINGLE):
                search(queries[number : number + 1])

        def by_cells(some: NDArray[Any], opened: OpenCells = opened) -> None:
            opened.scan(some, LISTED, threads=1)

        def by_faiss(some: NDArray[Any]) -> None:
            inverted.search(embed(some, label="query"), LISTED)

        def by_scan(some: NDArray[Any]) -> None:
            scan_codes(flat, some, LISTED, threads=1)

        searches = {"cells": by_cells, "faiss": by_faiss, "scan": by_scan}
        together = interleaved({name: partial(each, queries) for name, each in searches.items()})
        single = interleaved({name: partial(alone, each) for name, each in searches.items()})
        rows.append(
            {**made.named, "cells probed": count}
            | {"of the rows, %": 100 * float(ours.scanned.mean()) / cells.rows}
            | {"ten found in 10 / 100": _both(ours.top_k.ids, truth)}
            | {"by faiss": _both(theirs, truth)}
            | {"µs, batch": 1e6 * together["cells"] / len(queries)}
            | {"× faiss": together["faiss"] / together["cells"]}
            | {"× scan": together["scan"] / together["cells"]}
            | {"µs, one query": 1e6 * single["cells"] / SINGLE}
            | {"one × faiss": single["faiss"] / single["cells"]}
            | {"one × scan": single["scan"] / single["cells"]}
        )
    return rows


def _both(ids: NDArray[np.int64], truth: NDArray[np.int64]) -> str:
    return f"{found_in(ids[:, :10], truth):.3f} / {found_in(ids, truth):.3f}"


def _points(made: Indexed, folder: Path, embed: Any) -> NDArray[np.float32]:
    """Return the coordinates of all rows, in a file of the folder."""
    path, vectors = folder / f"{Path(made.index).name}.points.npy", open_vectors(made.vectors)
    if not path.exists():
        width = embed(made.queries[:1], label="query").shape[1]
        out = np.lib.format.open_memmap(path, "w+", np.float32, (vectors.rows, width))
        for part in range(vectors.parts):
            first, stop = vectors.bounds(part)
            values = vectors.read_part(part)
            for start in range(0, stop - first, 4096):
                block = values[start : start + 4096]
                out[first + start : first + start + len(block)] = embed(block)
    return cast("NDArray[np.float32]", np.load(path, mmap_mode="r"))


def _inverted(made: Indexed, folder: Path, points: NDArray[np.float32], cells: CellStore) -> Any:
    """Return faiss' inverted file of equal cells and bytes, of residuals from the centres."""
    path = folder / f"{Path(made.index).name}.faiss"
    if not path.exists():
        width = cells.store.columns["code"].row_bytes
        coarse = faiss.IndexFlatL2(points.shape[1])
        index = faiss.IndexIVFPQ(coarse, points.shape[1], cells.spec.cells, width, 8)
        count = min(len(points), SAMPLE_PER_CELL * cells.spec.cells)
        drawn = np.sort(np.random.default_rng(0).choice(len(points), count, replace=False))
        index.train(np.ascontiguousarray(points[drawn]))
        for start in range(0, len(points), 1 << 17):
            index.add(np.ascontiguousarray(points[start : start + (1 << 17)]))
        faiss.write_index(index, f"{path}.part")
        shutil.move(f"{path}.part", path)
    faiss.omp_set_num_threads(1)
    return faiss.read_index(str(path))

"""The demonstration: tiles of photographs are encoded and searched, and a page shows the hits."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from mercore.jobs.gallery import tiles as tiling
from mercore.jobs.gallery.page import (
    HITS,
    QUERIES,
    Picture,
    Section,
    Table,
    gallery_rows,
    recall_table,
    write_page,
)
from mercore.jobs.options import Report
from mercore.jobs.resources.execution import Execution, available_cores
from mercore.jobs.verbs.encode import EncodeOptions, open_encode
from mercore.jobs.verbs.evaluate import recalls
from mercore.jobs.verbs.info import open_info
from mercore.jobs.verbs.ingest import IngestOptions, IngestTask
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.jobs.verbs.search import open_search
from mercore.jobs.verbs.searches.task import SearchOptions
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.encoder import check_range
from mercore.pipeline.gist import DIMENSION, gist
from mercore.pipeline.kernels import KINDS
from mercore.stores.errors import ExistsError, InputError
from mercore.stores.location.publish import storage_errors
from mercore.stores.location.resolve import refuse_url
from mercore.stores.results.hits import Hits
from mercore.stores.rows import open_rows
from mercore.stores.wording import option, setting

PHOTOGRAPHS = ("china.jpg", "flower.jpg")
KERNELS = tuple(
    name
    for name, kind in KINDS.items()
    if kind.normalised and (not kind.takes_gamma or kind.default_gamma)
)
STORES, PAGE = ("vectors.zarr", "queries.zarr", "codes.zarr"), "index.html"
SEED, HELD_OUT = 0, 500
MAX_TILES = 1 << 20  # more than the photographs hold
SPARSITY, FOUND, RERANKED = 8, 100, 500
WARMING = 64  # queries that are searched before the clock starts, to compile
CODES, RERANKING, EVERY = "codes", f"codes, {RERANKED} reranked", "every vector"
LEAVE_OUT = f"leave {option('tiles')} out."


@dataclass(frozen=True)
class TileSource:
    """A source of vectors: the GIST of tiles, computed when it is read."""

    tiles: tiling.Tiles
    name: str
    dtype = source_dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, 384)``."""
        return len(self.tiles), DIMENSION

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return the GIST of tiles [start, stop), float32[stop − start, 384]."""
        return gist(self.tiles.pixels(start, stop), workers=available_cores())

    def fingerprint(self) -> str:
        """Return the name, since seed and photographs determine the tiles."""
        return self.name


def run(
    out: str, *, kernel: str, atoms: int | None, tiles: int | None, force: bool = False
) -> Report:
    """Ingest, encode and search in the new folder ``out``; return the figures and the page's path.

    Without ``atoms`` there are as many as by default, or a quarter of the tiles if these are fewer.
    With ``force`` the stores and the page of an earlier demo are replaced; other files stay.

    Raises
    ------
    ExistsError
        If ``out`` exists already, and is not to be replaced.
    InputError
        If a parameter is out of range.
    """
    refuse_url(out, "a demonstration")
    folder = Path(out)
    if folder.exists() and not (force and folder.is_dir()):
        raise ExistsError(
            f"{out} exists: expected a new folder. Fix: name another with {option('out')}, or "
            f"replace an earlier demo with {setting(force=True)}."
        )
    spec = chosen_spec(kernel, atoms, tiles)
    held = _cut(tiles)
    spec.check_dictionary(len(held.base))
    click.echo(
        f"{len(held.base):,} tiles to search, {len(held.queries)} held out as queries", err=True
    )
    folder.mkdir(parents=True, exist_ok=True)
    _remove_made(folder)
    began = time.perf_counter()
    base, queries, codes = (str(folder / name) for name in STORES)
    _ingest(TileSource(held.base, "tiles of sample photographs"), base)
    _ingest(TileSource(held.queries, "held-out tiles"), queries)
    gist_seconds = time.perf_counter() - began
    encoding = EncodeOptions(
        kernel=KernelOptions(name=kernel),
        encoder=spec,
        execution=Execution(threads_option="workers"),
    )
    encoded = open_encode(base, codes, encoding).run()
    searches = {
        CODES: _searched(codes, queries),
        RERANKING: _searched(codes, queries, rerank=RERANKED),
        EVERY: _searched(base, queries, kernel=kernel),
    }
    truth = searches[EVERY][1]
    found = {name: hits for name, (_, hits) in searches.items() if name != EVERY}
    report: Report = {
        "page": str((folder / PAGE).resolve()),
        "kernel": kernel,
        "tiles": len(held.base),
        "queries": len(held.queries),
        "gist_seconds": round(gist_seconds, 2),
        "vectors": open_info(base).run(),
        "encode": encoded,
        "search": {name: figures for name, (figures, _) in searches.items()},
        "recall": {name: recalls(hits, truth) for name, hits in found.items()},
    }
    title = f"{kernel} neighbours among {len(held.base):,} tiles"
    sections = _sections(held, report, found, truth)
    write_page(str(folder / PAGE), title, _paragraphs(held, report), sections)
    return report


def _remove_made(folder: Path) -> None:
    """Remove what an earlier demo made in the folder."""
    with storage_errors("remove", folder):
        for store in filter(Path.exists, (folder / name for name in STORES)):
            shutil.rmtree(store)
        (folder / PAGE).unlink(missing_ok=True)


def _ingest(tiles: TileSource, store: str) -> None:
    """Ingest the GIST of tiles."""
    IngestTask(source=tiles, target=Path(store), options=IngestOptions()).run()


def _searched(
    store: str, queries: str, *, rerank: int | None = None, kernel: str | None = None
) -> tuple[Report, Hits]:
    """Search with all queries, after a few that are not timed."""
    options = SearchOptions(
        k=FOUND,
        rerank=rerank,
        kernel=KernelOptions(name=kernel),
        execution=Execution(threads=available_cores()),
    )

    def search(rows: str | NDArray[Any]) -> tuple[Report, Hits]:
        return open_search(store, rows, options).run()

    search(open_rows(queries).read(0, WARMING))
    return search(queries)


def chosen_spec(kernel: str, atoms: int | None, tiles: int | None) -> AskaSpec:
    """Return the spec of the codes; refuse wrong options before any photograph is read."""
    if kernel not in KERNELS:
        raise InputError(
            f"unknown kernel: found {kernel!r}, expected one of {', '.join(KERNELS)}, which "
            f"need no parameter. Fix: {setting(kernel='chi2')}"
        )
    rows = MAX_TILES if tiles is None else tiles
    check_range("tiles", rows, (RERANKED, MAX_TILES), LEAVE_OUT)
    spec = AskaSpec(n_nonzero_coefs=SPARSITY)
    if atoms is not None:
        spec = replace(spec, n_atoms=atoms)
    elif spec.n_atoms > rows:  # a dictionary of all tiles would make every code exact
        spec = replace(spec, n_atoms=rows // 4)
    spec.check_dictionary(rows)
    return spec


def _cut(count: int | None) -> tiling.HeldOut:
    """Return tiles of scikit-learn's photographs and queries held out of them.

    With ``count``, the tiles are thinned evenly to that number.
    """
    photographs = load_sample_images().images
    rich = tiling.drop_plain(tiling.cut_tiles(photographs), workers=available_cores())
    held = tiling.hold_out(tiling.add_mirror_images(rich), HELD_OUT, random_state=SEED)
    if count is None:
        return held
    check_range("tiles", count, (RERANKED, len(held.base)), LEAVE_OUT)
    rows = np.linspace(0, len(held.base) - 1, count).astype(np.int64)
    return held._replace(base=held.base.take(rows))


def _paragraphs(held: tiling.HeldOut, report: Report) -> list[str]:
    """Return the description of the tiles, the codes and the queries."""
    return [
        "Two photographs were cut into tiles of 32 × 32 pixels at "
        f"{len(tiling.SCALES)} scales, and each tile was also mirrored. A tile is described by "
        f"its GIST, {DIMENSION} numbers (3 scales × 8 orientations × 4 × 4 cells) that ignore "
        f"colour. A GIST is encoded as {SPARSITY} weighted atoms of a dictionary of "
        f"{report['encode']['encoder']['n_atoms']:,} other tiles. "
        "Each query has two lists of hits: the best by these codes alone, and the best of "
        f"{RERANKED} hits by the codes after the kernel has scored these again. The true "
        "neighbours are those by the kernel on every vector.",
        f"The queries lie in {len(held.windows)} windows of 64 × 64 pixels, and every tile that "
        "touches a window was left out of the search, so no tile overlaps a query. The queries "
        "were drawn from the windows in turn, by a fixed seed; these are the first "
        f"{QUERIES} of {len(held.queries)}. Tiles with hardly any texture, such as sky, were "
        "dropped.",
    ]


def _sections(
    held: tiling.HeldOut, report: Report, found: Mapping[str, Hits], truth: Hits
) -> list[Section]:
    """Return the hits in pictures, and tables of recall, size and time."""
    pictures = (partial(_picture, tiles) for tiles in (held.queries, held.base))
    rows = tuple(gallery_rows(range(QUERIES), found, truth, *pictures))
    recall = recall_table(report["recall"], "against every vector by the true kernel")
    return [
        Section("Queries and their best hits", rows=rows, true_neighbours=HITS),
        Section("Recall", tables=[recall]),
        Section("Compression", tables=[_size_table(report)]),
        Section("Speed", tables=[_speed_table(report)]),
    ]


def _picture(tiles: tiling.Tiles, row: int) -> Picture:
    """Return one tile with its origin in words."""
    level = tiles.levels[tiles.level[row]]
    top, left, bottom, right = tiles.take(np.array([row])).rectangles()[0]
    place = (
        f"{PHOTOGRAPHS[level.photograph]}, rows {top:.0f}–{bottom:.0f}, columns "
        f"{left:.0f}–{right:.0f}, scale {level.scale:g}{', mirrored' * bool(tiles.mirrored[row])}"
    )
    return Picture(tiles.pixels(row, row + 1)[0], place)


def _size_table(report: Report) -> Table:
    """Return the table of bytes per row of vectors and codes."""
    raw, coded = report["vectors"]["bytes"] / report["tiles"], report["encode"]["bytes_per_row"]
    rows = (("GIST, float32", f"{raw:,.0f}", "1"), ("codes", f"{coded:.1f}", f"{raw / coded:.1f}"))
    return Table(("", "bytes per row", "ratio"), rows)


def _speed_table(report: Report) -> Table:
    """Return the table of the time of each step."""
    tiles, queries = report["tiles"], report["queries"]
    steps = [
        ("GIST and ingest", report["gist_seconds"], tiles + queries),
        ("encode", report["encode"]["seconds"], tiles),
    ]
    rows = [
        (name, f"{seconds:.2f}", f"{seconds / count * 1e6:,.0f} µs per tile")
        for name, seconds, count in steps
    ]
    for way, figures in report["search"].items():
        seconds = figures["seconds"]
        rows.append(
            (f"search {way}", f"{seconds:.2f}", f"{seconds / queries * 1e3:,.2f} ms per query")
        )
    note = (
        f"{available_cores()} cores; {queries} queries at once, after others that were not timed; "
        "encoding includes loading, and compiling at the first use."
    )
    return Table(("step", "seconds", "each"), rows, note=note)

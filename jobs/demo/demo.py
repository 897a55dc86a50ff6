"""The demonstration: tiles of photographs are encoded and searched, and a page shows the hits."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from mercore.jobs import api
from mercore.jobs.demo import tiles as tiling
from mercore.jobs.demo.gallery import Gallery, GalleryRow, Table, render_gallery
from mercore.jobs.resources.execution import available_cores
from mercore.jobs.verbs.evaluate import recalls
from mercore.jobs.verbs.ingest import IngestOptions, IngestTask
from mercore.pipeline.encoders.aska import AskaSpec
from mercore.pipeline.encoders.encoder import check_range
from mercore.pipeline.gist import DIMENSION, gist
from mercore.pipeline.kernels import KINDS
from mercore.stores.errors import ExistsError, InputError
from mercore.stores.location.publish import publish
from mercore.stores.location.resolve import refuse_url
from mercore.stores.results.hits import Hits

Report = dict[str, Any]

PHOTOGRAPHS = ("china.jpg", "flower.jpg")
KERNELS = tuple(name for name, kind in KINDS.items() if not kind.takes_gamma or kind.default_gamma)
SEED, QUERIES, SHOWN, HITS = 0, 500, 24, 5
MOST_TILES = 1 << 20  # more than the photographs hold
SPARSITY, FOUND, RERANKED = 8, 100, 500
DEFINITIONS = {
    "k-recall": "k-recall@{}: share of the true {} among the first {} found",
    "texmex": "R@{}: true first among the first {} found",
    "aska": "Recall@{} of the ASKA paper: first found among the true {}",
}


@dataclass(frozen=True)
class TileSource:
    """A source of vectors: the GIST of tiles, computed when it is read."""

    tiles: tiling.Tiles
    name: str

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, 384)``."""
        return len(self.tiles), DIMENSION

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32."""
        return np.dtype(np.float32)

    @property
    def source_dtype(self) -> np.dtype[Any]:
        """float32."""
        return self.dtype

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return the GIST of tiles [start, stop), float32[stop − start, 384]."""
        return gist(self.tiles.pixels(start, stop), workers=available_cores())

    def fingerprint(self) -> str:
        """Return the name, since seed and photographs determine the tiles."""
        return self.name


def run(out: str, *, kernel: str, atoms: int, tiles: int | None) -> Report:
    """Ingest, encode and search in the new folder ``out``; return the figures and the page's path.

    Raises
    ------
    ExistsError
        If ``out`` exists already.
    InputError
        If a parameter is out of range.
    """
    refuse_url(out, "a demonstration")
    folder = Path(out)
    if folder.exists():
        raise ExistsError(
            f"{out} exists: expected a new folder. Fix: remove it, or name another with --out."
        )
    spec = _chosen(kernel, atoms, tiles)
    held = _cut(tiles)
    spec.check_dictionary(len(held.base))
    click.echo(
        f"{len(held.base):,} tiles to search, {len(held.queries)} held out as queries", err=True
    )
    folder.mkdir(parents=True)
    began = time.perf_counter()
    _ingest(TileSource(held.base, "tiles of sample photographs"), folder / "vectors.zarr")
    _ingest(TileSource(held.queries, "held-out tiles"), folder / "queries.zarr")
    gist_seconds = time.perf_counter() - began
    base, queries, codes = (
        str(folder / name) for name in ("vectors.zarr", "queries.zarr", "codes.zarr")
    )
    encoded = api.encode(base, codes, kernel=kernel, encoder=spec)
    searches = {
        "codes": api.search(codes, queries, k=FOUND, threads=available_cores()),
        f"codes, {RERANKED} reranked": api.search(
            codes, queries, k=FOUND, rerank=RERANKED, threads=available_cores()
        ),
        "every vector": api.search(
            base, queries, k=FOUND, kernel=kernel, threads=available_cores()
        ),
    }
    truth = searches["every vector"][1]
    recall = {
        name: recalls(hits, truth) for name, (_, hits) in searches.items() if hits is not truth
    }
    report: Report = {
        "page": str((folder / "index.html").resolve()),
        "kernel": kernel,
        "tiles": len(held.base),
        "queries": len(held.queries),
        "gist_seconds": round(gist_seconds, 2),
        "vectors": api.info(base),
        "encode": encoded,
        "search": {name: figures for name, (figures, _) in searches.items()},
        "recall": recall,
    }
    gallery = _gallery(held, report, searches["codes"][1], truth)
    publish(folder / "index.html", render_gallery(gallery).encode())
    return report


def _ingest(tiles: TileSource, store: Path) -> None:
    """Ingest the GIST of tiles."""
    IngestTask(source=tiles, target=store, options=IngestOptions()).run()


def _chosen(kernel: str, atoms: int, tiles: int | None) -> AskaSpec:
    """Return the spec of the codes; refuse wrong options before any photograph is read."""
    if kernel not in KERNELS:
        raise InputError(
            f"unknown kernel: found {kernel!r}, expected one of {', '.join(KERNELS)}, which "
            "need no parameter. "
            "Fix: --kernel chi2"
        )
    spec = AskaSpec(n_atoms=atoms, n_nonzero_coefs=SPARSITY)
    if tiles is not None:
        check_range("tiles", tiles, (RERANKED, MOST_TILES), "leave --tiles out.")
    spec.check_dictionary(MOST_TILES if tiles is None else tiles)
    return spec


def _cut(count: int | None) -> tiling.HeldOut:
    """Return tiles of scikit-learn's photographs and queries held out of them.

    With ``count``, the tiles are thinned evenly to that number.
    """
    photographs = load_sample_images().images
    threshold = tiling.drop_plain(tiling.cut_tiles(photographs), workers=available_cores())
    held = tiling.hold_out(tiling.add_mirror_images(threshold), QUERIES, random_state=SEED)
    if count is None:
        return held
    check_range("tiles", count, (RERANKED, len(held.base)), "leave --tiles out.")
    rows = np.linspace(0, len(held.base) - 1, count).astype(np.int64)
    return tiling.HeldOut(base=held.base.take(rows), queries=held.queries, windows=held.windows)


def _gallery(held: tiling.HeldOut, report: Report, found: Hits, truth: Hits) -> Gallery:
    """Return the content of the page."""
    return Gallery(
        title=f"{report['kernel']} neighbours among {len(held.base):,} tiles",
        paragraphs=(
            "Two photographs were cut into tiles of 32 × 32 pixels at "
            f"{len(tiling.SCALES)} scales, and each tile was also mirrored. A tile is described by "
            f"its GIST, {DIMENSION} numbers (3 scales × 8 orientations × 4 × 4 cells) that ignore "
            f"colour. A GIST is encoded as {SPARSITY} weighted atoms of a dictionary of "
            f"{report['encode']['encoder']['n_atoms']:,} other tiles. "
            "The search used these codes alone.",
            f"The queries lie in {len(held.windows)} windows of 64 × 64 pixels, and every tile "
            "that "
            "touches a window was left out of the search, so no tile overlaps a query. The queries "
            "were drawn from the windows in turn, by a fixed seed; these are the first "
            f"{SHOWN} of {len(held.queries)}. Tiles with hardly any texture, such as sky, were "
            "dropped.",
            f"A green frame marks one of the true {HITS} nearest tiles, by the kernel on every "
            "vector; a gold frame marks the true nearest.",
        ),
        rows=tuple(_row(held, found, truth, query) for query in range(SHOWN)),
        tables=(_recall_table(report), _size_table(report), _speed_table(report)),
    )


def _row(held: tiling.HeldOut, found: Hits, truth: Hits, query: int) -> GalleryRow:
    """Return the pictures of one query and its hits."""
    ids = found.ids[query, :HITS].tolist()
    true = truth.ids[query, :HITS].tolist()
    assert found.scores is not None
    return GalleryRow(
        query=held.queries.pixels(query, query + 1)[0],
        hits=np.concatenate([held.base.pixels(row, row + 1) for row in ids]),
        scores=tuple(found.scores[query, :HITS].tolist()),
        neighbours=tuple(row in true for row in ids),
        nearest=tuple(row == true[0] for row in ids),
        place=_place(held.queries.place(query)),
        hit_places=tuple(_place(held.base.place(row)) for row in ids),
    )


def _place(place: tiling.TileOrigin) -> str:
    """Return the origin of a tile in words."""
    return (
        f"{PHOTOGRAPHS[place.photograph]}, rows {place.top:.0f}–{place.bottom:.0f}, "
        f"columns {place.left:.0f}–{place.right:.0f}, scale "
        f"{place.scale:g}{', mirrored' if place.mirrored else ''}"
    )


def _recall_table(report: Report) -> Table:
    """Return the table of recall: a row per definition and rank, a column per way of searching."""
    ways = list(report["recall"])
    values = {
        way: {(row["definition"], row["rank"]): row["value"] for row in report["recall"][way]}
        for way in ways
    }
    keys = list(values[ways[0]])
    rows = tuple(
        (
            DEFINITIONS[definition].format(*[rank] * 3),
            *(f"{values[way][definition, rank]:.3f}" for way in ways),
        )
        for definition, rank in keys
    )
    return Table(
        title="Recall", header=("against every vector by the true kernel", *ways), rows=rows
    )


def _size_table(report: Report) -> Table:
    """Return the table of bytes per row of vectors and codes."""
    raw, coded = report["vectors"]["bytes"] / report["tiles"], report["encode"]["bytes_per_row"]
    rows = (("GIST, float32", f"{raw:,.0f}", "1"), ("codes", f"{coded:.1f}", f"{raw / coded:.1f}"))
    return Table(title="Compression", header=("", "bytes per row", "ratio"), rows=rows)


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
        f"{available_cores()} cores; {queries} queries at once; times include loading and "
        "compiling."
    )
    return Table(title="Speed", header=("step", "seconds", "each"), rows=tuple(rows), note=note)

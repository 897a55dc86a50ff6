"""The sections of the page of a store of codes."""

import platform
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.comparison.plot import Curve, Panel, draw_each
from mercore.jobs.gallery.page import (
    DEFINITIONS,
    HITS,
    GalleryHit,
    GalleryRow,
    GalleryWay,
    Table,
    marks_of,
)
from mercore.jobs.gallery.report.code_figures import CodeFigures
from mercore.jobs.gallery.report.document import Plot, Section
from mercore.jobs.gallery.report.figures import themed
from mercore.jobs.gallery.report.pictures import SourcePictures
from mercore.jobs.options import Report
from mercore.jobs.printing import format_seconds, format_size
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.encoder import OPTION, Option
from mercore.pipeline.kernels import Kernel, is_custom
from mercore.pipeline.linear_map import map_of
from mercore.stores.codes import CodeStore
from mercore.stores.errors import counted
from mercore.stores.part_store.header import row_bytes
from mercore.stores.results.hits import Hits
from mercore.stores.spec import in_words
from mercore.stores.vectors import Vectors, store_of

SHOWN = 12  # queries of the gallery
CURVES = {
    "texmex": "the true nearest is among the first R",
    "k-recall": "share of the true R in the first R",
}


def holds_section(
    codes: CodeStore, spec: EncoderSpec, vectors: Vectors | None, absent: str
) -> Section:
    """Return what the store holds, and how it was made."""
    total, code = sum(codes.stored_bytes.values()), row_bytes(spec.columns("none"))
    layout, linear_map = codes.store.layout, map_of(codes)
    facts = {
        "store": codes.where,
        "rows": f"{codes.rows:,}",
        "code": f"{code:,} bytes per row: {_columns(spec)}",
        "on disk": f"{format_size(total)}, {total / codes.rows:,.1f} bytes per row with padding",
        **_raw_facts(codes, vectors, code),
        "parts": f"{counted(codes.parts, 'part')} of {counted(layout.part_rows, 'row')}",
        "compressor": str(layout.columns[0]["compressor"]),
        "kernel": _kernel_in_words(codes),
        **(
            {}
            if linear_map is None
            else {"linear map": f"{linear_map.matrix.shape}, digest {linear_map.digest}"}
        ),
        "encoded from": codes.source_path,
        "fingerprint of the vectors": codes.spec.source,
        "digest of the codes": codes.store.header.spec_digest,
    }
    paragraphs: tuple[str, ...] = ()
    if vectors is None:
        paragraphs = (f"The vectors are not at hand, so no true score was computed: {absent}",)
    return Section(
        title="What the store holds",
        paragraphs=paragraphs,
        facts=(_facts("", facts), _parameters(spec)),
    )


def recall_section(codes: CodeStore, measured: CodeFigures) -> Section:
    """Return how many true neighbours a scan of the codes finds, and how fast it is."""
    found = measured.scan
    values = {(row["definition"], row["rank"]): row["value"] for row in measured.recall}
    curves = []
    for definition, label in CURVES.items():
        ranks = [rank for name, rank in values if name == definition]
        means = [values[definition, rank] for rank in ranks]
        curves.append(Curve(label=label, ranks=ranks, means=means, deviations=[0.0] * len(ranks)))
    drawn = [curve for curve in curves if curve.ranks]
    panel = Panel(title="", curves=drawn)
    first = "; ".join(
        f"{curve.label}: {curve.means[0]:.3f} at R = {curve.ranks[0]}, "
        f"{curve.means[-1]:.3f} at R = {curve.ranks[-1]}"
        for curve in drawn
    )
    plot = Plot(
        svg=themed(draw_each(panel, "svg")[0]),
        alt=f"Recall over the rank R. {first}.",
        caption="Recall of the codes alone. The first curve says how many hits have to be scored "
        "again by the kernel (--rerank) so that the true nearest row is among them.",
    )
    queries = counted(len(found.ids), "query", "queries")
    against = f"{queries}, {counted(found.rows, 'row')}"
    return Section(
        title="Recall",
        paragraphs=_how(codes, measured),
        plots=(plot,),
        tables=(_recall_table(measured.recall, against),),
    )


def speed_section(codes: CodeStore, measured: CodeFigures) -> Section:
    """Return how fast the scan was."""
    found = measured.scan
    each = found.ns_per_row_and_query
    facts = {
        "scan": f"{each:.2f} ns per row and query",
        "time of the scan": format_seconds(found.seconds),
        "rows": f"{found.rows:,}",
        "queries": f"{len(found.ids):,}, in batches of at most {measured.batch:,}",
        "threads": f"{measured.threads:,}",
        "all rows at this speed": f"{format_seconds(each * codes.rows * 1e-9)} per query",
        "processor": _processor(),
    }
    return Section(
        title="Speed of a scan",
        paragraphs=(
            "The time contains reading the codes and preparing the queries, but no compiling. "
            "Other work on the same machine makes a scan slower.",
        ),
        facts=(_facts("", facts),),
    )


def proof_section(arrays: Mapping[str, NDArray[Any]], about: Report) -> Section:
    """Return what the certificate beside the true neighbours proves."""
    share = arrays["evaluated"] / float(arrays["rows"])
    margin = arrays["kth"] - arrays["greatest_unevaluated"] - arrays["slack"]
    levels = {"median": 0.5, "90 %": 0.9, "most": 1.0}
    proved = "" if about.get("exact") else " The search was relaxed: it may miss neighbours."
    facts = {
        "queries": f"{len(share):,}",
        "k": f"{about['k']:,}",
        "bound": str(about["bound"] or "none: every row was scored"),
        "rows scored by the true kernel": ", ".join(
            f"{name} {np.quantile(share, level):.3%}" for name, level in levels.items()
        ),
        "queries with every other row below the k-th score": f"{int((margin >= 0).sum()):,}",
        "queries with ties": f"{int((arrays['ties'] > 0).sum()):,}",
        "digest of the queries": str(about["queries"]),
    }
    return Section(
        title="Certificate of the true neighbours",
        paragraphs=(
            "The exact search of the true neighbours wrote a certificate. For each query it holds "
            "the k-th score, and the greatest bound of the rows that were not scored." + proved,
        ),
        facts=(_facts("", facts),),
    )


def gallery_section(pictures: SourcePictures, measured: CodeFigures, kernel: Kernel) -> Section:
    """Return the images of some queries beside the images of their hits."""
    shown = min(SHOWN, len(measured.hits.ids))
    picked = np.linspace(0, len(measured.hits.ids) - 1, shown).astype(int).tolist()
    ways = {"codes": measured.hits, "true neighbours": measured.truth}
    rows = tuple(
        GalleryRow(
            number=int(measured.query_ids[place]),
            query=pictures.of_query(int(measured.query_ids[place])),
            ways=tuple(
                GalleryWay(name=name, hits=_shown_hits(pictures, hits, measured, kernel, place))
                for name, hits in ways.items()
            ),
        )
        for place in picked
    )
    return Section(
        title="Queries and their best hits",
        paragraphs=("The vectors were made of images. Some queries, and their hits:",),
        rows=rows,
        true_neighbours=min(HITS, measured.truth.ids.shape[1]),
    )


def _shown_hits(
    pictures: SourcePictures, hits: Hits, measured: CodeFigures, kernel: Kernel, place: int
) -> tuple[GalleryHit, ...]:
    """Return the images of the first hits of one query."""
    ids, scores = hits.ids[place, :HITS].tolist(), [None] * HITS
    if hits.scores is not None:
        # scores of a file are those that users see
        given = hits is measured.truth and measured.whole
        values = hits.scores[place, :HITS]
        scores = (values if given else kernel.shown(values)).tolist()
    marks = marks_of(ids, measured.truth.ids[place, :HITS].tolist())
    return tuple(
        GalleryHit(picture=pictures.of_row(row), id=row, score=score, mark=mark)
        for row, score, mark in zip(ids, scores, marks, strict=False)
        if row >= 0
    )


def _facts(title: str, facts: dict[str, str]) -> Table:
    """Return a table of one fact per row."""
    return Table(title=title, header=("fact", "value"), rows=tuple(facts.items()))


def _columns(spec: EncoderSpec) -> str:
    """Return name, width and type of the columns of a code."""
    columns = ((name, np.dtype(dtype).name, width) for name, dtype, width in spec.code_columns())
    return ", ".join(
        f"{name} {dtype}" if width is None else f"{name} {width:,} × {dtype}"
        for name, dtype, width in columns
    )


def _raw_facts(codes: CodeStore, vectors: Vectors | None, code: int) -> dict[str, str]:
    """Return the size of the vectors beside that of the codes, and their source."""
    if vectors is None:
        return {"vectors": f"{codes.spec.dims:,} dimensions"}
    stored, raw = store_of(vectors), vectors.dims * vectors.dtype.itemsize
    facts = {
        "vectors": f"{vectors.dims:,} × {vectors.dtype.name}, {raw:,} bytes per row: "
        f"{raw / code:,.2f} times the bytes of a code"
    }
    if stored is not None:
        facts["source of the vectors"] = stored.source
        facts["rows left out of the vectors"] = f"{stored.spec.dropped_rows:,}"
    return facts


def _kernel_in_words(codes: CodeStore) -> str:
    """Return the kernel and its parameters."""
    own = is_custom(codes.spec.kernel)
    return str(own["file"]) if own else in_words(codes.spec.kernel)


def _parameters(spec: EncoderSpec) -> Table:
    """Return the parameters of the encoder, with what they mean."""
    rows = []
    for field in fields(spec):
        option: Option | None = field.metadata.get(OPTION)
        if option is not None:
            rows.append((option.name, f"{getattr(spec, field.name)}", option.help))
    header = ("parameter", "value", "meaning")
    return Table(title=f"Parameters of {spec.name}", header=header, rows=tuple(rows))


def _how(codes: CodeStore, measured: CodeFigures) -> tuple[str, ...]:
    """Return how the queries were chosen, and what was searched."""
    found = measured.scan
    queries = counted(len(found.ids), "query", "queries")
    if measured.queries.own is not None:
        asked = (
            f"The queries are {len(found.ids):,} rows of the store, drawn by a fixed seed. The "
            "query’s own row does not count: it is left out of the hits and of the true "
            "neighbours. The encoder may have learned from some of these rows."
        )
    else:
        name = PurePath(measured.query_name).name if measured.query_name else "Rows in memory"
        drawn = f"{len(found.ids):,} of {measured.queries_given:,}, drawn by a fixed seed"
        all_of = len(found.ids) == measured.queries_given
        asked = f"{name}: {f'all {queries}' if all_of else drawn}."
    if measured.whole:
        searched = (
            f"All {found.rows:,} rows were searched. The true neighbours are those given with "
            "--truth."
        )
    elif found.rows == codes.rows:
        searched = (
            f"All {found.rows:,} rows were searched. The true neighbours are the best rows by the "
            "true kernel."
        )
    else:
        searched = (
            f"A sample of {found.rows:,} of {codes.rows:,} rows was searched, from parts spread "
            "over the store. The true neighbours are the best rows of the sample by the true "
            "kernel. Among all rows, recall is lower: more rows come close to a query."
        )
    return asked, searched


def _recall_table(recall: list[Report], against: str) -> Table:
    """Return a row per definition of recall, and a column per rank."""
    values = {(row["definition"], row["rank"]): f"{row['value']:.3f}" for row in recall}
    ranks = sorted({rank for _, rank in values})
    rows = tuple(
        (words.format(*"RRR"), *(values.get((name, rank), "–") for rank in ranks))
        for name, words in DEFINITIONS.items()
    )
    return Table(
        title="",
        header=(against, *(f"R\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{rank}" for rank in ranks)),
        rows=rows,
    )


def _processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

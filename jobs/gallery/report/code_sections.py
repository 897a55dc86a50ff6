"""The sections of the page of a store of codes."""

import platform
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.gallery.page import (
    HITS,
    Section,
    Table,
    facts_table,
    gallery_rows,
    pictures_of,
    recall_table,
)
from mercore.jobs.gallery.report.measure import CodeFigures
from mercore.jobs.gallery.report.report_options import ReportOptions
from mercore.jobs.gallery.report.sample import QuerySample
from mercore.jobs.options import Report
from mercore.jobs.printing import format_seconds, format_size
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.encoder import OPTION, Option
from mercore.pipeline.kernels import Kernel, is_custom
from mercore.pipeline.linear_map import map_of
from mercore.stores.codes import CodeStore
from mercore.stores.errors import counted
from mercore.stores.formats.images import Images
from mercore.stores.part_store.header import row_bytes
from mercore.stores.results.hits import Hits
from mercore.stores.spec import in_words
from mercore.stores.vector_views import store_of
from mercore.stores.vectors import Vectors

SHOWN, SIDE = 12, 96  # queries of the gallery, and pixels of an image as the page shows it
RERANK_HINT = (
    "R@R says how many hits have to be scored again by the kernel (--rerank) so that the true "
    "nearest row is among them."
)


def holds_section(
    codes: CodeStore, spec: EncoderSpec, vectors: Vectors | None, absent: str
) -> Section:
    """Return the section on the content of the store, and on its making."""
    total, code = sum(codes.stored_bytes.values()), row_bytes(spec.columns("none"))
    layout, linear_map, custom = codes.store.layout, map_of(codes), is_custom(codes.spec.kernel)
    facts = {
        "store": codes.where,
        "rows": f"{codes.rows:,}",
        "code": f"{code:,} bytes per row: {_columns(spec)}",
        "on disk": f"{format_size(total)}, {total / codes.rows:,.1f} bytes per row with padding",
        **_raw_facts(codes, vectors, code),
        "parts": f"{counted(codes.parts, 'part')} of {counted(layout.part_rows, 'row')}",
        "compressor": str(layout.columns[0]["compressor"]),
        "kernel": custom["file"] if custom else in_words(codes.spec.kernel),
        **(
            {}
            if linear_map is None
            else {"linear map": f"{linear_map.matrix.shape}, digest {linear_map.digest}"}
        ),
        "encoded from": codes.source_path,
        "fingerprint of the vectors": codes.spec.source,
        "digest of the codes": codes.store.header.spec_digest,
    }
    missing = f"The vectors are not at hand, so no true score was computed: {absent}"
    return Section(
        title="What the store holds",
        paragraphs=[missing] * (vectors is None),
        tables=[facts_table(facts), _parameters(spec)],
    )


def recall_section(codes: CodeStore, measured: CodeFigures, options: ReportOptions) -> Section:
    """Return the section on the true neighbours that a scan of the codes finds."""
    queries = counted(len(measured.hits), "query", "queries")
    against = f"{queries}, {counted(measured.rows, 'row')}"
    table = recall_table({"codes": measured.recall}, against)
    asked = _asked(measured.queries, options.queries)
    searched = _searched(measured.rows, codes, given=options.truth is not None)
    return Section("Recall", [asked, searched, RERANK_HINT], tables=[table])


def speed_section(codes: CodeStore, measured: CodeFigures) -> Section:
    """Return the section on the time of the scan."""
    each = measured.ns_per_row_and_query
    facts = {
        "scan": f"{each:.2f} ns per row and query",
        "time of the scan": format_seconds(measured.seconds),
        "rows": f"{measured.rows:,}",
        "queries": f"{len(measured.hits):,}, in batches of at most {measured.settings.batch:,}",
        "threads": f"{measured.settings.threads:,}",
        "all rows at this speed": f"{format_seconds(each * codes.rows * 1e-9)} per query",
        "processor": _processor(),
    }
    return Section(
        title="Speed of a scan",
        paragraphs=(
            "The time contains reading the codes and preparing the queries, but no compiling. "
            "Other work on the same machine makes a scan slower.",
        ),
        tables=[facts_table(facts)],
    )


def proof_section(arrays: Mapping[str, NDArray[Any]], about: Report) -> Section:
    """Return the section on the certificate beside the true neighbours."""
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
        tables=[facts_table(facts)],
    )


def gallery_section(
    images: tuple[Images, Images], measured: CodeFigures, kernel: Kernel, *, given: bool
) -> Section:
    """Return the section of images: some queries beside their hits.

    ``images`` are those of rows and of queries. The truth is ``given`` with the scores that users
    see; other scores are those of the kernel.
    """
    ids, (hit, query) = measured.query_ids, (pictures_of(each, SIDE) for each in images)
    picked = np.linspace(0, len(ids) - 1, min(SHOWN, len(ids))).astype(int)

    def some(hits: Hits, *, seen: bool) -> Hits:
        scores = None if hits.scores is None else hits.scores[picked]
        shown = scores if scores is None or seen else kernel.shown(scores)
        return Hits(scores=shown, ids=hits.ids[picked])

    ways = {"codes": some(measured.hits, seen=False)}
    ways["true neighbours"] = truth = some(measured.truth, seen=given)
    return Section(
        title="Queries and their best hits",
        paragraphs=["The vectors were made of images. Some queries, and their hits:"],
        rows=tuple(gallery_rows(ids[picked].tolist(), ways, truth, query, hit)),
        true_neighbours=min(HITS, truth.ids.shape[1]),
    )


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


def _parameters(spec: EncoderSpec) -> Table:
    """Return the parameters of the encoder, with what they mean."""
    rows = []
    for field in fields(spec):
        option: Option | None = field.metadata.get(OPTION)
        if option is not None:
            rows.append((option.name, f"{getattr(spec, field.name)}", option.help))
    header = ("parameter", "value", "meaning")
    return Table(header, rows, f"Parameters of {spec.name}", words=True)


def _asked(queries: QuerySample, source: object) -> str:
    """Return the choice of the queries in words."""
    count = len(queries.values)
    if queries.own is not None:
        return (
            f"The queries are {count:,} rows of the store, drawn by a fixed seed. The query’s own "
            "row does not count: it is left out of the hits and of the true neighbours. The "
            "encoder may have learned from some of these rows."
        )
    name = PurePath(source).name if isinstance(source, str) else "Rows in memory"
    if count == queries.total:
        return f"{name}: all {counted(count, 'query', 'queries')}."
    return f"{name}: {count:,} of {queries.total:,}, drawn by a fixed seed."


def _searched(rows: int, codes: CodeStore, *, given: bool) -> str:
    """Return the rows that were searched, and the source of the true neighbours, in words."""
    if given:
        return f"All {rows:,} rows were searched. The true neighbours are those given with --truth."
    if rows == codes.rows:
        return (
            f"All {rows:,} rows were searched. The true neighbours are the best rows by the true "
            "kernel."
        )
    return (
        f"A sample of {rows:,} of {codes.rows:,} rows was searched, from parts spread over the "
        "store. The true neighbours are the best rows of the sample by the true kernel. Among all "
        "rows, recall is lower: more rows come close to a query."
    )


def _processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

"""The page of a comparison: tables and curves of the runs that its folder keeps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mercore.jobs.comparison.plot import COMPARED_RANK, Panel, draw_each, draw_samples
from mercore.jobs.comparison.setup import RECORDED, read_records
from mercore.jobs.comparison.summary import recall_panels, searches_of, summarise
from mercore.jobs.encoder_options import fields_of
from mercore.jobs.gallery.page import Table
from mercore.jobs.gallery.report.document import Document, Plot, Section, render_document
from mercore.jobs.gallery.report.figures import themed
from mercore.jobs.options import Report
from mercore.jobs.printing import encoder_label
from mercore.jobs.verbs.inputs import VerbTask
from mercore.pipeline.encoders import encoder_spec
from mercore.stores.errors import FormatError, NotFoundError, counted
from mercore.stores.location.publish import publish_output
from mercore.stores.spec import in_words

MOST_RANKS = 4  # of a table
DEFINITION = (
    "R@R is the share of queries whose true nearest row is among the first R found. The true rows "
    "are the best by the kernel among all rows."
)
TITLES = ("Recall by rank", "Recall and speed", "Recall and bytes per row")


@dataclass(frozen=True, kw_only=True)
class ComparedReportTask(VerbTask):
    """The runs of a comparison; runs of one group have the same data, kernel and ranks."""

    folder: str
    groups: list[list[Report]]
    out: str

    def run(self) -> Report:
        """Write the page; return its path and the numbers of runs."""
        runs = sum(map(len, self.groups))
        kernels = list(dict.fromkeys(in_words(group[0]["kernel"]) for group in self.groups))
        document = Document(
            title=f"Comparison of encoders: {Path(self.folder).resolve().name}",
            paragraphs=(
                f"{counted(runs, 'run')} of mercore compare under "
                f"{counted(len(kernels), 'kernel')}. A run encodes the vectors, searches the codes "
                "for all queries, and compares the hits with the true neighbours.",
                DEFINITION,
            ),
            sections=tuple(map(_section, self.groups)),
        )
        page = render_document(document).encode()
        publish_output(Path(self.out), page)
        return {
            "page": str(Path(self.out).resolve()),
            "kernels": kernels,
            "runs": runs,
            "bytes": len(page),
        }


def open_compared_report(folder: str, out: str) -> ComparedReportTask:
    """Read the runs of a comparison.

    Raises
    ------
    FormatError
        If the file of runs is of something else.
    NotFoundError
        If there is no run.
    """
    path = Path(folder) / RECORDED
    try:
        records = read_records(path)
    except FormatError as error:
        raise FormatError(
            f"{path}: found something else, expected the runs of a comparison. Fix: name a folder "
            "that mercore compare --out wrote."
        ) from error
    groups: dict[str, list[Report]] = {}
    for record in records:
        groups.setdefault(_group_key(record), []).append(record)
    if not groups:
        raise NotFoundError(
            f"{path}: found no finished run, expected at least one. Fix: run mercore compare with "
            f"--out {folder} to its end."
        )
    labelled = [_labelled(group, str(path)) for group in groups.values()]
    return ComparedReportTask(folder=folder, groups=labelled, out=out)


def _group_key(record: Report) -> str:
    """Return what runs in one table have in common."""
    ranks = [row["rank"] for row in record["search"]["recall"]]
    common = (record[name] for name in ("kernel", "vectors", "queries"))
    return repr([*common, ranks, [search.get("rerank") for search in searches_of(record)]])


def _labelled(group: Sequence[Report], where: str) -> list[Report]:
    """Return runs with the labels of kernel and encoder that ``summarise`` needs."""
    labels = _labels(group, where)
    kernel = in_words(group[0]["kernel"])
    return [
        {**record, "kernel_label": kernel, "label": label}
        for record, label in zip(group, labels, strict=True)
    ]


def _labels(group: Sequence[Report], where: str) -> list[str]:
    """Return the name of the encoder of each run.

    Encoders of one name are called as the user called them. Where that tells no two apart, as in
    runs of older versions, they are called by the options in which they differ.
    """
    specs = [replace(encoder_spec(each["encoder"], where), random_state=0) for each in group]
    texts = {spec: record.get("text") for spec, record in zip(specs, group, strict=True)}
    labels = []
    for spec in specs:
        alike = {each: text for each, text in texts.items() if each.name == spec.name}
        differing = {
            option: getattr(spec, field)
            for option, field in fields_of(spec.name).items()
            if len({getattr(each, field) for each in alike}) > 1
        }
        options = ",".join(f"{option}={value}" for option, value in differing.items())
        told = f"{spec.name}:{options}" if options else spec.name
        unique = differing and list(alike.values()).count(texts[spec]) == 1
        labels.append((texts[spec] if unique else None) or told)
    return labels


def _section(group: Sequence[Report]) -> Section:
    """Return the tables and pictures of the runs under one kernel."""
    first, summary = group[0], summarise(group)
    rows = first.get("rows")
    (panel,) = recall_panels(summary, rows or 1)
    panel = replace(panel, title="")  # the heading of the section says it
    if rows is None:  # runs of an older version do not say how many rows they searched
        unclocked = [replace(curve, speed=None) for curve in panel.curves]
        panel = replace(panel, curves=unclocked)
    samples = map(themed, draw_samples(panel, "svg"))
    return Section(
        title=in_words(first["kernel"]),
        plots=_plots(panel, summary),
        legend=tuple(
            Plot(svg=svg, alt="dashed line" if curve.dashed else "line", caption=curve.label)
            for svg, (curve, _) in zip(samples, panel.looks(), strict=True)
        ),
        tables=(_table(summary),),
        facts=(_measured(group),),
    )


def _measured(group: Sequence[Report]) -> Table:
    """Return what was measured, and how."""
    first = group[0]
    seeds = sorted({record["seed"] for record in group})
    facts = {
        "rows": f"{first['rows']:,}" if "rows" in first else "not recorded",
        "queries": f"{first['query_count']:,}" if "query_count" in first else "not recorded",
        "fingerprint of the vectors": first["vectors"],
        "digest of the queries": first["queries"],
        "runs per encoder": f"random states {', '.join(map(str, seeds))}",
        "threads of a search": _numbers(group, "threads"),
        "threads of an encode": _numbers(group, "workers"),
    }
    return Table(title="What was measured", header=("fact", "value"), rows=tuple(facts.items()))


def _numbers(group: Sequence[Report], name: str) -> str:
    """Return the numbers that runs have."""
    return ", ".join(map(str, sorted({record[name] for record in group})))


def _plots(panel: Panel, summary: Sequence[Report]) -> tuple[Plot, ...]:
    """Return the pictures of one kernel, described in words."""
    ranks = summary[0]["ranks"]
    at = ranks.index(max([rank for rank in ranks if rank <= COMPARED_RANK], default=ranks[0]))
    ends = "; ".join(
        f"{encoder_label(entry)}: {entry['recall_mean'][0]:.3f} to {entry['recall_mean'][-1]:.3f}"
        for entry in summary
    )
    points = "; ".join(
        f"{encoder_label(entry)}: {entry['recall_mean'][at]:.3f} with "
        f"{entry['bytes_per_row']} bytes, {entry['search_ns_per_row_and_query']:.2f} ns per row "
        "and query"
        for entry in summary
    )
    told = {
        TITLES[0]: f"Recall from rank {ranks[0]} to rank {ranks[-1]}. {ends}.",
        TITLES[1]: f"Recall at rank {ranks[at]} over queries per second. {points}.",
        TITLES[2]: f"Recall at rank {ranks[at]} over bytes per row. {points}.",
    }
    captions = {
        TITLES[0]: "Recall by rank; the band is one standard deviation over the random states.",
        TITLES[1]: "Recall and queries per second: up and to the right is better."
        + _sweep(summary),
        TITLES[2]: "Recall and bytes per row: up and to the left is better.",
    }
    speeds = all(curve.speed is not None for curve in panel.curves)
    titles = TITLES if speeds else (TITLES[0], TITLES[2])
    return tuple(
        Plot(svg=themed(svg), alt=told[title], caption=captions[title])
        for title, svg in zip(titles, draw_each(panel, "svg", legend=False), strict=True)
    )


def _sweep(summary: Sequence[Report]) -> str:
    """Return the sentence on curves of several numbers of reranked hits, if there are several."""
    numbers = sorted({entry["reranked"] for entry in summary if entry["reranked"]})
    if len(numbers) < 2:
        return ""
    return (
        " A curve goes from codes alone (filled) to "
        f"{', '.join(f'{number:,}' for number in numbers)} hits reranked."
    )


def _table(summary: Sequence[Report]) -> Table:
    """Return the figures of each encoder."""
    ranks = _shown_ranks(summary[0]["ranks"])
    accuracy = "accuracy_mean" in summary[0]
    header = (
        "encoder",
        "bytes per row",
        *(f"R@{rank}" for rank in ranks),
        *["accuracy"] * accuracy,
        "search, ns per row and query",
        "encode, µs per row",
        "runs",
    )
    return Table(
        title="Means of the runs",
        header=header,
        rows=tuple(_cells(entry, ranks, accuracy=accuracy) for entry in summary),
        note="± is the standard deviation over the random states. Times of encoding include "
        "fitting the model.",
    )


def _shown_ranks(ranks: Sequence[int]) -> list[int]:
    """Return powers of ten among the recorded ranks, and the greatest rank."""
    powers = [rank for rank in ranks if str(rank).strip("0") == "1"]
    return list(dict.fromkeys([*powers[:MOST_RANKS], ranks[-1]]))


def _cells(entry: Report, ranks: Sequence[int], *, accuracy: bool) -> tuple[str, ...]:
    """Return the cells of one encoder."""
    places = [entry["ranks"].index(rank) for rank in ranks]
    shown = [(entry["recall_mean"][place], entry["recall_std"][place]) for place in places]
    if accuracy:
        shown.append((entry["accuracy_mean"], entry["accuracy_std"]))
    spread = entry["seeds"] > 1
    return (
        encoder_label(entry),
        f"{entry['bytes_per_row']:,}",
        *(f"{mean:.3f}" + f" ± {std:.3f}" * spread for mean, std in shown),
        f"{entry['search_ns_per_row_and_query']:.2f}",
        f"{entry['encode_us_per_row']:.2f}",
        f"{entry['seeds']:,}",
    )

"""The page of a comparison: tables and curves of the runs that its folder keeps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mercore.jobs.comparison.plot import draw_recall
from mercore.jobs.comparison.setup import RECORDED, read_records
from mercore.jobs.comparison.summary import recall_panels, searches_of, summarise
from mercore.jobs.encoder_options import fields_of
from mercore.jobs.gallery.page import Plot, Section, Table, facts_table, write_page
from mercore.jobs.options import Report
from mercore.jobs.printing import comparison_table
from mercore.jobs.verbs.inputs import VerbTask
from mercore.pipeline.encoders import encoder_spec
from mercore.stores.errors import FormatError, NotFoundError, counted
from mercore.stores.spec import in_words
from mercore.stores.wording import setting

MAX_POWERS = 4  # ranks 1, 10, 100 and so on of a table
DEFINITION = (
    "R@R is the share of queries whose true nearest row is among the first R found. The true rows "
    "are the best by the kernel among all rows."
)
NOTE = (
    "± is the standard deviation over the random states. Times are ns per row and query, and µs "
    "per row with fitting the model."
)


@dataclass(frozen=True, kw_only=True)
class ComparedReportTask(VerbTask):
    """The runs of a comparison; runs of one group have the same data, kernel and ranks."""

    folder: str
    groups: list[list[Report]]
    out: str

    def run(self) -> Report:
        """Write the page; return its path and the numbers of runs."""
        runs = sum(map(len, self.groups))
        kernels = list(dict.fromkeys(group[0]["kernel_label"] for group in self.groups))
        about = (
            f"{counted(runs, 'run')} of mercore compare under {counted(len(kernels), 'kernel')}. A "
            "run encodes the vectors, searches the codes for all queries, and compares the hits "
            "with the true neighbours."
        )
        title = f"Comparison of encoders: {Path(self.folder).resolve().name}"
        size = write_page(self.out, title, [about, DEFINITION], list(map(_section, self.groups)))
        return {
            "page": str(Path(self.out).resolve()),
            "kernels": kernels,
            "runs": runs,
            "bytes": size,
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
            "that mercore compare wrote."
        ) from error
    groups: dict[str, list[Report]] = {}
    for record in records:
        groups.setdefault(_group_key(record), []).append(record)
    if not groups:
        raise NotFoundError(
            f"{path}: found no finished run, expected at least one. Fix: run mercore compare with "
            f"{setting(out=folder)} to its end."
        )
    labelled = [_labelled(group, str(path)) for group in groups.values()]
    return ComparedReportTask(folder=folder, groups=labelled, out=out)


def _group_key(record: Report) -> str:
    """Return the data, the kernel and the searches of a run: equal for all runs of one table."""
    ranks = [row["rank"] for row in record["search"]["recall"]]
    common = (record[name] for name in ("kernel", "vectors", "queries"))
    return repr([*common, ranks, [search.get("rerank") for search in searches_of(record)]])


def _labelled(group: Sequence[Report], where: str) -> list[Report]:
    """Return runs with the labels of kernel and encoder that ``summarise`` needs.

    Encoders of one name are called as the user called them. Where that tells no two apart, as in
    runs of older versions, they are called by the options in which they differ.
    """
    specs = [replace(encoder_spec(each["encoder"], where), random_state=0) for each in group]
    texts = {spec: record.get("text") for spec, record in zip(specs, group, strict=True)}
    labelled = []
    for spec, record in zip(specs, group, strict=True):
        alike = {each: text for each, text in texts.items() if each.name == spec.name}
        options = ",".join(
            f"{option}={getattr(spec, field)}"
            for option, field in fields_of(spec.name).items()
            if len({getattr(each, field) for each in alike}) > 1
        )
        label = f"{spec.name}:{options}" if options else spec.name
        if options and list(alike.values()).count(texts[spec]) == 1:
            label = texts[spec] or label
        labelled.append({**record, "kernel_label": in_words(record["kernel"]), "label": label})
    return labelled


def _section(group: Sequence[Report]) -> Section:
    """Return the curves and tables of the runs under one kernel."""
    first, summary = group[0], summarise(group)
    (panel,) = recall_panels(summary, first.get("rows"))  # older versions do not record the rows
    numbers = sorted({entry["reranked"] for entry in summary if entry["reranked"]})
    sweep = (
        " A curve of queries per second goes from codes alone (filled) to "
        f"{', '.join(f'{number:,}' for number in numbers)} hits reranked."
    )
    plot = Plot(
        svg=draw_recall([replace(panel, title="")], "svg"),  # the heading of the section says it
        alt=f"Curves of recall by rank, queries per second and bytes per row: {len(summary)} "
        "searches, whose figures are in the table of means.",
        caption="Recall by rank, queries per second and bytes per row: up is better. Bands and "
        f"bars are one standard deviation over the random states.{sweep * (len(numbers) > 1)}",
        wide=True,
    )
    ranks = summary[0]["ranks"]
    powers = [rank for rank in ranks if str(rank).strip("0") == "1"][:MAX_POWERS]
    header, *lines = comparison_table(summary, list(dict.fromkeys([*powers, ranks[-1]])))
    rows = [[*line, str(entry["seeds"])] for line, entry in zip(lines, summary, strict=True)]
    means = Table([*header, "runs"], rows, "Means of the runs", NOTE)
    return Section(first["kernel_label"], plots=[plot], tables=[means, _measured(group)])


def _measured(group: Sequence[Report]) -> Table:
    """Return the facts about data, random states and threads."""

    def numbers(name: str) -> str:
        return ", ".join(map(str, sorted({record[name] for record in group})))

    first = group[0]
    rows, queries = (
        f"{first[name]:,}" if name in first else "not recorded" for name in ("rows", "query_count")
    )
    facts = {
        "rows": rows,
        "queries": queries,
        "fingerprint of the vectors": first["vectors"],
        "digest of the queries": first["queries"],
        "runs per encoder": f"random states {numbers('seed')}",
        "threads of a search": numbers("threads"),
        "threads of an encode": numbers("workers"),
    }
    return facts_table(facts, "What was measured")

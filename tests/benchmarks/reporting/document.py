"""The Markdown of a report, made from the recorded figures of every processor."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from tests.benchmarks.reporting.tables import Report, Section, Table, markdown, side_by_side

WIDE = 12  # columns of a table that is folded
FORMAT = {"name": "mercore-report", "version": 1}
Run = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The tables of a section, and the conditions of the run that measured them."""

    run: Run
    tables: Sequence[Table]


@dataclass(frozen=True)
class Record:
    """All figures of a report: by processor, then by section."""

    processors: dict[str, dict[str, Measured]] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """The label of each processor: A, B, …"""
        return dict(zip(self.processors, ascii_uppercase, strict=False))

    def add(self, processor: str, section: str, measured: Measured) -> None:
        """Record a section, in place of earlier figures of the same processor."""
        self.processors.setdefault(processor, {})[section] = measured

    def of_section(self, section: str) -> dict[str, Measured]:
        """Return a section's figures by the processor's label, the most recent last."""
        found = {
            self.labels[name]: sections[section]
            for name, sections in self.processors.items()
            if section in sections
        }
        return dict(sorted(found.items(), key=lambda each: each[1].run["date"]))

    def usual_run(self, processor: str) -> Run:
        """Return the conditions of most sections of a processor; the latest if as many differ."""
        runs = [measured.run for measured in self.processors[processor].values()]
        counts = Counter(json.dumps(run) for run in runs)
        return max(runs, key=lambda run: (counts[json.dumps(run)], run["date"]))


def read_record(path: Path) -> Record:
    """Return the figures in a JSON file; none if there is no such file."""
    if not path.exists():
        return Record()
    stored = json.loads(path.read_text())
    if {key: stored.get(key) for key in FORMAT} != FORMAT:
        raise ValueError(f"{path.name} is not the record of a report")
    return Record(
        {
            processor: {name: _measured(each) for name, each in sections.items()}
            for processor, sections in stored["processors"].items()
        }
    )


def write_report(report: Report[Any], record: Record, path: Path) -> None:
    """Write the record as JSON, the plots as SVG and the report as Markdown, side by side."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = FORMAT | {"processors": asdict(record)["processors"]}
    path.with_suffix(".json").write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    for section in report.sections:
        measured = record.of_section(section.name)
        if section.plot is not None and measured:
            tables = {label: measured[label].tables for label in sorted(measured)}
            path.with_name(_picture(path, section)).write_bytes(section.plot.draw(tables))
    path.write_text(render(report, record, path))


def render(report: Report[Any], record: Record, path: Path) -> str:
    """Return the Markdown of a report that lies at ``path``."""
    figure = [f"**{report.figure}**"] if report.figure else []
    parts = [f"# {report.title}", *figure, report.text, _header(record)]
    for section in report.sections:
        if measured := record.of_section(section.name):
            parts += _section(section, measured, record, path)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _header(record: Record) -> str:
    """Return the table of conditions: one column per processor."""
    runs = {record.labels[name]: record.usual_run(name) for name in record.processors}
    names = {label: name for name, label in record.labels.items()}
    several = len(names) > 1
    rows = []
    for fact in ("processor", "date", "commit", "memory", "versions", "command"):
        said = {
            label: names[label] if fact == "processor" else run[fact] for label, run in runs.items()
        }
        if fact == "command":
            said = {label: f"`{text}`" for label, text in said.items()}
        rows.append({"": fact} | {(at if several else "this run"): said[at] for at in said})
    return _folded("Processors, dates, versions and commands", markdown(rows))


def _folded(title: str, text: str) -> str:
    """Return Markdown that shows its title, and the text if it is asked for."""
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{text}\n\n</details>'


def _section(
    section: Section[Any], measured: Mapping[str, Measured], record: Record, path: Path
) -> list[str]:
    """Return the paragraphs of a section."""
    labelled = len(record.processors) > 1
    parts = [f"## {section.title}", section.text]
    always = section.measure is None  # the commit has the benchmark
    parts += _other_runs(measured, record, labelled=labelled, always=always)
    if section.plot is not None:
        parts.append(f"![{section.plot.caption}]({_picture(path, section)})")
    titles = [table.title for each in measured.values() for table in each.tables if table.shown]
    for title in dict.fromkeys(titles):
        tables = {
            label: table
            for label, each in measured.items()
            for table in each.tables
            if table.title == title
        }
        rows = side_by_side(tables, labelled=labelled)
        wide = len(rows[0]) >= WIDE
        parts += [_folded(title, markdown(rows))] if wide else [f"**{title}**", markdown(rows)]
    return parts


def _other_runs(
    measured: Mapping[str, Measured], record: Record, *, labelled: bool, always: bool
) -> list[str]:
    """Return a line per processor whose run of this section is not the one in the header."""
    lines = []
    for name, label in record.labels.items():
        run = measured[label].run if label in measured else record.usual_run(name)
        usual = record.usual_run(name)
        if run != usual or (always and label in measured):
            where = f"On processor {label}: m" if labelled else "M"
            changed = f", {run['versions']}" if run["versions"] != usual["versions"] else ""
            lines.append(
                f"{where}easured on {run['date']} at commit {run['commit']}{changed}: "
                f"`{run['command']}`"
            )
    return lines


def _picture(path: Path, section: Section[Any]) -> str:
    """Return the file name of a section's plot."""
    return f"{path.stem}-{section.name}.svg"


def _measured(stored: dict[str, Any]) -> Measured:
    return Measured(run=stored["run"], tables=[Table(**table) for table in stored["tables"]])

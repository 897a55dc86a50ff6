"""Jobs as text for people: a submitted job, its status, and the table of all jobs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mercore.jobs.notices import echo, printable
from mercore.jobs.printing import format_seconds, format_size, print_fields, print_table
from mercore.stores.errors import counted

Report = dict[str, Any]

GAP, LEAST = 2, 8  # between columns; the shortest path or reason
FIGURES = ("rows", "parts", "parts_done_now", "queries", "k", "proved", "tied", "refuted")
COLUMNS = ("id", "state", "done", "rate", "left", "age", "took", "target", "why")
STATUS = ("target", "runs", "exit_code", "submitted", "began", "ended", "log", "report")


def print_submitted(report: Report, command: str, *, queued: bool, why: str) -> None:
    """Print the id of a submitted job; its status and command line go to stderr.

    Parameters
    ----------
    report : ``id``, and ``before``: the state that the job had before, or None
    queued : whether it is queued again; else it is left as it was
    why : the reason of the state before
    """
    before = report["before"]
    if before is None:
        status = "queued"
    elif not queued:
        status = f"{before} already: nothing was queued again"
    else:
        again = (
            "is checked, and what is missing or wrong done again" if before == "done" else "goes on"
        )
        reason = f" ({why})" if why not in ("", before) else ""
        status = f"was {before}{reason}: {again}"
    echo(report["id"])
    echo(f"{report['id']} {status}: {command}", err=True)


def print_status(report: Report) -> None:
    """Print the status of a job, one line per field that has a value."""
    left, peak, took = report["seconds_left"], report["peak_bytes"], report["seconds"]
    fields = {
        **{key: report[key] for key in ("id", "state", "why", "command")},
        "parts": f"{report['parts_done']:,} of {report['parts']:,}"
        if report["parts"] is not None
        else "",
        "progress": _progress(report),
        "rate": _rate(report),
        "left": "" if left is None else format_seconds(left),
        "took": "" if took is None else format_seconds(took),
        "peak memory": format_size(peak) if peak else "",
        **{key: report[key] for key in STATUS},
    }
    print_fields({key: str(value) for key, value in fields.items() if value not in (None, "")})


def print_outcome(report: Report) -> None:
    """Print on stderr the state of a job and its reason, if that says more."""
    why = f": {report['why']}" if report["why"] not in ("", report["state"]) else ""
    echo(f"{report['id']} {report['state']}{why}", err=True)


def summary(report: Report) -> str:
    """Return the figures of the report of a verb in one line."""
    figures = {name: report[name] for name in FIGURES if report.get(name) is not None}
    sizes = {name: format_size(report[name]) for name in ("bytes",) if name in report}
    faults = {"faults": len(report["faults"])} if "faults" in report else {}
    written = {"written": ", ".join(report["written"])} if "written" in report else {}
    fields = {**figures, **faults, **sizes, **written}
    return ", ".join(
        f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in fields.items()
    )


def print_jobs(reports: Sequence[Report]) -> None:
    """Print a table of jobs; a terminal cuts paths and reasons to its width."""
    console = Console()
    print_table(jobs_table(reports, console.width if console.is_terminal else None))


def jobs_table(reports: Sequence[Report], width: int | None = None) -> Table:
    """Return the table of jobs; within ``width`` paths and reasons are cut."""
    rows = [_cells(report) for report in reports]
    names = [
        name
        for name in COLUMNS
        if width is None or name in ("id", "state") or any(row[name] for row in rows)
    ]
    if width is not None:
        _fit_width(rows, names, width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for name in names:
        table.add_column(name, no_wrap=True, overflow="fold")
    for row in rows:
        table.add_row(*(row[name] for name in names))
    return table


def shown_path(path: str) -> str:
    """Return a path relative to this folder or to the home, whichever it is in."""
    for folder, mark in ((Path.cwd(), ""), (Path.home(), f"~{os.sep}")):
        if path.startswith(f"{folder}{os.sep}"):
            return mark + str(Path(path).relative_to(folder))
    return path


def _cells(report: Report) -> dict[str, str]:
    """Return the cells of a job by column."""
    left, took = report["seconds_left"], report["seconds"]
    done, parts, why = report["parts_done"], report["parts"], report["why"]
    cells = (
        report["id"],
        report["state"],
        _progress(report) if parts is None else f"{done:,}/{counted(parts, 'part')}",
        _rate(report) if report["state"] == "running" else "",
        "" if left is None else format_seconds(left),
        format_seconds(report["age_seconds"]),
        "" if took is None else format_seconds(took),
        shown_path(report["target"] or ""),
        "" if why == report["state"] else why.partition(" Fix: ")[0].rstrip("."),
    )
    return dict(zip(COLUMNS, map(printable, cells), strict=True))


def _fit_width(rows: Sequence[dict[str, str]], names: Sequence[str], width: int) -> None:
    """Shorten paths at their beginning and reasons at their end, so that a table fits."""
    widths = {name: max(map(len, [name, *(row[name] for row in rows)])) for name in names}
    fixed = sum(size for name, size in widths.items() if name not in ("target", "why"))
    room = max(2 * LEAST, width - fixed - GAP * len(names))
    target = min(widths.get("target", 0), max(LEAST, room - widths.get("why", 0), room // 2))
    for row in rows:
        path, why = row["target"], row["why"]
        row["target"] = path if len(path) <= target else f"…{path[1 - target :]}"
        reason = max(LEAST, room - target)
        row["why"] = why if len(why) <= reason else f"{why[: reason - 1]}…"


def _progress(report: Report) -> str:
    """Return the units of work that a job has done, and all of them; "" if they are not known."""
    progress = report["progress"]
    return (
        f"{progress['done']:,}/{progress['total']:,} {progress['unit']}"
        if progress and "unit" in progress
        else ""
    )


def _rate(report: Report) -> str:
    """Return the units that a job does per second, "" if they are not known."""
    return f"{report['rate']:,.0f} {report['progress']['unit']}/s" if report["rate"] else ""

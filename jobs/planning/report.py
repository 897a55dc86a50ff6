"""What all plans say: seconds by the number of cores, the age of this process, and the refusal of what is too much."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mercore.jobs.resources.execution import available_cores
from mercore.stores.errors import BudgetError

Report = dict[str, Any]
MORE_CORES = (1, 2, 4, 16, 64)


def process_seconds() -> float:
    """Return how long ago this process began: what loading Python and the libraries took, just after they are."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def times(here: int, wanted: int | None, seconds: Callable[[int], dict[str, float]]) -> list[Report]:
    """Return the seconds on as many cores as the job would use, and on 1, 2, … or those wanted, a mapping each."""
    counts = {here, wanted} if wanted else {here, *MORE_CORES}
    return [
        {
            "cores": count,
            **{name: round(value, 3) for name, value in seconds(count).items()},
            "measured": count <= available_cores() and count in (1, here),
        }
        for count in sorted(counts)
    ]


def refuse_excess(report: Report, memory: int | None) -> None:
    """Refuse what a plan says exceeds the memory that the user named, or the disk.

    Raises
    ------
    BudgetError
        If it does.
    """
    if memory is not None and report["memory"] > memory:
        raise BudgetError(
            f"this would take {_size(report['memory'])} of memory: expected at most {_size(memory)}, as --memory says. "
            "Fix: a larger --memory, fewer --workers or --threads, a smaller --batch, or a smaller model."
        )
    wanted = report["bytes"] - report.get("bytes_there", 0)
    if report.get("free") is not None and wanted > report["free"]:
        raise BudgetError(
            f"this would write {_size(wanted)}: expected at most {_size(report['free'])}, which is free for "
            f"{report['path']}. Fix: free space there, or name a path on another disk."
        )


def tell_plan(report: Report) -> None:
    """Print a plan."""
    for name in ("bytes", "bytes_there", "free", "memory"):
        if report.get(name) is not None:
            click.echo(f"{_WORDS[name]:<24}{_size(report[name])}")
    if "bytes_of" in report:
        shown = ", ".join(f"{name} {_size(size)}" for name, size in report["bytes_of"].items() if size)
        click.echo(f"{'of them':<24}{shown}")
    for name in ("rows", "parts", "parts_left", "passes", "batch"):
        if name in report:
            click.echo(f"{name.replace('_', ' '):<24}{report[name]:,}")
    for each in report["times"]:
        cores = f"on {each['cores']} core" + ("s" if each["cores"] > 1 else "")
        told = ", ".join(f"{_WORDS.get(key, key)}{_time(value)}" for key, value in each.items() if "seconds" in key)
        click.echo(f"{cores:<24}{told}" + ("" if each["measured"] else " (extrapolated)"))
    if "search" in report:
        of = report["search"]
        told = ", ".join(f"{name} {value * 1e3:.3g} ms" for name, value in of["seconds_a_query"].items())
        words = f"k = {of['k']}, batches of {of['batch']}, {of['threads']} threads"
        click.echo(f"{'a query of these codes':<24}{told} ({words})")


_WORDS = {
    "bytes": "bytes on disk",
    "bytes_there": "already there",
    "free": "free there",
    "memory": "memory, at most",
    "seconds": "",
    "seconds_streamed": "streamed ",
    "seconds_resident": "resident ",
}


def _size(count: float) -> str:
    """Return bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3g} TB"


def _time(seconds: float) -> str:
    """Return a time as people read it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"

"""The parts that all plans share: times per number of cores, age of this process, limits."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from mercore.jobs.options import Report
from mercore.jobs.printing import format_size
from mercore.jobs.resources.execution import available_cores
from mercore.stores.errors import BudgetError

MORE_CORES = (1, 2, 4, 16, 64)
BUSY = 1.1  # the slowdown by other processes from which a plan mentions it


def process_seconds() -> float:
    """Return the seconds since this process began.

    Just after the imports, this is the time of loading Python and the libraries.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def times(
    here: int,
    wanted: int | None,
    seconds: Callable[[int], dict[str, float]],
    slowdowns: Mapping[int, float] = MappingProxyType({}),
) -> list[Report]:
    """Return one mapping per number of cores: cores, seconds, and whether they are measured.

    The seconds are those of a machine without other work. Where other processes slowed the
    measurements, ``seconds_busy`` is the time if they go on.

    Parameters
    ----------
    here : the cores that the job would use
    wanted : the cores that the user asks for; None means 1, 2, 4, 16 and 64
    seconds : gives the named times on a number of cores
    slowdowns : the factor by which other processes slow the job on a number of cores
    """
    counts = {here, wanted} if wanted else {here, *MORE_CORES}
    found = []
    for count in sorted(counts):
        named, slowdown = seconds(count), slowdowns.get(count, 1.0)
        if slowdown >= BUSY:
            named["seconds_busy"] = named["seconds"] * slowdown
        entry: Report = {"cores": count}
        entry |= {name: round(value, 3) for name, value in named.items()}
        found.append(entry | {"measured": count <= available_cores() and count in (1, here)})
    return found


def refuse_excess(report: Report, memory: int | None) -> None:
    """Refuse a plan that needs more memory than ``memory``, or more disk than is free.

    Raises
    ------
    BudgetError
        If it needs more.
    """
    if memory is not None and report["memory"] > memory:
        raise BudgetError(
            f"this would take {format_size(report['memory'])} of memory: expected at most "
            f"{format_size(memory)}, as --memory says. Fix: a larger --memory, fewer --workers or "
            "--threads, a smaller --batch, or a smaller model."
        )
    wanted = report["bytes"] - report.get("bytes_there", 0)
    if report.get("free") is not None and wanted > report["free"]:
        raise BudgetError(
            f"this would write {format_size(wanted)}: expected at most "
            f"{format_size(report['free'])}, which is free for {report['path']}. "
            "Fix: free space there, or name a path on another disk."
        )

"""The parts that all plans share: times per number of cores, age of this process, limits."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from mercore.jobs.options import Report
from mercore.jobs.printing import format_size
from mercore.jobs.resources.execution import available_cores
from mercore.stores.errors import BudgetError

MORE_CORES = (1, 2, 4, 16, 64)


def process_seconds() -> float:
    """Return the seconds since this process began.

    Just after the imports, this is the time of loading Python and the libraries.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def times(
    here: int, wanted: int | None, seconds: Callable[[int], dict[str, float]]
) -> list[Report]:
    """Return one mapping per number of cores: cores, seconds, and whether they are measured.

    Parameters
    ----------
    here : the cores that the job would use
    wanted : the cores that the user asks for; None means 1, 2, 4, 16 and 64
    seconds : gives the named times on a number of cores
    """
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

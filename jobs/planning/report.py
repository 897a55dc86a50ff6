"""The parts that all plans share: bytes on disk, times per number of cores, and limits."""

from collections.abc import Callable, Mapping

from mercore.jobs.options import Report
from mercore.jobs.printing import format_size
from mercore.jobs.resources.execution import available_cores
from mercore.stores.errors import BudgetError
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.wording import option

MORE_CORES = (1, 2, 4, 16, 64)
BUSY = 1.1  # the slowdown by other processes from which a plan mentions it


def disk_report(path: Where, sizes: Mapping[str, int]) -> Report:
    """Return the bytes that a store takes, by content, those that are there, and the free bytes."""
    location = location_of(path)
    return {
        "path": path,
        "bytes": sum(sizes.values()),
        "bytes_of": dict(sizes),
        "bytes_there": location.stored_bytes(),
        "free": location.free_bytes(),
    }


def times(
    here: int, wanted: int | None, seconds: Callable[[int], float], slowdown: float = 1.0
) -> list[Report]:
    """Return one mapping per number of cores: cores, seconds, and whether they are measured.

    The seconds are those of a machine without other work. Where other processes slowed the
    measurement, ``seconds_busy`` is the time if they go on.

    Parameters
    ----------
    here : the cores that the job would use
    wanted : the cores that the user asks for; None means 1, 2, 4, 16 and 64
    seconds : gives the time on a number of cores
    slowdown : the factor by which other processes slow the job on the cores that it would use
    """
    found = []
    for count in sorted({here, wanted} if wanted else {here, *MORE_CORES}):
        entry: Report = {"cores": count, "seconds": round(seconds(count), 3)}
        if count == here and slowdown >= BUSY:
            entry["seconds_busy"] = round(seconds(count) * slowdown, 3)
        found.append(entry | {"measured": count == here <= available_cores()})
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
            f"{format_size(memory)}, as {option('memory')} says. Fix: a larger {option('memory')}, "
            f"fewer {option('workers')} or {option('threads')}, a smaller {option('batch')}, or a "
            "smaller model."
        )
    wanted = report["bytes"] - report.get("bytes_there", 0)
    if report.get("free") is not None and wanted > report["free"]:
        raise BudgetError(
            f"this would write {format_size(wanted)}: expected at most "
            f"{format_size(report['free'])}, which is free for {report['path']}. "
            "Fix: free space there, or name a path on another disk."
        )

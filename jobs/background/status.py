"""How jobs stand: state, why, parts, rate, time left, memory; for people and as JSON."""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from mercore.jobs.background.job_spec import shown
from mercore.jobs.background.parts_done import parts_done
from mercore.jobs.background.registry import ENDED, RUNNING, Job, Registry
from mercore.jobs.background.state_folder import State
from mercore.stores.errors import InputError, NotFoundError

STALLED = "stalled"  # running, says the registry, but its process is gone or gives no sign of life
SILENT_SECONDS, START_SECONDS = 60, 5
WAITING = "waiting for "  # how a verb begins to say that another process is at work on its store
TAIL_BYTES = 4096
COLUMNS = ("id", "state", "done", "rate", "left", "target")

Report = dict[str, Any]


def chosen_job(registry: Registry, text: str) -> Job:
    """Return the job whose id is ``text`` or alone begins with it.

    Raises
    ------
    NotFoundError
        If there is none.
    InputError
        If there are several.
    """
    found = registry.find(text)
    if not found:
        raise NotFoundError(f"no job is called {text}: expected an id. Fix: mercore jobs lists them.")
    if len(found) > 1:
        ids = ", ".join(job.id for job in found[:5])
        raise InputError(f"{text} names {len(found)} jobs: {ids} … Fix: write more of the id.")
    return found[0]


def state_of(state: State, job: Job) -> str:
    """Return a job's state; running jobs whose process is gone or silent are stalled."""
    if job.state != RUNNING:
        return job.state
    silent = time.time() - (job.beat or 0)
    gone = silent > START_SECONDS and not state.alive(job.id)
    return STALLED if gone or silent > SILENT_SECONDS else RUNNING


def job_status(state: State, job: Job) -> Report:
    """Return how a job stands."""
    current = state_of(state, job)
    done, total = _parts(job)
    progress = job.progress
    rate = progress["done"] / progress["seconds"] if progress.get("seconds") else None
    left = (progress["total"] - progress["done"]) / rate if rate and current == RUNNING else None
    return {
        "id": job.id,
        "state": current,
        "why": job.why or _why(state, job, current),
        "command": shown(job.words),
        "target": job.target,
        "parts_done": done,
        "parts": total,
        "progress": progress or None,
        "rate": rate and round(rate, 3),
        "seconds_left": left and round(left, 1),
        "peak_bytes": job.peak_bytes or None,
        "runs": job.runs,
        "exit_code": job.exit_code,
        "submitted": _moment(job.submitted),
        "began": _moment(job.began),
        "ended": _moment(job.ended),
        "pid": job.pid,
        "log": str(state.log(job.id)),
        "report": str(state.report(job.id)),
    }


def tell(report: Report) -> None:
    """Print how a job stands, a line a field that says something."""
    lines = {
        "id": report["id"],
        "state": report["state"],
        "why": report["why"],
        "command": report["command"],
        "parts": f"{report['parts_done']:,} of {report['parts']:,}" if report["parts"] is not None else None,
        "progress": _progress(report["progress"]),
        "rate": _rate(report),
        "left": _duration(report["seconds_left"]),
        "peak memory": report["peak_bytes"] and f"{report['peak_bytes'] / 2**20:,.0f} MiB",
        **{key: report[key] for key in ("target", "runs", "exit_code", "submitted", "began", "ended", "log", "report")},
    }
    said = {key: value for key, value in lines.items() if value not in (None, "")}
    width = max(map(len, said))
    for key, value in said.items():
        click.echo(f"{key:<{width}}  {value}")


def table(reports: Sequence[Report]) -> list[str]:
    """Return the lines of a table of jobs."""
    lines = [COLUMNS, *(_cells(report) for report in reports)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def last_line(log: Path) -> str:
    """Return the last line of a log, "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return lines[-1] if lines else ""


def _cells(report: Report) -> tuple[str, ...]:
    if report["parts"] is not None:
        done = f"{report['parts_done']:,}/{report['parts']:,} parts"
    else:
        done = _progress(report["progress"]) or ""
    running = report["state"] == RUNNING
    rate = _rate(report) if running else None
    return (
        report["id"],
        report["state"],
        done,
        rate or "",
        _duration(report["seconds_left"]) or "",
        report["target"] or "",
    )


def _parts(job: Job) -> tuple[int | None, int | None]:
    """Return how many parts are done, and of how many: counted by receipts, or as they were when it ended."""
    if job.state in ENDED:
        return job.progress.get("parts_done"), job.progress.get("parts")
    return parts_done(job) or (None, None)


def _why(state: State, job: Job, current: str) -> str:
    """Return why a job does not go on, if it does not."""
    if current == RUNNING:
        said = last_line(state.log(job.id))
        return said if said.startswith(WAITING) else ""
    if current != STALLED:
        return ""
    if state.alive(job.id):
        return f"its process {job.pid} gives no sign of life. Fix: mercore resume {job.id} kills it and goes on"
    return f"its process is gone without a result. Fix: mercore resume {job.id}"


def _progress(progress: Report | None) -> str | None:
    return f"{progress['done']:,}/{progress['total']:,} {progress['unit']}" if progress and "unit" in progress else None


def _rate(report: Report) -> str | None:
    return report["rate"] and f"{report['rate']:,.0f} {report['progress']['unit']}/s"


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else str(timedelta(seconds=round(seconds)))


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")

"""The status of jobs: state, reason, parts, rate, time left and memory."""

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mercore.jobs.background.job_spec import shown
from mercore.jobs.background.registry import DONE, ENDED, RUNNING, Job, Registry
from mercore.jobs.background.state_folder import StateFolder
from mercore.jobs.face.group import ANSWER_IS_NO
from mercore.stores.errors import InputError, MercoreError, NotFoundError

STALLED = "stalled"  # the registry says running, but the process is gone or its heartbeat stopped
SILENT_SECONDS, START_SECONDS = 60, 5
WAITING = "waiting for "  # the first words of a verb that waits for another process
TAIL_BYTES = 4096

Report = dict[str, Any]


def find_job(registry: Registry, text: str) -> Job:
    """Return the job whose id is ``text``, or the only one whose id begins with it.

    Raises
    ------
    NotFoundError
        If there is none.
    InputError
        If there are several.
    """
    found = registry.find(text)
    if not found:
        raise NotFoundError(
            f"no job is called {text}: expected an id. Fix: mercore jobs lists them."
        )
    if len(found) > 1:
        ids = ", ".join(job.id for job in found[:5])
        raise InputError(f"{text} names {len(found)} jobs: {ids} … Fix: write more of the id.")
    return found[0]


def current_state(folder: StateFolder, job: Job) -> str:
    """Return a job's state: ``STALLED`` if it should run, but its process is gone or silent."""
    if job.state != RUNNING:
        return job.state
    silent = time.time() - (job.heartbeat or 0)
    gone = silent > START_SECONDS and not folder.alive(job.id)
    return STALLED if gone or silent > SILENT_SECONDS else RUNNING


def job_status(folder: StateFolder, job: Job) -> Report:
    """Return the status of a job as a mapping that JSON can hold."""
    current = current_state(folder, job)
    done, total = _parts(job)
    progress = job.progress
    now, began = time.time(), job.began
    has_begun = began is not None and began >= job.submitted  # since it was queued the last time
    rate = progress["done"] / progress["seconds"] if progress.get("seconds") else None
    left = (progress["total"] - progress["done"]) / rate if rate and current == RUNNING else None
    return {
        "id": job.id,
        "state": current,
        "why": job.why or _why(folder, job, current),
        "command": shown(job.words),
        "target": job.target,
        "parts_done": done,
        "parts": total,
        "progress": progress or None,
        "rate": rate and round(rate, 3),
        "seconds_left": left and round(left, 1),
        "peak_bytes": job.peak_bytes or None,
        "age_seconds": round(now - job.submitted, 1),
        "seconds": round((job.ended or now) - (began or now), 3) if has_begun else None,
        "runs": job.runs,
        "exit_code": job.exit_code,
        "submitted": _iso_time(job.submitted),
        "began": _iso_time(job.began),
        "ended": _iso_time(job.ended),
        "pid": job.pid,
        "log": str(folder.log(job.id)),
        "report": str(folder.report(job.id)),
    }


def parts_done(job: Job) -> tuple[int, int] | None:
    """Return the numbers of done parts and of all parts of the store that a job writes.

    None if the job writes no parts, or its store cannot be read.
    """
    if job.verb not in ("encode", "index") or job.target is None:
        return None
    from mercore.stores.location.resolve import location_of

    try:
        store = location_of(job.target)
        header = json.loads((store / "zarr.json").read())
        layout: dict[str, Any] = header["attributes"]["mercore"]["layout"]
        parts = -(-layout["rows"] // layout["part_rows"])
        size_of = store.sizes()
        return sum(size_of(f"receipts/c/{part}/0") is not None for part in range(parts)), parts
    except (MercoreError, ValueError, KeyError, TypeError):  # no store yet, or a foreign one
        return None


def is_there(target: str | None) -> bool:
    """Return whether a target exists; one on an object store is not asked for."""
    return target is None or "://" in target or Path(target).exists()


def last_line(log: Path) -> str:
    """Return the last line of a log, "" if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return lines[-1] if lines else ""


def _parts(job: Job) -> tuple[int | None, int | None]:
    """Return the numbers of done and of all parts: now, or at the end of an ended job.

    No part is done if the store is gone.
    """
    if job.state in ENDED:
        parts = job.progress.get("parts")
        gone = parts is not None and not is_there(job.target)
        return 0 if gone else job.progress.get("parts_done"), parts
    return parts_done(job) or (None, None)


def _why(folder: StateFolder, job: Job, current: str) -> str:
    """Return why a job makes no progress, or that its answer is no; else ""."""
    if current == DONE:
        return "the answer is no" if job.exit_code == ANSWER_IS_NO else ""
    if current == RUNNING:
        line = last_line(folder.log(job.id))
        return line if line.startswith(WAITING) else ""
    if current != STALLED:
        return ""
    fix = f"Fix: mercore resume {job.id}"
    if folder.alive(job.id):
        return f"its process {job.pid} gives no sign of life. {fix} kills it and goes on"
    return f"its process is gone without a result. {fix}"


def _iso_time(seconds: float | None) -> str | None:
    return (
        None
        if seconds is None
        else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    )

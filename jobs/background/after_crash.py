"""Runs after a crash: outputs that the killed run has published are taken as its own."""

from pathlib import Path
from typing import Any

from mercore.jobs.background.registry import Job
from mercore.jobs.face.declaring import VERBS

Report = dict[str, Any]

CLOCK_SECONDS = 1.0  # a file system may round times


def finished_report(job: Job) -> Report | None:
    """Return the report of an ingest whose killed run published its store, or None.

    The path was free when the job was queued, so a store that is newer than the job is its own.
    """
    if job.verb != "ingest" or not job.crashes or not _published(job, "zarr.json"):
        return None
    from mercore.jobs.verbs.info import describe_vectors
    from mercore.stores.errors import MercoreError
    from mercore.stores.vectors import open_vector_store

    try:
        return describe_vectors(open_vector_store(str(job.target)))
    except MercoreError:
        return None


def words_of_run(job: Job) -> list[str]:
    """Return the command line of the next run; it replaces files that a killed run published."""
    verb, *words = job.words
    replaces = VERBS[verb].replaces and job.crashes and _published(job)
    return [verb, "--json", *(["--force"] * bool(replaces)), *words]


def _published(job: Job, file: str = "") -> bool:
    """Return whether the target, or a file in it, was written after the job was queued."""
    if job.target is None or "://" in job.target:
        return False
    try:
        written = Path(job.target, file).stat().st_mtime
    except OSError:
        return False
    return written >= job.submitted - CLOCK_SECONDS

"""Forget jobs that have ended: their entries in the registry, and their logs and reports."""

import time
from functools import partial

from mercore.jobs.background.registry import ENDED, Registry
from mercore.jobs.background.state_folder import StateFolder

DAY_SECONDS = 86400


def prune_jobs(folder: StateFolder, registry: Registry, days: float = 0) -> list[str]:
    """Forget the jobs that ended at least ``days`` ago; return their ids."""
    limit = time.time() - days * DAY_SECONDS
    return [
        job.id
        for job in registry.jobs(*ENDED)
        if (job.ended or job.submitted) <= limit
        and not folder.alive(job.id)  # it has yet to write the end of its log
        and registry.forget(job.id, partial(folder.remove_folder, job.id))
    ]

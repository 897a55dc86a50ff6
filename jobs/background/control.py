"""Cancel and resume jobs: signals to their processes, and states in the registry."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from mercore.jobs.background.registry import (
    CANCELLED,
    ENDED,
    FAILED,
    QUEUED,
    RUNNING,
    Job,
    JobSpec,
    Registry,
)
from mercore.jobs.background.runner import start_runner
from mercore.jobs.background.state_folder import StateFolder
from mercore.jobs.background.status import current_state, is_there, parts_done
from mercore.stores.errors import FormatError, InputError

GRACE_SECONDS = 10  # from Ctrl-C to kill -9
POLL_SECONDS = 0.05
CLOCK_SECONDS = 60  # a clock that is set back makes a process seem older than its job


def cancel_jobs(folder: StateFolder, registry: Registry, jobs: Sequence[Job]) -> list[Job]:
    """Cancel jobs, and the queued jobs that wait for their output; return all of them.

    Raises
    ------
    InputError
        If one has ended already.
    """
    for job in jobs:
        _refuse_ended(job)
    waiting = [job.id for job in registry.jobs(QUEUED)]
    done = []
    for job in jobs:
        now = registry.find(job.id)[0]
        cancelled_with_source = now.state == CANCELLED
        done.append(now if cancelled_with_source else cancel_job(folder, registry, now))
    named = {job.id for job in jobs}
    others = [registry.find(name)[0] for name in waiting if name not in named]
    with_source = [job for job in others if job.state == CANCELLED]
    for job in with_source:
        folder.note(job.id, f"cancelled: {job.why}")
    return [*done, *with_source]


def cancel_job(folder: StateFolder, registry: Registry, job: Job) -> Job:
    """Cancel a job; return it as it is afterwards.

    A queued job is cancelled at once. A running one gets Ctrl-C, and kill -9 if it does not end.

    Raises
    ------
    InputError
        If it has ended already.
    """
    _refuse_ended(job)
    registry.change(job.id, cancel=1)
    cancelled = {"state": CANCELLED, "why": "cancelled", "ended": time.time(), "pid": None}
    job = registry.change(job.id, when=QUEUED, **cancelled)
    if job.state == RUNNING:
        _end_process(folder, registry, job)
        registry.change(job.id, when=RUNNING, **cancelled)  # a killed process did not write its end
    job = registry.find(job.id)[0]
    if job.state == CANCELLED:
        folder.note(job.id, "cancelled")
    return job


def resume_jobs(
    folder: StateFolder, registry: Registry, jobs: Sequence[Job], stays: Callable[[Job], bool]
) -> list[Job]:
    """Queue jobs again, in this order, that have ended or are stalled; return all of them.

    The process of a stalled job is killed first. A job that ``stays`` as it is is not queued.

    Raises
    ------
    InputError
        If one is queued or running, or a source of it is not finished and not to be finished.
    """
    for job in jobs:
        current = current_state(folder, job)
        if current in (QUEUED, RUNNING):
            raise InputError(
                f"{job.id} is {current}: expected a job that has ended or is stalled. "
                "Fix: mercore jobs"
            )
    for job in jobs:
        if job.state == RUNNING:
            _kill(folder, job, _process_of(folder, job))
            registry.change(job.id, when=RUNNING, state=QUEUED, pid=None)
        elif not stays(job):
            _refuse_unfinished_sources(registry, job)
            registry.submit(
                job.id, JobSpec(job.verb, job.options, job.words, job.target, job.sources)
            )
    start_runner(folder)
    return [registry.find(job.id)[0] for job in jobs]


def _refuse_unfinished_sources(registry: Registry, job: Job) -> None:
    """Refuse a job if another one that writes a source of it has to be resumed first."""
    awaited = {each.target for each in registry.jobs(QUEUED, RUNNING)}
    for source in registry.jobs(FAILED, CANCELLED):
        if source.target in awaited or source.target not in job.sources or source.id == job.id:
            continue
        done, parts = parts_done(source) or (int(is_there(source.target)), 1)
        if done < parts:
            raise InputError(
                f"{source.target} is not finished: {source.id}, which writes it, is "
                f"{source.state}. Fix: mercore resume {source.id} {job.id}"
            )


def _refuse_ended(job: Job) -> None:
    if job.state in ENDED:
        raise InputError(
            f"{job.id} is {job.state}: expected a job that is queued or running. Fix: mercore jobs"
        )


def _end_process(folder: StateFolder, registry: Registry, job: Job) -> None:
    """Send Ctrl-C to a job's process, then kill it if it does not end; return when it is gone."""
    give_up = time.monotonic() + GRACE_SECONDS
    asked = False
    while folder.alive(job.id):
        job = registry.find(job.id)[0]
        process = _process_of(folder, job)
        if process and not asked:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGINT)
            asked = True
        if time.monotonic() > give_up:
            _kill(folder, job, process)
            return
        time.sleep(POLL_SECONDS)


def _kill(folder: StateFolder, job: Job, process: psutil.Process | None) -> None:
    """Kill a job's process and its children; return when the process is gone."""
    while process:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
        process = _holder(folder, job)


def _process_of(folder: StateFolder, job: Job) -> psutil.Process | None:
    """Return the process of a job; None before it begins to work, and once it is gone.

    Raises
    ------
    FormatError
        If the job lives, but the registry names another process.
    """
    process = _holder(folder, job)
    if process is None and job.pid is not None and folder.alive(job.id):
        lock = folder.lock(job.id)
        raise FormatError(
            f"the registry says that {job.id} is process {job.pid}: expected the one that keeps "
            f"{lock} locked. No signal was sent. Fix: end the process that fuser {lock} names."
        )
    return process


def _holder(folder: StateFolder, job: Job) -> psutil.Process | None:
    """Return the process that the registry names, if it has the job's lock and is not older."""
    lock = str(folder.lock(job.id).resolve())
    if job.pid is None or job.pid <= 1:
        return None
    with suppress(psutil.Error):
        process = psutil.Process(job.pid)
        is_older = process.create_time() < (job.began or 0) - CLOCK_SECONDS
        if not is_older and lock in [file.path for file in process.open_files()]:
            return process
    return None

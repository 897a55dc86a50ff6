"""The runner: a detached process that runs the queued jobs, at most one per state folder."""

import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from logging.handlers import RotatingFileHandler

from mercore.jobs.background.registry import CANCELLED, FAILED, QUEUED, RUNNING, Job, Registry
from mercore.jobs.background.state_folder import FOLDER, StateFolder, open_state, state_folder
from mercore.jobs.background.status import parts_done
from mercore.stores.errors import MercoreError
from mercore.stores.location.file_lock import held, take

CONCURRENT = "concurrent"  # the setting: the number of jobs that run at once
INSIDE = "MERCORE_JOB"  # the environment variable of a job's process, which starts no runner
POLL_SECONDS = 0.2
MAX_CRASHES = 3  # in a row, without a new part between them
LOG_BYTES = 1 << 20


def start_runner(folder: StateFolder) -> None:
    """Start a detached runner if jobs are queued or running and no runner lives."""
    if held(folder.runner_lock):
        return
    registry = folder.registry()
    work = registry.jobs(QUEUED, RUNNING)
    registry.close()
    if work:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "mercore.jobs.background.runner"],
            env={**os.environ, FOLDER: str(folder.path)},
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def start_runner_quietly() -> None:
    """Start a runner if a crash or a reboot left work, as every verb does; errors stop no verb."""
    if INSIDE not in os.environ and state_folder().is_dir():
        with suppress(MercoreError, OSError):
            start_runner(open_state())


def drain(folder: StateFolder) -> bool:
    """Run queued jobs until none is left; return False at once if another runner lives.

    Jobs that a dead runner started are looked after, too.

    Raises
    ------
    MercoreError
        If the registry cannot be used.
    """
    lock = take(folder.runner_lock)
    if lock is None:
        return False
    registry, log = folder.registry(), _log(folder)
    log.info("runner %d began", os.getpid())
    children: list[subprocess.Popen[bytes]] = []
    while True:
        children = [child for child in children if child.poll() is None]
        running = recover(folder, registry, log)
        while running < registry.setting(CONCURRENT, 1) and (job := registry.claim()):
            child = _start(folder, job)
            if child is None:
                registry.change(job.id, state=QUEUED, runs=job.runs - 1)
                break
            log.info("%s began: run %d, process %d", job.id, job.runs, child.pid)
            children.append(child)
            running += 1
        with registry.transaction():  # nobody can queue a job between the last poll and the unlock
            if not registry.jobs(QUEUED, RUNNING):
                os.close(lock)
                break
        time.sleep(POLL_SECONDS)
    log.info("runner %d ended: nothing is queued", os.getpid())
    registry.close()
    return True


def recover(folder: StateFolder, registry: Registry, log: logging.Logger) -> int:
    """Mark running jobs dead whose process is gone; return the number of jobs that live."""
    living = 0
    for job in registry.jobs(RUNNING):
        if folder.alive(job.id):
            living += 1
        else:
            after = mark_dead(registry, job)
            log.info("%s: its process is gone: %s", job.id, after.state)
            again = "it is started again" if after.state == QUEUED else f"it is {after.state}"
            folder.note(job.id, f"run {job.runs}: its process died: {again}")
    return living


def mark_dead(registry: Registry, job: Job) -> Job:
    """Queue a job again whose process died, in its old position; return it.

    The job fails instead after ``MAX_CRASHES`` crashes in a row without a new part between them.
    """
    done = (parts_done(job) or (0, 0))[0]
    crashes = 1 if done > job.reached else job.crashes + 1
    now = time.time()
    after: dict[str, object]
    if job.cancel:
        after = {"state": CANCELLED, "why": "cancelled", "ended": now}
    elif crashes < MAX_CRASHES:
        after = {"state": QUEUED, "crashes": crashes, "reached": done}
    else:
        why = (
            f"its process died {crashes} times without a result or a new part: killed, "
            f"or out of memory? Fix: mercore logs {job.id}, then mercore resume {job.id}"
        )
        after = {"state": FAILED, "why": why, "ended": now, "crashes": crashes}
    return registry.change(job.id, when=RUNNING, pid=None, **after)


def _start(folder: StateFolder, job: Job) -> "subprocess.Popen[bytes] | None":
    """Start a job's process, which has the job's lock from the first moment and outlives this one.

    None if the process of the previous run is not quite gone, although its end is in the registry.
    """
    folder.make_folder(job.id)
    lock = take(folder.lock(job.id))
    if lock is None:
        return None
    with folder.log(job.id).open("ab") as log, folder.report(job.id).open("wb") as report:
        child = subprocess.Popen(  # noqa: S603 - our own module, an id of ours
            [sys.executable, "-P", "-m", "mercore.jobs.job_process", job.id, str(lock)],
            env={**os.environ, FOLDER: str(folder.path), INSIDE: job.id},
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=report,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock],
        )
    os.close(lock)
    return child


def _log(folder: StateFolder) -> logging.Logger:
    """Return the log of runners, which is rotated when it grows long."""
    logger = logging.Logger("mercore runner", logging.INFO)
    handler = RotatingFileHandler(folder.runner_log, maxBytes=LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return logger


def main() -> None:
    """Drain the queue; an error that stops the runner goes to its log."""
    folder = open_state()
    try:
        drain(folder)
    except Exception:
        _log(folder).exception("runner %d failed", os.getpid())
        raise


if __name__ == "__main__":
    main()

"""The runner: drains the queue of jobs, detached from any terminal; one a state folder, whoever starts it."""

import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from logging.handlers import RotatingFileHandler

from mercore.jobs.background.parts_done import parts_done
from mercore.jobs.background.registry import CANCELLED, FAILED, QUEUED, RUNNING, Job, Registry
from mercore.jobs.background.state_folder import FOLDER, State, open_state, state_folder
from mercore.stores.errors import MercoreError
from mercore.stores.location.file_lock import held, take

CONCURRENT = "concurrent"  # the setting: how many jobs run at once
INSIDE = "MERCORE_JOB"  # the environment of a job's process: it starts no runner
LOOK_SECONDS = 0.2
MOST_DEATHS = 3  # in a row, without a part done between them
LOG_BYTES = 1 << 20


def wake(state: State) -> None:
    """Start a runner, detached, if there is work and none runs."""
    if held(state.runner_lock):
        return
    registry = state.registry()
    work = registry.jobs(QUEUED, RUNNING)
    registry.close()
    if work:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "mercore.jobs.background.runner"],
            env={**os.environ, FOLDER: str(state.folder)},
            cwd=state.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def wake_quietly() -> None:
    """Start a runner if work is left from before a crash or a reboot; whatever is wrong there stops no other verb."""
    if INSIDE not in os.environ and state_folder().is_dir():
        with suppress(MercoreError, OSError):
            wake(open_state())


def drain(state: State) -> bool:
    """Run queued jobs until none is left, and look after those that a dead runner left; False if another runs.

    Raises
    ------
    MercoreError
        If the registry cannot be used.
    """
    lock = take(state.runner_lock)
    if lock is None:
        return False
    registry, log = state.registry(), _log(state)
    log.info("runner %d began", os.getpid())
    children: list[subprocess.Popen[bytes]] = []
    while True:
        children = [child for child in children if child.poll() is None]
        running = settle(state, registry, log)
        while running < registry.setting(CONCURRENT, 1) and (job := registry.claim()):
            child = _start(state, job)
            if child is None:
                registry.change(job.id, state=QUEUED, runs=job.runs - 1)
                break
            log.info("%s began: run %d, process %d", job.id, job.runs, child.pid)
            children.append(child)
            running += 1
        with registry.transaction():  # nobody can queue a job between the last look and the lock's end
            if not registry.jobs(QUEUED, RUNNING):
                os.close(lock)
                break
        time.sleep(LOOK_SECONDS)
    log.info("runner %d ended: nothing is queued", os.getpid())
    registry.close()
    return True


def settle(state: State, registry: Registry, log: logging.Logger) -> int:
    """Queue the jobs again whose process died without a result; return how many live."""
    living = 0
    for job in registry.jobs(RUNNING):
        if state.alive(job.id):
            living += 1
        else:
            after = bury(registry, job)
            log.info("%s: its process is gone: %s", job.id, after.state)
    return living


def bury(registry: Registry, job: Job) -> Job:
    """Queue a job whose process died again, in its old place; fail it if that keeps happening before a part is done."""
    done = (parts_done(job) or (0, 0))[0]
    deaths = 1 if done > job.reached else job.deaths + 1
    if job.cancel:
        return registry.change(job.id, when=RUNNING, state=CANCELLED, why="cancelled", ended=time.time(), pid=None)
    if deaths < MOST_DEATHS:
        return registry.change(job.id, when=RUNNING, state=QUEUED, deaths=deaths, reached=done, pid=None)
    why = (
        f"its process died {deaths} times without a result or a new part: killed, or out of memory? "
        f"Fix: mercore logs {job.id}, then mercore resume {job.id}"
    )
    return registry.change(job.id, when=RUNNING, state=FAILED, why=why, ended=time.time(), deaths=deaths, pid=None)


def _start(state: State, job: Job) -> "subprocess.Popen[bytes] | None":
    """Start a job's process, which holds the job's lock from the first moment and outlives this one.

    None if the process of the run before, whose end is in the registry, is not quite gone.
    """
    state.make_folder(job.id)
    lock = take(state.lock(job.id))
    if lock is None:
        return None
    with state.log(job.id).open("ab") as log, state.report(job.id).open("wb") as report:
        child = subprocess.Popen(  # noqa: S603 - our own module, an id of ours
            [sys.executable, "-P", "-m", "mercore.jobs.job_process", job.id, str(lock)],
            env={**os.environ, FOLDER: str(state.folder), INSIDE: job.id},
            cwd=state.folder,
            stdin=subprocess.DEVNULL,
            stdout=report,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock],
        )
    os.close(lock)
    return child


def _log(state: State) -> logging.Logger:
    """Return the log of runners, which is cut when it grows long."""
    logger = logging.Logger("mercore runner", logging.INFO)
    handler = RotatingFileHandler(state.runner_log, maxBytes=LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return logger


def main() -> None:
    """Drain the queue; what stops the runner goes to its log."""
    state = open_state()
    try:
        drain(state)
    except Exception:
        _log(state).exception("runner %d failed", os.getpid())
        raise


if __name__ == "__main__":
    main()

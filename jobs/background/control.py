"""Cancel and resume jobs: signals to their processes, states in the registry."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from mercore.jobs.background.registry import CANCELLED, ENDED, QUEUED, RUNNING, Job, Registry
from mercore.jobs.background.runner import wake
from mercore.jobs.background.state_folder import State
from mercore.jobs.background.status import STALLED, state_of
from mercore.stores.errors import InputError

POLITE_SECONDS, LOOK_SECONDS = 10, 0.05


def cancel_job(state: State, registry: Registry, job: Job) -> Job:
    """Cancel a job: a queued one at once, a running one by Ctrl-C, and by kill -9 if it does not end.

    Raises
    ------
    InputError
        If it has ended already.
    """
    if job.state in ENDED:
        raise InputError(f"{job.id} is {job.state}: expected a job that is queued or running. Fix: mercore jobs")
    registry.change(job.id, cancel=1)
    gone = {"state": CANCELLED, "why": "cancelled", "ended": time.time(), "pid": None}
    job = registry.change(job.id, when=QUEUED, **gone)
    if job.state == RUNNING:
        _end_process(state, registry, job)
        registry.change(job.id, when=RUNNING, **gone)  # if it was killed, it could not say so itself
    return registry.find(job.id)[0]


def resume_job(state: State, registry: Registry, job: Job) -> Job:
    """Queue a job again that has ended or is stalled; one whose process gives no sign of life is killed first.

    Raises
    ------
    InputError
        If it is queued or running.
    """
    current = state_of(state, job)
    if current in (QUEUED, RUNNING):
        raise InputError(f"{job.id} is {current}: expected a job that has ended or is stalled. Fix: mercore jobs")
    if current == STALLED:
        _kill(state, job)
        registry.change(job.id, when=RUNNING, state=QUEUED, pid=None)
    else:
        registry.submit(
            job.id, {name: getattr(job, name) for name in ("verb", "options", "words", "target", "sources")}
        )
    wake(state)
    return registry.find(job.id)[0]


def _end_process(state: State, registry: Registry, job: Job) -> None:
    """Ask a running job's process to end, and make it end; return when it is gone."""
    give_up = time.monotonic() + POLITE_SECONDS
    asked = False
    while state.alive(job.id):
        pid = registry.find(job.id)[0].pid  # none until the process has begun to work
        if pid and not asked:
            _signal(state, job, pid, signal.SIGINT)
            asked = True
        if time.monotonic() > give_up:
            _kill(state, registry.find(job.id)[0])
            return
        time.sleep(LOOK_SECONDS)


def _kill(state: State, job: Job) -> None:
    """Kill a job's process and all that it started; return when it is gone."""
    while state.alive(job.id) and job.pid:
        _signal(state, job, job.pid, signal.SIGKILL)
        time.sleep(LOOK_SECONDS)


def _signal(state: State, job: Job, pid: int, number: signal.Signals) -> None:
    """Send a signal to a job's process; to its whole group, if it is to be killed."""
    send: Callable[[int, int], None] = os.killpg if number == signal.SIGKILL else os.kill
    with suppress(ProcessLookupError):
        if state.alive(job.id):  # while it lives nobody else has its number
            send(pid, number)

"""Follow jobs: a live table, the lines of a log as they are written, and waiting for the end."""

import time
from collections.abc import Iterator
from contextlib import suppress

from rich.console import Console
from rich.live import Live

from mercore.jobs.background.job_printing import jobs_table
from mercore.jobs.background.registry import ENDED, Job, Registry
from mercore.jobs.background.runner import start_runner
from mercore.jobs.background.state_folder import StateFolder
from mercore.jobs.background.status import STALLED, current_state, job_status

REDRAW_SECONDS, POLL_SECONDS = 1.0, 0.2
TIMED_OUT = 3  # the exit code of ``wait`` at its timeout


def watch_jobs(folder: StateFolder, registry: Registry) -> None:
    """Draw the table of jobs every second until Ctrl-C; the newest ones if not all fit."""
    console = Console(markup=False, emoji=False)
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            start_runner(folder)
            newest = registry.jobs()[-max(1, console.height - 2) :]
            table = jobs_table([job_status(folder, job) for job in newest], console.width)
            live.update(table, refresh=True)
            time.sleep(REDRAW_SECONDS)


def log_lines(
    folder: StateFolder, registry: Registry, job_id: str, *, follow: bool
) -> Iterator[str]:
    """Yield the lines of a job's log; with ``follow``, go on until the job ends."""
    path = folder.log(job_id)
    offset, rest = 0, ""
    while True:
        ended = not follow or registry.find(job_id)[0].state in ENDED  # asked before the last read
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(offset)
            data = file.read()
            offset += len(data)
            *lines, rest = (rest + data.decode(errors="replace")).split("\n")
            yield from lines
        if ended:
            break
        time.sleep(POLL_SECONDS)
    if rest:
        yield rest


def wait_for(
    folder: StateFolder, registry: Registry, job_id: str, give_up: float | None
) -> tuple[Job, int]:
    """Wait until a job ends; return it and its exit code, or ``TIMED_OUT``.

    Parameters
    ----------
    give_up : the moment of the monotonic clock at which to give up, or None
    """
    while (job := registry.find(job_id)[0]).state not in ENDED:
        if give_up is not None and time.monotonic() > give_up:
            return job, TIMED_OUT
        if current_state(folder, job) == STALLED:
            start_runner(folder)
        time.sleep(POLL_SECONDS)
    return job, 1 if job.exit_code is None else job.exit_code

"""Watch jobs: a live table, a log that is followed, and the wait for an end."""

import time
from collections.abc import Iterator
from contextlib import suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mercore.jobs.background.registry import ENDED, Job, Registry
from mercore.jobs.background.runner import wake
from mercore.jobs.background.state_folder import State
from mercore.jobs.background.status import STALLED, job_status, state_of, table

REDRAW_SECONDS, LOOK_SECONDS = 1.0, 0.2
GAVE_UP = 3  # wait's exit code at its timeout


def watch_jobs(state: State, registry: Registry) -> None:
    """Draw the table of jobs every second until Ctrl-C; the newest where not all fit."""
    console = Console()
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            wake(state)
            fitting = registry.jobs()[-max(1, console.height - 2) :]
            live.update(Text("\n".join(table([job_status(state, job) for job in fitting]))), refresh=True)
            time.sleep(REDRAW_SECONDS)


def log_lines(state: State, registry: Registry, job_id: str, *, follow: bool) -> Iterator[str]:
    """Yield the lines of a job's log; with ``follow`` until the job ends."""
    path = state.log(job_id)
    offset, rest = 0, ""
    while True:
        ended = not follow or registry.find(job_id)[0].state in ENDED  # looked at before the last read
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(offset)
            data = file.read()
            offset += len(data)
            *lines, rest = (rest + data.decode(errors="replace")).split("\n")
            yield from lines
        if ended:
            break
        time.sleep(LOOK_SECONDS)
    if rest:
        yield rest


def wait_for(state: State, registry: Registry, job_id: str, timeout: float | None) -> tuple[Job, int]:
    """Wait until a job ends; return it and the exit code to end with, ``GAVE_UP`` if it had not ended by then."""
    give_up = time.monotonic() + timeout if timeout is not None else None
    while (job := registry.find(job_id)[0]).state not in ENDED:
        if give_up is not None and time.monotonic() > give_up:
            return job, GAVE_UP
        if state_of(state, job) == STALLED:
            wake(state)
        time.sleep(LOOK_SECONDS)
    return job, 1 if job.exit_code is None else job.exit_code

"""The process of one job: runs its verb as a command line does; keeps the registry up to date."""

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from mercore.jobs.background.after_crash import finished_report, words_of_run
from mercore.jobs.background.job_printing import summary
from mercore.jobs.background.job_spec import shown
from mercore.jobs.background.memory import peak_bytes
from mercore.jobs.background.registry import CANCELLED, DONE, FAILED, Job
from mercore.jobs.background.state_folder import StateFolder, open_state
from mercore.jobs.background.status import parts_done
from mercore.jobs.cli import main
from mercore.jobs.face.group import INTERRUPTED
from mercore.jobs.options import echo_json
from mercore.jobs.printing import format_seconds
from mercore.jobs.progress import LISTENER
from mercore.stores.errors import MercoreError

HEARTBEAT_SECONDS, LOOK_SECONDS = 1.0, 0.25
PREFIX = "mercore: "  # the first word of an error on stderr


class Heartbeat:
    """A thread that writes to the registry every second that the job lives, and its progress."""

    def __init__(self, folder: StateFolder, job: str) -> None:
        self._folder, self._job = folder, job
        self._progress: dict[str, Any] = {}
        self._end = threading.Event()
        self._peak = 0
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def listen(self, progress: dict[str, Any]) -> None:
        """Take the mapping in which the verb keeps its progress from now on."""
        self._progress = progress

    def measured(self) -> dict[str, Any]:
        """Return the progress of the job, if any, and the peak memory of it and its children."""
        self._peak = max(self._peak, peak_bytes(os.getpid()))
        return {"peak_bytes": self._peak, "progress": dict(self._progress)}

    def _run(self) -> None:
        registry, beat = self._folder.registry(), time.monotonic()
        while not self._end.wait(LOOK_SECONDS):
            self._peak = max(self._peak, peak_bytes(os.getpid()))
            if time.monotonic() < beat + HEARTBEAT_SECONDS:
                continue
            beat = time.monotonic()
            with suppress(MercoreError):  # a full disk may have space again before the job ends
                registry.change(self._job, heartbeat=time.time(), **self.measured())
        registry.close()


def run(folder: StateFolder, job_id: str) -> int:
    """Run a job's verb in this process; return its exit code.

    Raises
    ------
    MercoreError
        If the registry cannot be used.
    """
    registry = folder.registry()
    job = registry.change(job_id, pid=os.getpid(), heartbeat=time.time())
    folder.note(job_id, f"run {job.runs} began: {shown(job.words)}")
    offset = folder.log(job_id).stat().st_size
    with Heartbeat(folder, job_id) as heartbeat:
        LISTENER.set(heartbeat.listen)
        code = _run_verb(job)
    sys.stdout.flush()
    sys.stderr.flush()
    (job,) = registry.find(job_id)  # as it is now: perhaps it is to be cancelled
    state, why = _outcome(folder, job, code, _text_from(folder.log(job_id), offset))
    folder.note(job_id, _end_of_run(folder, job, state, code))
    folder.sync_report(job_id)
    measured, now = heartbeat.measured(), time.time()
    if parts := parts_done(job):
        measured["progress"] |= {"parts_done": parts[0], "parts": parts[1]}
    registry.change(
        job_id,
        state=state,
        why=why,
        exit_code=code,
        ended=now,
        heartbeat=now,
        pid=None,
        crashes=0,
        cancel=0,
        **measured,
    )
    return code


def reason(said: str, code: int) -> str:
    """Return why a run failed: the last error of mercore in its log, else the last line."""
    lines = [line for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)]
    return (errors or lines or [f"it ended with exit code {code} and said nothing"])[-1]


def _outcome(folder: StateFolder, job: Job, code: int, said: str) -> tuple[str, str]:
    """Return the last state of a run, and why: done if it printed a report, whatever its code."""
    if _is_report(folder.report(job.id)):
        return DONE, ""
    return (CANCELLED, "cancelled") if job.cancel else (FAILED, reason(said, code))


def _end_of_run(folder: StateFolder, job: Job, state: str, code: int) -> str:
    """Return the last line of a run in its log: how it ended, when, and its figures."""
    took = format_seconds(time.time() - (job.began or time.time()))
    figures = summary(json.loads(folder.report(job.id).read_bytes())) if state == DONE else ""
    return f"run {job.runs} {state} after {took}, exit code {code}{f': {figures}' * bool(figures)}"


def _run_verb(job: Job) -> int:
    """Run the command line of a job; return its exit code."""
    try:
        finished = finished_report(job)
        if finished is not None:
            click.echo(
                "the killed run had published the whole store: nothing is left to do", err=True
            )
            echo_json(finished)
            return 0
        main(words_of_run(job), prog_name="mercore")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:  # noqa: BLE001 - any defect ends the job, but its end must still be written
        import traceback

        traceback.print_exc()
        return 1
    return 0


def _is_report(path: Path) -> bool:
    """Return whether a file holds a complete JSON text: a verb prints one at its end."""
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def _text_from(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read().decode(errors="replace")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background shells ignore it
    os.set_inheritable(int(sys.argv[2]), False)  # its children may live longer than the lock
    sys.exit(run(open_state(), sys.argv[1]))

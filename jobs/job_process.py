"""The process of one job: runs its verb as the command line would, and tells the registry how it goes and ends."""

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from mercore.jobs.background.parts_done import parts_done
from mercore.jobs.background.registry import CANCELLED, DONE, FAILED, Job, Registry
from mercore.jobs.background.state_folder import State, open_state
from mercore.jobs.cli import INTERRUPTED, main
from mercore.jobs.progress import FILE
from mercore.stores.errors import MercoreError

BEAT_SECONDS = 1.0
PREFIX = "mercore: "  # of the one paragraph that an error is


class Pulse:
    """A thread that tells the registry every moment that a job lives, how far it is, and what it takes."""

    def __init__(self, state: State, job: str) -> None:
        self._state, self._job = state, job
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _beat(self) -> None:
        registry = self._state.registry()
        while not self._end.wait(BEAT_SECONDS):
            with suppress(MercoreError):  # a full disk may be mended before the job ends
                registry.change(self._job, beat=time.time(), **measured(self._state, self._job))
        registry.close()


def run(state: State, job_id: str) -> int:
    """Run a job's verb in this process; return its exit code.

    Raises
    ------
    MercoreError
        If the registry cannot be used.
    """
    registry = state.registry()
    state.progress(job_id).unlink(missing_ok=True)
    job = registry.change(job_id, pid=os.getpid(), beat=time.time())
    said = state.log(job_id).stat().st_size
    os.environ[FILE] = str(state.progress(job_id))
    with Pulse(state, job_id):
        code = _run_verb(job)
    sys.stdout.flush()
    sys.stderr.flush()
    end(registry, state, job_id, code, _text_from(state.log(job_id), said))
    return code


def end(registry: Registry, state: State, job_id: str, code: int, said: str) -> None:
    """Write down how a run ended; a verb whose answer is no has a result all the same."""
    (job,) = registry.find(job_id)
    columns = measured(state, job_id)
    parts = parts_done(job)
    if parts:
        columns["progress"] = columns.get("progress", {}) | {"parts_done": parts[0], "parts": parts[1]}
    if _is_report(state.report(job_id)):
        ended, why = DONE, ""
    elif job.cancel:
        ended, why = CANCELLED, "cancelled"
    else:
        ended, why = FAILED, reason(said, code)
    now = time.time()
    registry.change(
        job_id, state=ended, why=why, exit_code=code, ended=now, beat=now, pid=None, deaths=0, cancel=0, **columns
    )


def measured(state: State, job_id: str) -> dict[str, Any]:
    """Return how far a job says it is, and the most memory that this process has taken."""
    columns: dict[str, Any] = {"peak_bytes": _peak_bytes()}
    with suppress(FileNotFoundError):  # until the verb begins to count
        columns["progress"] = json.loads(state.progress(job_id).read_bytes())
    return columns


def reason(said: str, code: int) -> str:
    """Return why a run failed, as its log has it: the last thing that mercore said, or the last line of all."""
    lines = [line for line in said.splitlines() if line.strip()]
    custom = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)]
    return (custom or lines or [f"it ended with exit code {code} and said nothing"])[-1]


def _run_verb(job: Job) -> int:
    """Run the command line of a job, as in a shell."""
    verb, *words = job.words
    try:
        main([verb, "--json", *words], prog_name="mercore")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:  # noqa: BLE001 - whatever a defect raises ends the job, not what writes that down
        import traceback

        traceback.print_exc()
        return 1
    return 0


def _peak_bytes() -> int:
    """Return the most resident memory that this process has had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def _is_report(path: Path) -> bool:
    """Return whether a verb printed its whole report."""
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
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background work with it ignored
    os.set_inheritable(int(sys.argv[2]), False)  # the lock is this process's: its children may outlive it
    sys.exit(run(open_state(), sys.argv[1]))

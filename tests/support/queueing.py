"""Submit jobs by the real command, and find, stop and kill the processes that run them."""

import json
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from mercore.jobs.background.state_folder import FOLDER, StateFolder
from tests.support.running import Outcome, run, split_words


def until(true: Callable[[], Any], seconds: float = 120) -> Any:
    """Look until something is true, and return it; nothing in so long fails the test."""
    give_up = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < give_up
        time.sleep(0.005)
    return found


class Queue:
    """A state folder of its own, and the processes that belong to it."""

    def __init__(self, folder: Path) -> None:
        self.state = StateFolder(folder / "state")
        self.folder = folder
        self.environment = {FOLDER: str(self.state.path)}

    def run(self, *words: object) -> Outcome:
        """Run the real command on this queue, in the folder that holds the data."""
        return run(*words, env=self.environment, cwd=self.folder)

    def succeed(self, *words: object) -> str:
        """Run the real command on this queue and return its stdout; it must succeed."""
        outcome = self.run(*words)
        assert outcome.code == 0, outcome.err
        return outcome.out

    def submit(self, *words: object) -> str:
        """Submit a job and return its id."""
        return self.succeed("submit", *split_words(words)).strip()

    def status(self, job: str) -> dict[str, Any]:
        """Return the status of a job."""
        report: dict[str, Any] = json.loads(self.succeed("status", job, "--json"))
        return report

    def wait(self, job: str) -> dict[str, Any]:
        """Wait until a job ends; return its status."""
        report: dict[str, Any] = json.loads(self.run("wait", job, "--json").out)
        return report

    def runners(self) -> list[psutil.Process]:
        """Return the living runners."""
        return self._processes("mercore.jobs.background.runner")

    def workers(self) -> list[psutil.Process]:
        """Return the living processes of jobs."""
        return self._processes("mercore.jobs.job_process")

    def kill(self) -> None:
        """Kill -9 every process at one moment, as when the machine goes down."""
        while processes := self.runners() + self.workers():
            kill(*processes)

    def _processes(self, module: str) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                belongs = module in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
                if belongs and process.environ().get(FOLDER) == str(self.state.path):
                    found.append(process)
        return found


def kill(*processes: psutil.Process) -> None:
    """Kill -9 processes, and return when they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(processes, timeout=30)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE], gone

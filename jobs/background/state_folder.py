"""The state folder: where the registry of jobs lies, and beside it what each job says."""

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_state_path

from mercore.jobs.background.registry import Registry
from mercore.stores.errors import StorageError
from mercore.stores.location.file_lock import held
from mercore.stores.location.publish import storage_errors

FOLDER = "MERCORE_STATE"  # the environment's name for another state folder
PRIVATE = 0o700


@dataclass(frozen=True)
class State:
    """The paths of a state folder, which is its owner's alone."""

    folder: Path

    @property
    def runner_lock(self) -> Path:
        """What the runner holds for as long as it lives."""
        return self.folder / "runner.lock"

    @property
    def runner_log(self) -> Path:
        """What runners did."""
        return self.folder / "runner.log"

    def log(self, job: str) -> Path:
        """Return the file of what a job's runs wrote to stderr."""
        return self.folder / "jobs" / job / "log"

    def report(self, job: str) -> Path:
        """Return the file of what the last run of a job wrote to stdout: a JSON object once it is done."""
        return self.folder / "jobs" / job / "report.json"

    def progress(self, job: str) -> Path:
        """Return the file in which the run of a job says how far it is."""
        return self.folder / "jobs" / job / "progress.json"

    def lock(self, job: str) -> Path:
        """Return what the process of a job holds for as long as it lives."""
        return self.folder / "jobs" / job / "lock"

    def make_folder(self, job: str) -> None:
        """Make a job's folder."""
        folder = self.lock(job).parent
        with storage_errors("write", folder):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)

    def alive(self, job: str) -> bool:
        """Return whether a job's process lives."""
        return held(self.lock(job))

    def registry(self) -> Registry:
        """Open the registry."""
        return Registry(self.folder / "registry.sqlite")


def state_folder() -> Path:
    """Return where the state lies or would lie."""
    return (
        Path(os.environ[FOLDER]).absolute() if os.environ.get(FOLDER) else user_state_path("mercore", appauthor=False)
    )


def open_state() -> State:
    """Return the state folder, made if it is not there.

    Raises
    ------
    StorageError
        If it cannot be made, is another user's, or others can look into it.
    """
    folder = state_folder()
    with storage_errors("write", folder):
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        status = folder.stat()
    if status.st_uid != os.getuid():
        raise StorageError(
            f"{folder} belongs to user {status.st_uid}: expected {os.getuid()}, who you are. "
            f"Fix: name a folder of your own with {FOLDER}."
        )
    if status.st_mode & 0o077:
        raise StorageError(
            f"{folder} is open to others: found mode {status.st_mode & 0o777:o}, expected {PRIVATE:o}. "
            f"Fix: chmod {PRIVATE:o} {folder}"
        )
    return State(folder)

"""The state folder: the registry of jobs, and a folder per job with its log, report and lock."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from platformdirs import user_state_path

from mercore.jobs.background.registry import Registry
from mercore.stores.errors import StorageError
from mercore.stores.location.file_lock import held
from mercore.stores.location.publish import storage_errors, sync_folder

FOLDER = "MERCORE_STATE"  # the environment variable that names another state folder
PRIVATE = 0o700


@dataclass(frozen=True)
class StateFolder:
    """The paths in a state folder, which nobody but its owner can read."""

    path: Path

    @property
    def runner_lock(self) -> Path:
        """The file that the runner keeps locked while it lives."""
        return self.path / "runner.lock"

    @property
    def runner_log(self) -> Path:
        """The log of all runners."""
        return self.path / "runner.log"

    @property
    def registry_file(self) -> Path:
        """The SQLite file of the registry."""
        return self.path / "registry.sqlite"

    def log(self, job: str) -> Path:
        """Return the path of the log of a job: the stderr of all its runs."""
        return self.path / "jobs" / job / "log"

    def report(self, job: str) -> Path:
        """Return the path of the stdout of a job's last run: a JSON object once the job is done."""
        return self.path / "jobs" / job / "report.json"

    def lock(self, job: str) -> Path:
        """Return the path of the file that the process of a job keeps locked while it lives."""
        return self.path / "jobs" / job / "lock"

    def make_folder(self, job: str) -> None:
        """Make a job's folder if it does not exist."""
        folder = self.lock(job).parent
        with storage_errors("write", folder):
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)

    def note(self, job: str, text: str) -> None:
        """Append a line with the time to the log of a job, unless the disk is full."""
        with suppress(OSError), self.log(job).open("a") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")

    def sync_report(self, job: str) -> None:
        """Make the report of a job survive a power cut, as the registry does."""
        report = self.report(job)
        with storage_errors("write", report):
            with report.open("rb") as file:
                os.fsync(file.fileno())
            for folder in report.parents[:3]:  # of the job, of all jobs, and the state folder
                sync_folder(folder)

    def remove_folder(self, job: str) -> None:
        """Remove the folder of a job."""
        folder = self.lock(job).parent
        with storage_errors("remove", folder):
            if folder.is_dir():
                shutil.rmtree(folder)

    def alive(self, job: str) -> bool:
        """Return whether a job's process lives."""
        return held(self.lock(job))

    def registry(self) -> Registry:
        """Open the registry."""
        return Registry(self.registry_file)


def state_folder() -> Path:
    """Return the path of the state folder, whether or not it exists."""
    named = os.environ.get(FOLDER)
    return Path(named).absolute() if named else user_state_path("mercore", appauthor=False)


def open_state() -> StateFolder:
    """Return the state folder; make it if it does not exist.

    Raises
    ------
    StorageError
        If it cannot be made, is another user's, or is open to others.
    """
    folder = state_folder()
    with storage_errors("write", folder):
        if not folder.is_dir():
            folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            sync_folder(folder.parent)  # the registry in it is not lost with it
        status = folder.stat()
    if status.st_uid != os.getuid():
        raise StorageError(
            f"{folder} belongs to user {status.st_uid}: expected {os.getuid()}, who you are. "
            f"Fix: name a folder of your own with {FOLDER}."
        )
    if status.st_mode & 0o077:
        raise StorageError(
            f"{folder} is open to others: found mode {status.st_mode & 0o777:o}, "
            f"expected {PRIVATE:o}. Fix: chmod {PRIVATE:o} {folder}"
        )
    return StateFolder(folder)

"""The registry of jobs: specs, states and progress in SQLite, shared by many processes."""

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin

from mercore.stores.errors import ExistsError, FormatError, StorageError

VERSION = 1
BUSY_SECONDS = 30  # to wait for the transaction of another process
QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
ENDED = (DONE, FAILED, CANCELLED)

TABLES = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    place INTEGER NOT NULL,
    verb TEXT NOT NULL,
    options TEXT NOT NULL,
    words TEXT NOT NULL,
    target TEXT,
    sources TEXT NOT NULL,
    state TEXT NOT NULL,
    why TEXT NOT NULL DEFAULT '',
    submitted REAL NOT NULL,
    began REAL,
    ended REAL,
    beat REAL,
    pid INTEGER,
    runs INTEGER NOT NULL DEFAULT 0,
    deaths INTEGER NOT NULL DEFAULT 0,
    reached INTEGER NOT NULL DEFAULT 0,
    cancel INTEGER NOT NULL DEFAULT 0,
    exit_code INTEGER,
    progress TEXT NOT NULL DEFAULT '{}',
    peak_bytes INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, place);
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


LATEST = 253402300799  # 9999-12-31, the last day that datetime knows
BAR, PARTS = {"unit", "total", "done", "seconds"}, {"parts", "parts_done"}  # of a progress
# Fields with another name on disk.
COLUMNS = {"position": "place", "heartbeat": "beat", "crashes": "deaths"}


class JobSpec(NamedTuple):
    """What a job does: a verb with its options, its command line, and the paths of its files."""

    verb: str
    options: dict[str, Any]
    words: list[str]
    target: str | None
    sources: list[str]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of the registry; times are in seconds since 1970.

    ``position`` is its rank in the queue. ``sources`` are the paths that it reads, ``target`` is
    the path that it writes. ``progress`` is the progress of its last run. ``crashes`` counts the
    runs in a row whose process died without a result and without new parts; ``reached`` is the
    number of parts at the last of them.
    """

    id: str
    position: int
    verb: str
    options: dict[str, Any]
    words: list[str]
    target: str | None
    sources: list[str]
    state: str
    why: str
    submitted: float
    began: float | None
    ended: float | None
    heartbeat: float | None
    pid: int | None
    runs: int
    crashes: int
    reached: int
    cancel: bool
    exit_code: int | None
    progress: dict[str, Any]
    peak_bytes: int


class Registry:
    """The jobs of one state folder: every change is an SQLite transaction and survives a power cut.

    Raises
    ------
    FormatError
        If the file is not a registry, or is of another format version.
    StorageError
        If the operating system or SQLite refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._errors():
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._make()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def submit(
        self,
        job_id: str,
        spec: JobSpec,
        *,
        checked: float = LATEST,
        check: Callable[[], None] = lambda: None,
    ) -> tuple[Job, Job | None]:
        """Queue a job behind all others, unless it is already queued or running.

        Parameters
        ----------
        checked : when the paths of the job were looked at
        check : looks at them again, if a job that writes one of them has ended since

        Returns
        -------
        tuple
            The job, and the job as it was before, or None if it is new.

        Raises
        ------
        ExistsError
            If another job that is queued or running writes the same path.
        """
        with self.transaction():
            before = self._find(job_id)
            if before is None or before.state in ENDED:
                self._refuse_same_target(job_id, spec)
                paths = {spec.target, *spec.sources} - {None}
                if any(job.target in paths for job in self._select("ended >= ?", checked)):
                    check()
                self._write_job(job_id, spec)
            after = self._find(job_id)
        assert after is not None
        return after, before

    def claim(self) -> Job | None:
        """Set the next job to running; return it, or None if there is none.

        It is the first queued job whose sources no earlier job has yet to write.
        """
        with self.transaction():
            waiting = self._select("state IN (?, ?)", QUEUED, RUNNING)
            unfinished: set[str | None] = set()
            for job in waiting:
                if job.state == QUEUED and unfinished.isdisjoint(job.sources):
                    now = time.time()
                    return self._change(
                        job.id,
                        state=RUNNING,
                        runs=job.runs + 1,
                        began=now,
                        heartbeat=now,
                        why="",
                        ended=None,
                        progress={},
                    )
                unfinished.add(job.target)
        return None

    def change(self, job_id: str, *, when: str | None = None, **values: Any) -> Job:  # noqa: ANN401 - the fields' types
        """Set fields of a job if ``when`` is None or its state; return the job.

        If it is cancelled, so are the queued jobs that wait for its output.
        """
        with self.transaction():
            job = self._find(job_id)
            assert job is not None, job_id
            if when not in (None, job.state):
                return job
            job = self._change(job_id, **values)
            if values.get("state") == CANCELLED:
                self._cancel_waiting(job)
            return job

    def forget(self, job_id: str, remove: Callable[[], None]) -> bool:
        """Delete a job that has ended, and ``remove`` its files; return whether it was there."""
        with self.transaction():
            job = self._find(job_id)
            if job is None or job.state not in ENDED:
                return False
            remove()
            self._connection.execute("DELETE FROM jobs WHERE id = ?", [job_id])
        return True

    def jobs(self, *states: str) -> list[Job]:
        """Return the jobs in some states, or all without any, in the order of the queue."""
        with self._errors():
            return (
                self._select(f"state IN ({', '.join('?' * len(states))})", *states)
                if states
                else self._select("1")
            )

    def find(self, text: str) -> list[Job]:
        """Return the job whose id is ``text``, alone; else all whose id begins with it."""
        with self._errors():
            job = self._find(text)
            return [job] if job else self._select("substr(id, 1, ?) = ?", len(text), text)

    def setting(self, name: str, default: int) -> int:
        """Return a setting of all runners, a number."""
        with (
            self._errors(),
            closing(
                self._connection.execute("SELECT value FROM settings WHERE name = ?", [name])
            ) as rows,
        ):
            row = rows.fetchone()
        if row is not None and not re.fullmatch("[0-9]{1,9}", str(row["value"])):
            raise self._damaged(f"the setting {name} is {row['value']!r}")
        return default if row is None else int(row["value"])

    def set(self, name: str, value: int) -> None:
        """Change a setting of all runners."""
        with self.transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO settings VALUES (?, ?)", [name, str(value)]
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the write lock for the ``with`` block; undo its changes if it raises."""
        with self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _refuse_same_target(self, job_id: str, spec: JobSpec) -> None:
        """Refuse a job whose output another one writes, unless it goes on with that output."""
        if spec.target is None or spec.target in spec.sources:
            return
        for job in self._select("state IN (?, ?) AND target = ?", QUEUED, RUNNING, spec.target):
            if job.id != job_id:
                raise ExistsError(
                    f"{spec.target} is the output of {job.id}, which is {job.state}: expected a "
                    f"path that no other job writes. Fix: name another, or mercore cancel {job.id}"
                )

    def _cancel_waiting(self, source: Job) -> None:
        """Cancel the queued jobs that wait for the output of a job, and those that wait for it."""
        for job in self._select("state = ? AND place > ?", QUEUED, source.position):
            if source.target in job.sources:
                why = f"its source {source.id} was cancelled"
                ended = self._change(job.id, state=CANCELLED, why=why, ended=time.time())
                self._cancel_waiting(ended)

    def _write_job(self, job_id: str, spec: JobSpec) -> None:
        """Write a job at the end of the queue; its number of runs stays."""
        (position,) = self._connection.execute(
            "SELECT coalesce(max(place), 0) + 1 FROM jobs"
        ).fetchone()
        columns: dict[str, object] = spec._asdict()
        columns |= {name: json.dumps(columns[name]) for name in ("options", "words", "sources")}
        columns |= {"id": job_id, "place": position, "state": QUEUED, "submitted": time.time()}
        fresh = {"why": "", "ended": None, "exit_code": None, "deaths": 0, "cancel": 0}
        updates = ", ".join(f"{name} = excluded.{name}" for name in (*columns, *fresh))
        columns |= fresh
        self._connection.execute(
            f"INSERT INTO jobs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "  # noqa: S608 - our names
            f"ON CONFLICT (id) DO UPDATE SET {updates}",
            list(columns.values()),
        )

    def _change(self, job_id: str, **values: Any) -> Job:  # noqa: ANN401
        columns = [
            json.dumps(value) if isinstance(value, dict) else value for value in values.values()
        ]
        names = ", ".join(f"{COLUMNS.get(name, name)} = ?" for name in values)
        self._connection.execute(f"UPDATE jobs SET {names} WHERE id = ?", [*columns, job_id])  # noqa: S608 - our names
        job = self._find(job_id)
        assert job is not None
        return job

    def _find(self, job_id: str) -> Job | None:
        return next(iter(self._select("id = ?", job_id)), None)

    def _select(self, where: str, *values: object) -> list[Job]:
        rows = self._connection.execute(f"SELECT * FROM jobs WHERE {where} ORDER BY place", values)  # noqa: S608 - our own
        return [self._job(row) for row in rows.fetchall()]

    def _job(self, row: sqlite3.Row) -> Job:
        """Return the job that a row of the table holds; refuse values that mercore never writes."""
        values = {field.name: row[COLUMNS.get(field.name, field.name)] for field in fields(Job)}
        for name in ("options", "words", "sources", "progress"):
            with suppress(TypeError, ValueError, RecursionError):  # it stays what it is
                values[name] = json.loads(values[name])
        for field in fields(Job):
            value = values[field.name]
            if not _fits(value, int if field.type is bool else field.type):
                raise self._damaged(f"{field.name} of job {values['id']!r} is {value!r}")
        job = Job(**values | {"cancel": bool(values["cancel"])})
        if not re.fullmatch(r"[\w-]+", job.id):  # it names a folder
            raise self._damaged(f"a job is called {job.id!r}")
        if not _is_progress(job.progress):
            raise self._damaged(f"progress of job {job.id!r} is {job.progress!r}")
        return job

    def _damaged(self, what: str) -> FormatError:
        """Return the error that a value is none that mercore writes."""
        return FormatError(
            f"{self.path} is not a registry of jobs: {what}, which mercore never writes. Fix: move "
            "it away."
        )

    def _make(self) -> None:
        """Make the tables if the file has none; refuse a file of another version."""
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with self.transaction():
                if not self._connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    for statement in filter(str.strip, TABLES.split(";")):
                        self._connection.execute(statement)
                    self._connection.execute(f"PRAGMA user_version = {VERSION}")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version != VERSION:
            raise FormatError(
                f"{self.path} is of format version {version}: expected {VERSION}. "
                "Fix: use the version of mercore that made it, or move it away."
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise SQLite's errors as errors of mercore."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StorageError(
                f"cannot use {self.path}: {error}. Fix: free space or grant access there, then "
                "run the same again."
            ) from error
        except sqlite3.DatabaseError as error:
            raise FormatError(
                f"{self.path} is not a registry of jobs: {error}. Fix: move it away."
            ) from error


def _fits(value: object, kind: Any) -> bool:  # noqa: ANN401 - the type of a field
    """Return whether a value has the type of a field; a moment lies before the year 10000."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else [kind]
    if isinstance(value, float) and not 0 <= value <= LATEST:
        return False
    if isinstance(value, list) and not all(isinstance(each, str) for each in value):
        return False
    return isinstance(value, tuple(get_origin(each) or each for each in kinds))


def _is_progress(progress: dict[str, Any]) -> bool:
    """Return whether a progress has all figures of a bar or none, and both numbers of parts."""
    numbers = [progress[name] for name in (BAR | PARTS) - {"unit"} if name in progress]
    return (
        BAR & set(progress) in (BAR, set())
        and PARTS & set(progress) in (PARTS, set())
        and all(isinstance(each, int | float) and 0 <= each < 1e18 for each in numbers)
        and isinstance(progress.get("unit", ""), str)
    )

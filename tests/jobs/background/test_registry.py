"""The registry is an ordered queue and gives each job to one process, however many use it."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mercore.jobs.background.registry import (
    CANCELLED,
    DONE,
    FAILED,
    QUEUED,
    RUNNING,
    JobSpec,
    Registry,
)
from mercore.stores.errors import FormatError, StorageError

SPEC = JobSpec("encode", {"atoms": 8}, ["encode"], None, [])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.sqlite"


def test_jobs_are_claimed_in_order_and_keep_what_they_were_submitted_with(path: Path) -> None:
    registry = Registry(path)
    for name in ("b", "a", "c"):
        job, before = registry.submit(name, SPEC._replace(target=f"/{name}"))
        assert (job.state, before) == (QUEUED, None)
    claimed = [registry.claim() for _ in range(4)]
    assert [job and (job.id, job.state, job.target, job.runs) for job in claimed] == [
        ("b", RUNNING, "/b", 1),
        ("a", RUNNING, "/a", 1),
        ("c", RUNNING, "/c", 1),
        None,
    ]
    assert claimed[0] is not None
    assert (claimed[0].options, claimed[0].words) == (SPEC.options, SPEC.words)


@pytest.mark.promise("A job waits for the jobs that write what it reads")
def test_a_job_waits_for_the_jobs_before_it_that_write_what_it_reads(path: Path) -> None:
    registry = Registry(path)
    registry.submit(
        "reader", SPEC._replace(sources=["/x"])
    )  # before: what it reads is there already
    registry.submit("writer", SPEC._replace(target="/x"))
    registry.submit("waiting", SPEC._replace(sources=["/y", "/x"], target="/z"))
    registry.submit("chained", SPEC._replace(sources=["/z"]))
    registry.submit("free", SPEC)
    names = [job.id if (job := registry.claim()) else None for _ in range(4)]
    assert names == ["reader", "writer", "free", None]
    registry.change("writer", state=FAILED)
    names = [job.id if (job := registry.claim()) else None for _ in range(2)]
    assert names == ["waiting", None]


@pytest.mark.parametrize("state", [DONE, FAILED, CANCELLED])
def test_a_job_that_ended_is_queued_again_behind_the_others(path: Path, state: str) -> None:
    registry = Registry(path)
    registry.submit("old", SPEC)
    registry.claim()
    registry.change("old", state=state, exit_code=1, why="so", crashes=2, cancel=1, peak_bytes=7)
    registry.submit("new", SPEC)
    job, before = registry.submit("old", SPEC._replace(options={"atoms": 8, "workers": 3}))
    assert before is not None
    assert (before.state, before.why) == (state, "so")
    assert (job.state, job.why, job.exit_code, job.crashes, job.cancel, job.runs) == (
        QUEUED,
        "",
        None,
        0,
        False,
        1,
    )
    assert job.options == {"atoms": 8, "workers": 3}
    assert [found.id for found in registry.jobs(QUEUED)] == ["new", "old"]


@pytest.mark.parametrize("claims", [0, 1])
def test_a_job_that_is_queued_or_running_stays_as_it_is(path: Path, claims: int) -> None:
    registry = Registry(path)
    registry.submit("one", SPEC)
    for _ in range(claims):
        registry.claim()
    (before,) = registry.jobs()
    assert registry.submit("one", SPEC._replace(options={"atoms": 9})) == (before, before)


def test_a_change_happens_in_the_state_that_it_is_for(path: Path) -> None:
    registry = Registry(path)
    registry.submit("one", SPEC)
    assert registry.change("one", when=RUNNING, state=DONE).state == QUEUED
    parts = {"parts": 3, "parts_done": 3}
    assert registry.change("one", when=QUEUED, state=DONE, progress=parts).progress == parts


def test_jobs_are_found_by_the_beginning_of_their_ids(path: Path) -> None:
    registry = Registry(path)
    for name in ("encode-12", "encode-1", "search-1"):
        registry.submit(name, SPEC)
    assert [job.id for job in registry.find("encode-1")] == ["encode-1"]
    assert [job.id for job in registry.find("encode")] == ["encode-12", "encode-1"]
    assert registry.find("%") == []


def test_the_columns_on_disk_keep_their_names(path: Path) -> None:
    registry = Registry(path)
    registry.submit("one", SPEC)
    registry.change("one", heartbeat=5.0, crashes=2)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT place, beat, deaths FROM jobs").fetchall() == [(1, 5.0, 2)]
    connection.execute("UPDATE jobs SET place = 7, beat = 8, deaths = 9")
    connection.commit()
    connection.close()
    (job,) = registry.jobs()
    assert (job.position, job.heartbeat, job.crashes) == (7, 8.0, 9)


def test_many_threads_claim_each_job_once(path: Path) -> None:
    Registry(path).close()

    def work(number: int) -> list[str]:
        registry = Registry(path)
        for each in range(10):
            registry.submit(f"{number}-{each}", SPEC)
        found = [job.id for _ in range(15) if (job := registry.claim())]
        registry.close()
        return found

    with ThreadPoolExecutor(8) as pool:
        claimed = sorted(name for names in pool.map(work, range(8)) for name in names)
    assert claimed == sorted(f"{number}-{each}" for number in range(8) for each in range(10))


def test_a_transaction_that_raises_changes_nothing(path: Path) -> None:
    registry = Registry(path)
    registry.submit("one", SPEC)

    def fail() -> None:
        with registry.transaction():
            registry._connection.execute("DELETE FROM jobs")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [job.id for job in registry.jobs()] == ["one"]


def test_settings(path: Path) -> None:
    registry = Registry(path)
    assert registry.setting("concurrent", 1) == 1
    registry.set("concurrent", 3)
    registry.set("concurrent", 2)
    assert Registry(path).setting("concurrent", 1) == 2


def test_what_is_no_registry_is_refused(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(
        FormatError,
        match=r"registry\.sqlite is not a registry of jobs: file is not a database\. Fix: ",
    ):
        Registry(path)
    newer = tmp_path / "newer"
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(
        FormatError, match=r"newer is of format version 2: expected 1\. Fix: use the version"
    ):
        Registry(newer)
    with pytest.raises(
        StorageError, match=r"^cannot use .*nowhere.*: unable to open database file\. Fix: "
    ):
        Registry(tmp_path / "nowhere" / "registry")


DAMAGED = [
    ("pid = 'x'", "pid of job 'one' is 'x'"),
    ("pid = 1e30", "pid of job 'one' is 1e+30"),
    ("submitted = 1e300", "submitted of job 'one' is 1e+300"),
    ("state = NULL", "state of job 'one' is None"),
    ("sources = 'x'", "sources of job 'one' is 'x'"),
    ("words = '[1]'", "words of job 'one' is [1]"),
    ("options = '[]'", "options of job 'one' is []"),
    ("progress = '{\"done\": 3}'", "progress of job 'one' is {'done': 3}"),
    (
        'progress = \'{"parts": NaN, "parts_done": 1}\'',
        "progress of job 'one' is {'parts': nan, 'parts_done': 1}",
    ),
    ("id = '../..'", "a job is called '../..'"),
]


@pytest.mark.parametrize(("damage", "found"), DAMAGED)
@pytest.mark.promise(
    "A signal goes to no process but the job's own; damaged rows of the registry are refused"
)
def test_values_that_mercore_never_writes_are_refused(path: Path, damage: str, found: str) -> None:
    registry = Registry(path)
    registry.submit("one", SPEC)
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE jobs RENAME TO strict")
    connection.execute("CREATE TABLE jobs AS SELECT * FROM strict")  # which takes any type
    connection.execute(f"UPDATE jobs SET {damage}")  # noqa: S608 - a case of this file
    connection.execute("INSERT INTO settings VALUES ('concurrent', 'x')")
    connection.commit()
    connection.close()
    for what, look in (
        (found, registry.jobs),
        ("the setting concurrent is 'x'", lambda: registry.setting("concurrent", 1)),
    ):
        with pytest.raises(FormatError) as refused:
            look()
        assert str(refused.value) == (
            f"{path} is not a registry of jobs: {what}, which mercore never writes. Fix: move it "
            "away."
        )
    registry.close()

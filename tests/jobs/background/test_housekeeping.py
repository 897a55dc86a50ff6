"""Jobs are cancelled with their source, share no output, are forgotten, and leave a log."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.jobs.background.after_crash import finished_report, words_of_run
from mercore.jobs.background.control import cancel_jobs, resume_jobs
from mercore.jobs.background.job_printing import jobs_table, shown_path, summary
from mercore.jobs.background.memory import peak_bytes
from mercore.jobs.background.prune import prune_jobs
from mercore.jobs.background.registry import CANCELLED, DONE, QUEUED, Job, JobSpec, Registry
from mercore.jobs.background.state_folder import StateFolder
from mercore.jobs.background.status import job_status
from mercore.stores.errors import ExistsError, FormatError, InputError
from mercore.stores.location.file_lock import take
from tests.support.running import histograms, invoke, succeed

SPEC = JobSpec("encode", {}, ["encode"], None, [])


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    (tmp_path / "state").mkdir()
    return StateFolder(tmp_path / "state")


def submitted(registry: Registry, name: str, target: str, *sources: str) -> Job:
    """Queue a job that reads and writes these paths."""
    return registry.submit(name, SPEC._replace(target=target, sources=list(sources)))[0]


def states(registry: Registry) -> dict[str, tuple[str, str]]:
    return {job.id: (job.state, job.why) for job in registry.jobs()}


def test_jobs_that_wait_for_a_cancelled_job_end_with_it(state: StateFolder) -> None:
    registry = state.registry()
    submitted(registry, "before", "/b", "/x")  # it reads what was there
    writer = submitted(registry, "writer", "/x")
    submitted(registry, "reader", "/y", "/x")
    submitted(registry, "chained", "/z", "/y")
    submitted(registry, "other", "/o")
    state.make_folder("reader")
    cancelled = cancel_jobs(state, registry, [writer])
    assert [job.id for job in cancelled] == ["writer", "reader", "chained"]
    assert states(registry) == {
        "before": (QUEUED, ""),
        "writer": (CANCELLED, "cancelled"),
        "reader": (CANCELLED, "its source writer was cancelled"),
        "chained": (CANCELLED, "its source reader was cancelled"),
        "other": (QUEUED, ""),
    }
    assert "cancelled: its source writer was cancelled\n" in state.log("reader").read_text()
    with pytest.raises(InputError, match=r"^reader is cancelled: expected a job that is queued "):
        cancel_jobs(state, registry, registry.find("reader"))


def test_a_job_and_the_one_that_waits_for_it_are_cancelled_together(state: StateFolder) -> None:
    registry = state.registry()
    jobs = [submitted(registry, "writer", "/x"), submitted(registry, "reader", "/y", "/x")]
    assert [job.id for job in cancel_jobs(state, registry, jobs)] == ["writer", "reader"]


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which waits for its stdin to end."""
    words = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, start_new_session=True, **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        yield process
        process.communicate()


@pytest.mark.parametrize("pid", [-1, 0, 1, 2**62, "another", "an older one"])
@pytest.mark.parametrize("stalled", [False, True])
@pytest.mark.promise(
    "A signal goes to no process but the job's own; damaged rows of the registry are refused"
)
def test_no_signal_goes_to_a_process_that_is_not_the_jobs(
    pid: int | str,
    stalled: bool,
    state: StateFolder,
    waiting: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry, sent = state.registry(), []
    submitted(registry, "one", "/x")
    state.make_folder("one")
    lock = take(state.lock("one"))
    assert lock is not None

    def send(number: int, _: int) -> None:
        sent.append(number)
        state.lock("one").unlink()  # now no process has the lock: the caller ends, too

    monkeypatch.setattr(os, "kill", send)
    monkeypatch.setattr(os, "killpg", send)
    registry.claim()
    named = pid if isinstance(pid, int) else waiting.pid
    began = time.time()
    if pid == "an older one":
        named, began = os.getpid(), began + 1000  # this process has the lock
    heartbeat = 0 if stalled else time.time()
    job = registry.change("one", pid=named, began=began, heartbeat=heartbeat)
    resume = partial(resume_jobs, stays=lambda _: False)
    with pytest.raises(FormatError) as refused:
        (resume if stalled else cancel_jobs)(state, registry, [job])
    path = state.lock("one")
    assert str(refused.value) == (
        f"the registry says that one is process {named}: expected the one that keeps {path} "
        f"locked. No signal was sent. Fix: end the process that fuser {path} names."
    )
    assert sent == []
    os.close(lock)


@pytest.mark.promise(
    "A signal goes to no process but the job's own; damaged rows of the registry are refused"
)
def test_a_signal_goes_to_the_process_that_has_the_jobs_lock(state: StateFolder) -> None:
    registry = state.registry()
    submitted(registry, "one", "/x")
    state.make_folder("one")
    lock = take(state.lock("one"))
    assert lock is not None
    began = registry.claim()
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[lock],
        start_new_session=True,  # as a job has one
    ) as process:
        os.close(lock)
        assert process.stdout is not None
        process.stdout.readline()  # before that, a signal can be lost
        job = registry.change("one", pid=process.pid)
        assert began is not None
        assert [each.state for each in cancel_jobs(state, registry, [job])] == [CANCELLED]
        assert process.wait() in (-signal.SIGINT, 1)


@pytest.mark.promise("Two jobs for one path are not queued, however they race")
def test_two_jobs_do_not_write_one_path(state: StateFolder) -> None:
    registry = state.registry()
    submitted(registry, "one", "/x")
    with pytest.raises(ExistsError) as refused:
        submitted(registry, "two", "/x")
    assert str(refused.value) == (
        "/x is the output of one, which is queued: expected a path that no other job writes. "
        "Fix: name another, or mercore cancel one"
    )
    assert [job.id for job in registry.jobs()] == ["one"]
    submitted(registry, "append", "/x", "/x")  # it goes on with what the first one writes
    registry.change("one", state=DONE)
    registry.change("append", state=DONE)
    assert submitted(registry, "two", "/x").state == QUEUED


@pytest.mark.promise(
    "A job that is done stays done if it is resumed, and one without its source names what to resume first"
)
def test_jobs_are_resumed_in_order_behind_what_writes_their_sources(
    state: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercore.jobs.background.control.start_runner", lambda folder: None)
    registry, codes = state.registry(), str(tmp_path / "codes")
    submitted(registry, "reader", "/y", codes)
    submitted(registry, "done", "/z")
    submitted(registry, "writer", codes)
    reader, done, writer = [
        registry.change(name, state=to)
        for name, to in (("reader", CANCELLED), ("done", DONE), ("writer", CANCELLED))
    ]
    for jobs in ([reader], [reader, writer]):
        with pytest.raises(InputError) as refused:
            resume_jobs(state, registry, jobs, lambda _: False)
        assert str(refused.value) == (
            f"{codes} is not finished: writer, which writes it, is cancelled. Fix: mercore resume "
            "writer reader"
        )
    resumed = resume_jobs(state, registry, [writer, done, reader], lambda job: job.id == "done")
    assert [(job.id, job.state) for job in resumed] == [
        ("writer", QUEUED),
        ("done", DONE),
        ("reader", QUEUED),
    ]
    assert [job.id for job in registry.jobs(QUEUED)] == ["writer", "reader"]
    with pytest.raises(InputError, match=r"^writer is queued: expected a job that has ended or "):
        resume_jobs(state, registry, [done, *registry.find("writer")], lambda _: False)
    assert registry.find("done")[0].state == DONE


def test_only_jobs_that_ended_long_ago_are_forgotten(state: StateFolder) -> None:
    registry = state.registry()
    for name, ended in (("old", 9), ("new", 1), ("queued", None)):
        submitted(registry, name, f"/{name}")
        state.make_folder(name)
        state.note(name, "a line")
        if ended is not None:
            registry.change(name, state=DONE, ended=time.time() - ended * 86400)
    assert prune_jobs(state, registry, 7) == ["old"]
    assert [job.id for job in registry.jobs()] == ["new", "queued"]
    assert not state.log("old").parent.exists()
    assert state.log("new").exists()
    assert prune_jobs(state, registry) == ["new"]
    assert not registry.forget("queued", lambda: pytest.fail("it is queued"))


def test_the_list_and_its_verbs_take_what_they_say(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.path.chmod(0o700)
    monkeypatch.setenv("MERCORE_STATE", str(state.path))
    monkeypatch.setattr("mercore.jobs.background.runner.start_runner", lambda folder: None)
    registry = state.registry()
    submitted(registry, "a-1", "/x"), submitted(registry, "b-1", "/y", "/x")
    outcome = invoke("cancel a-1 b")
    assert (outcome.code, outcome.err) == (
        0,
        "a-1 cancelled\nb-1 cancelled: its source a-1 was cancelled\n",
    )
    outcome = invoke("wait a-1 b-1")
    assert outcome.code == 1
    assert invoke("wait").code == 0  # nothing is queued
    assert invoke("jobs --older-than 1").code == 2
    assert invoke("jobs --watch --prune").code == 2
    assert "its source a-1 was cancelled" in invoke("jobs").out
    assert invoke("jobs", "--prune").err == "2 jobs forgotten\n"
    assert len(invoke("jobs").out.splitlines()) == 1


def test_a_job_whose_answer_is_no_says_so(
    state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.path.chmod(0o700)
    monkeypatch.setenv("MERCORE_STATE", str(state.path))
    registry = state.registry()
    for name, code in (("verify-1", 1), ("check-1", 0)):
        registry.submit(name, SPEC)
        registry.change(name, state=DONE, exit_code=code, ended=1.0)
    outcome = invoke("wait verify-1 check-1")
    assert (outcome.code, outcome.err) == (1, "verify-1 done: the answer is no\ncheck-1 done\n")
    assert [line.endswith("the answer is no") for line in invoke("jobs").out.splitlines()] == [
        False,
        True,
        False,
    ]
    assert "why        the answer is no\n" in invoke("status", "verify-1").out


def report(**more: Any) -> dict[str, Any]:
    """The status of a job, as the table takes it."""
    empty = dict.fromkeys(("parts", "parts_done", "progress", "rate", "seconds_left"))
    times = {"age_seconds": 90.0, "seconds": 12.0, "why": "", "target": None}
    return {"id": "encode-0123456789", "state": "failed", **empty, **times, **more}


def test_paths_and_reasons_are_cut_to_the_width_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    long = {"target": "/data/" + "far/" * 30 + "codes.zarr", "why": "no " * 40 + ". Fix: x"}
    table = jobs_table([report(**long)], 80)
    names = [str(column.header) for column in table.columns]
    assert names == ["id", "state", "age", "took", "target", "why"]  # no column is empty
    cells = {
        name: next(iter(column.cells)) for name, column in zip(names, table.columns, strict=True)
    }
    assert str(cells["target"]).startswith("…")
    assert str(cells["target"]).endswith("s.zarr")
    assert str(cells["why"]).endswith("…")
    assert sum(len(str(cell)) + 2 for cell in cells.values()) <= 80
    assert [str(column.header) for column in jobs_table([], 80).columns] == ["id", "state"]
    whole = jobs_table([report(**long)])
    assert long["target"] in [str(next(iter(column.cells))) for column in whole.columns]
    assert shown_path(str(tmp_path / "a/b")) == "a/b"
    assert shown_path("s3://bucket/x") == "s3://bucket/x"


def test_a_summary_has_the_figures_of_a_report() -> None:
    figures = {"rows": 3000, "parts": 60, "bytes": 12_000, "faults": ["x"], "written": ["a", "b"]}
    expected = "rows 3,000, parts 60, faults 1, bytes 12 kB, written a, b"
    assert summary({**figures, "verdicts": [], "seconds": 1}) == expected


def test_no_part_of_a_store_that_is_gone_is_done(state: StateFolder, tmp_path: Path) -> None:
    registry = state.registry()
    codes = tmp_path / "codes"
    codes.mkdir()
    submitted(registry, "encode-1", str(codes))
    registry.change("encode-1", state=DONE, progress={"parts": 5, "parts_done": 5}, ended=1.0)
    (job,) = registry.jobs()
    assert (job_status(state, job)["parts_done"], job_status(state, job)["parts"]) == (5, 5)
    codes.rmdir()
    assert (job_status(state, job)["parts_done"], job_status(state, job)["parts"]) == (0, 5)


def test_an_ingest_that_was_killed_after_it_published_is_done(
    state: StateFolder, tmp_path: Path
) -> None:
    np.save(tmp_path / "rows.npy", histograms(50, 8, seed=1))
    registry = state.registry()
    registry.submit(
        "ingest-1", JobSpec("ingest", {}, ["ingest", "--", "r", "s"], str(tmp_path / "s"), [])
    )
    killed = registry.change("ingest-1", crashes=1)
    assert finished_report(killed) is None
    succeed(f"ingest {tmp_path}/rows.npy {tmp_path}/s")
    made = finished_report(killed)
    assert made is not None
    assert made["rows"] == 50
    assert finished_report(registry.change("ingest-1", crashes=0)) is None
    old = time.time() - 100
    os.utime(tmp_path / "s/zarr.json", (old, old))  # a store that is older than the job
    assert finished_report(registry.change("ingest-1", crashes=1)) is None


def test_a_search_replaces_what_its_killed_run_wrote(state: StateFolder, tmp_path: Path) -> None:
    registry, hits = state.registry(), tmp_path / "hits.npz"
    words = ["search", "--out", str(hits), "--", "codes", "q.npy"]
    registry.submit("search-1", JobSpec("search", {}, words, str(hits), []))
    killed = registry.change("search-1", crashes=1)
    assert words_of_run(killed) == ["search", "--json", *words[1:]]
    hits.touch()
    assert words_of_run(killed) == ["search", "--json", "--force", *words[1:]]
    assert "--force" not in words_of_run(registry.change("search-1", crashes=0, state=DONE))
    words = ["report", "--out", str(hits), "--", "codes"]
    registry.submit("report-1", JobSpec("report", {}, words, str(hits), []))
    killed = registry.change("report-1", crashes=1)
    assert words_of_run(killed) == ["report", "--json", "--force", *words[1:]]


def test_the_memory_of_children_counts() -> None:
    waiting = "import sys; held = bytearray(60 << 20); print(flush=True); sys.stdin.read()"
    alone = peak_bytes(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert peak_bytes(os.getpid()) >= alone + (60 << 20)
        child.communicate()
    assert peak_bytes(child.pid) == 0

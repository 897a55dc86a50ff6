"""Jobs are queued by a command and run by themselves, whatever happens to other processes."""

import json
import os
import pty
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.support.queueing import Queue, kill, until
from tests.support.running import (
    ENCODE,
    command,
    count_receipts,
    files_of,
    histograms,
    start,
    succeed,
)

PARTS, PART_ROWS = 1000, 3
OPTIONS = (*ENCODE, "--part-rows", PART_ROWS)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def undisturbed(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the store that an undisturbed encode in the foreground writes."""
    store = tmp_path_factory.mktemp("undisturbed") / "codes"
    succeed(f"encode {vectors} {store}", *OPTIONS)
    return files_of(store)


def wait_for_receipts(store: Path, count: int) -> None:
    """Wait until more than ``count`` parts have a receipt."""
    until(lambda: count_receipts(store) > count)


def submit_what_fails(vectors: Path, queue: Queue) -> str:
    """Submit a check of a store that is removed before the check begins; return its id."""
    (queue.folder / "copy").symlink_to(vectors)
    queue.submit(f"encode {vectors} first", *OPTIONS)
    job = queue.submit("check", "copy")
    (queue.folder / "copy").unlink()
    return job


@pytest.mark.promise("A job waits for the jobs that write what it reads")
def test_a_chain_of_jobs_runs_by_itself_each_after_what_it_reads(data: Path, queue: Queue) -> None:
    np.save(queue.folder / "base.npy", histograms(500, 24, seed=1))
    (queue.folder / "queries.npy").symlink_to(data / "queries.npy")
    ingest = queue.submit("--concurrent 3 ingest base.npy vectors")
    encode = queue.submit("encode vectors codes", *ENCODE)
    search = queue.submit("search codes queries.npy -k 3 --rerank 9 --out hits.npz")
    assert queue.run("wait", search).code == 0
    reports = [queue.status(job) for job in (ingest, encode, search)]
    assert [(report["state"], report["exit_code"], report["runs"]) for report in reports] == [
        ("done", 0, 1)
    ] * 3
    assert (reports[1]["parts_done"], reports[1]["parts"]) == (1, 1)
    assert (reports[1]["progress"]["done"], reports[1]["progress"]["total"]) == (500, 500)
    assert all(report["peak_bytes"] > 50 << 20 for report in reports)
    assert reports[0]["ended"] <= reports[1]["began"]
    succeed(
        f"search {queue.folder}/codes {queue.folder}/queries.npy -k 3 --rerank 9 "
        f"--out {queue.folder}/here.npz"
    )
    with np.load(queue.folder / "hits.npz") as there, np.load(queue.folder / "here.npz") as here:
        assert {name: there[name].tolist() for name in there} == {
            name: here[name].tolist() for name in here
        }
    report = json.loads(Path(reports[2]["report"]).read_text())
    assert report["queries"] == 12
    assert queue.state.path.stat().st_mode & 0o777 == 0o700
    until(lambda: not queue.runners())
    again = queue.run("submit ingest base.npy vectors")
    assert (again.code, again.out.strip()) == (0, ingest)
    assert again.err.startswith(f"{ingest} done already: nothing was queued again: mercore ingest ")


@pytest.mark.promise("The same spec is the same job, and submitting it again resumes it")
def test_the_same_spec_is_the_same_job_and_submitting_it_again_mends_its_store(
    vectors: Path, undisturbed: dict[str, bytes], queue: Queue
) -> None:
    job = queue.submit(f"encode {vectors} codes", *OPTIONS)
    assert queue.wait(job)["state"] == "done"
    assert files_of(queue.folder / "codes") == undisturbed
    (queue.folder / "codes/atoms/c/7/0").write_bytes(b"damaged")
    again = queue.run(
        f"submit encode {vectors} {queue.folder}/codes",
        *OPTIONS,
        "--workers",
        1,
        "--memory",
        "8GiB",
    )
    assert (again.code, again.out.strip()) == (0, job)
    assert again.err.startswith(
        f"{job} was done: is checked, and what is missing or wrong done again: mercore encode "
    )
    report = queue.wait(job)
    assert (report["state"], report["runs"]) == ("done", 2)
    assert "doing part 7 again: codes: part 7" in queue.succeed("logs", job).replace(
        f"{queue.folder}/", ""
    )
    assert json.loads(Path(report["report"]).read_text())["parts_done_now"] == 1
    assert files_of(queue.folder / "codes") == undisturbed
    other = queue.run(f"submit encode {vectors} codes", *ENCODE, "--part-rows", 20)
    assert (other.code, other.out) == (2, "")
    assert "is another store: it differs in part_rows (3, not 20)" in other.err


@pytest.mark.promise("Jobs survive the terminal and the runner")
def test_a_job_outlives_its_terminal_and_its_runner(
    vectors: Path, undisturbed: dict[str, bytes], queue: Queue
) -> None:
    words = command(f"submit encode {vectors} codes", *OPTIONS, "--workers", 1)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(queue.folder)
        os.execve(words[0], words, {**os.environ, **queue.environment})  # noqa: S606 - the command under test
    os.waitpid(process, 0)
    store = queue.folder / "codes"
    wait_for_receipts(store, 3)
    os.close(terminal)
    kill(*queue.runners())
    (worker,) = queue.workers()
    job = json.loads(queue.succeed("jobs", "--json"))[0]
    assert (job["state"], job["pid"]) == ("running", worker.pid)
    assert queue.wait(job["id"])["state"] == "done"
    assert queue.status(job["id"])["runs"] == 1
    assert files_of(store) == undisturbed


@pytest.mark.promise(
    "A killed job's process is started again; after three crashes the job fails and says why"
)
def test_a_killed_process_is_started_again_by_the_living_runner(
    vectors: Path, undisturbed: dict[str, bytes], queue: Queue
) -> None:
    job = queue.submit(f"encode {vectors} codes", *OPTIONS, "--workers", 1)
    for parts in (20, 60, 100):  # as often as would fail it, had it done nothing between
        wait_for_receipts(queue.folder / "codes", parts)
        kill(*queue.workers())
    report = queue.wait(job)
    assert (report["state"], report["runs"]) == ("done", 4)
    log = queue.succeed("logs", job)
    for run in (1, 2, 3):
        assert f" run {run}: its process died: it is started again\n" in log
    assert re.search(r" run 4 done after .*, exit code 0: rows 3,000, parts 1,000, ", log)
    assert files_of(queue.folder / "codes") == undisturbed


@pytest.mark.promise("After a reboot the next command goes on with the queue")
def test_after_a_reboot_one_command_goes_on_with_the_queue(
    vectors: Path, undisturbed: dict[str, bytes], queue: Queue
) -> None:
    jobs = [
        queue.submit(f"encode {vectors} codes{seed}", *OPTIONS, "--random-state", seed)
        for seed in range(2)
    ]
    wait_for_receipts(queue.folder / "codes0", 10)
    queue.kill()
    with queue.state.registry().transaction():
        pass  # the file is whole
    states = {
        report["id"]: report["state"] for report in json.loads(queue.succeed("jobs", "--json"))
    }
    assert list(states) == jobs
    assert states[jobs[0]] in (
        "running",
        "stalled",
        "queued",
    )  # the last for a moment, before it is claimed
    assert states[jobs[1]] == "queued"
    registry = queue.state.registry()
    until(lambda: all(job.state == "done" for job in registry.jobs()))  # no command is asked again
    assert files_of(queue.folder / "codes0") == undisturbed


@pytest.mark.promise("A cancelled job keeps its parts, and `resume` does the others")
def test_cancel_and_resume(vectors: Path, undisturbed: dict[str, bytes], queue: Queue) -> None:
    first = queue.submit(f"encode {vectors} codes", *OPTIONS, "--workers", 1)
    second = queue.submit(f"encode {vectors} codes2", *OPTIONS, "--random-state", 2)
    queue.succeed("cancel", second)
    wait_for_receipts(queue.folder / "codes", 10)
    assert json.loads(queue.succeed(f"cancel {first} --json"))["state"] == "cancelled"
    done = count_receipts(queue.folder / "codes")
    assert 10 < done < PARTS
    assert [queue.status(job)["why"] for job in (first, second)] == ["cancelled"] * 2
    assert queue.run("wait", first).code == 130
    assert not queue.workers()
    refused = queue.run("cancel", first)
    assert refused.code == 2
    assert refused.err == (
        f"mercore: {first} is cancelled: expected a job that is queued or running. Fix: mercore "
        "jobs\n"
    )
    queue.succeed("resume", first)
    report = queue.wait(first)
    assert (report["state"], report["parts_done"], report["runs"]) == ("done", PARTS, 2)
    assert json.loads(Path(report["report"]).read_text())["parts_done_now"] == PARTS - done
    assert files_of(queue.folder / "codes") == undisturbed
    assert not (queue.folder / "codes2").exists()


def test_what_waits_for_a_cancelled_job_ends_with_it(
    vectors: Path, data: Path, queue: Queue
) -> None:
    (queue.folder / "queries.npy").symlink_to(data / "queries.npy")
    encode = queue.submit(f"encode {vectors} codes", *OPTIONS, "--workers", 1)
    search = queue.submit("search codes queries.npy -k 3 --out hits.npz")
    wait_for_receipts(queue.folder / "codes", 10)
    outcome = queue.run("cancel", encode)
    assert outcome.err == (
        f"{encode} cancelled\n{search} cancelled: its source {encode} was cancelled\n"
    )
    queue.succeed(f"resume {encode} {search}")
    assert queue.run(f"wait {encode} {search}").code == 0
    assert queue.succeed("info", "hits.npz") == "hits  12 queries × 3, ids and scores\n"
    queue.succeed("jobs", "--prune")
    assert json.loads(queue.succeed("jobs", "--json")) == []


def test_an_ingest_that_is_killed_once_its_store_is_there_is_done(queue: Queue) -> None:
    np.save(queue.folder / "base.npy", histograms(2000, 24, seed=1))
    job = queue.submit("ingest base.npy vectors")
    until((queue.folder / "vectors/zarr.json").exists)
    kill(*queue.workers())
    assert queue.wait(job)["state"] == "done"


def test_the_memory_of_processes_counts(vectors: Path, queue: Queue) -> None:
    alone = queue.submit(f"encode {vectors} one", *OPTIONS)
    shared = queue.submit(f"encode {vectors} two", *OPTIONS, "--processes", 2)
    queue.succeed(f"wait {alone} {shared}")
    peaks = [queue.status(job)["peak_bytes"] for job in (alone, shared)]
    assert peaks[1] > peaks[0] + (150 << 20)  # two interpreters more


@pytest.mark.promise("`resume` kills a stalled process first")
def test_a_stopped_process_is_stalled_and_resume_kills_it(
    vectors: Path, undisturbed: dict[str, bytes], queue: Queue
) -> None:
    job = queue.submit(f"encode {vectors} codes", *OPTIONS, "--workers", 1)
    wait_for_receipts(queue.folder / "codes", 10)
    (worker,) = queue.workers()
    worker.send_signal(signal.SIGSTOP)
    refused = queue.run("resume", job)
    assert (
        refused.code,
        "is running: expected a job that has ended or is stalled" in refused.err,
    ) == (2, True)
    queue.state.registry().change(job, heartbeat=0)  # as after a minute of silence
    report = queue.status(job)
    assert report["state"] == "stalled"
    assert report["why"].startswith(f"its process {worker.pid} gives no sign of life.")
    queue.succeed("resume", job)
    assert queue.wait(job)["state"] == "done"
    assert files_of(queue.folder / "codes") == undisturbed


@pytest.mark.promise(
    "A killed job's process is started again; after three crashes the job fails and says why"
)
def test_a_job_whose_process_keeps_dying_fails_and_says_why(data: Path, queue: Queue) -> None:
    rows = np.lib.format.open_memmap(
        str(queue.folder / "rows.npy"), mode="w+", dtype=np.uint8, shape=(400_000, 128)
    )
    rows[:] = 1
    job = queue.submit("ingest rows.npy vectors")
    for _ in range(3):
        kill(*until(queue.workers))
    report = queue.wait(job)
    assert (report["state"], report["runs"], report["exit_code"]) == ("failed", 3, None)
    assert report["why"].startswith(
        "its process died 3 times without a result or a new part: killed, or out of memory?"
    )
    assert not (queue.folder / "vectors").exists()


@pytest.mark.promise("`wait` exits with the job's own exit code, or with 3")
def test_wait_ends_with_the_jobs_own_exit_code(vectors: Path, data: Path, queue: Queue) -> None:
    (queue.folder / "queries.npy").symlink_to(data / "queries.npy")
    np.savez(queue.folder / "wrong.npz", ids=np.zeros((12, 1), np.int64), scores=np.zeros((12, 1)))
    verify = queue.submit(f"verify {vectors} queries.npy wrong.npz --kernel chi2")
    missing = submit_what_fails(vectors, queue)
    no = queue.run("wait", verify)
    assert (no.code, no.err) == (1, f"{verify} done: the answer is no\n")
    assert queue.status(verify)["state"] == "done"
    failed = queue.run("wait", missing)
    assert failed.code == 2
    assert failed.err == (
        f"{missing} failed: {queue.folder}/copy does not exist: expected a store. Fix: check "
        "the path.\n"
    )
    gave_up = queue.submit(f"encode {vectors} codes", *OPTIONS)
    assert queue.run(f"wait {gave_up} --timeout 0.01").code == 3


@pytest.mark.promise("`submit` refuses what could not run")
def test_what_could_not_run_is_refused_when_it_is_submitted(vectors: Path, queue: Queue) -> None:
    missing = queue.run("submit encode nowhere codes", *ENCODE)
    assert (missing.code, missing.out) == (2, "")
    assert missing.err.startswith(
        f"mercore: {queue.folder}/nowhere does not exist: expected a vector store. Fix: "
    )
    wrong = queue.run(f"submit encode {vectors} codes --kernel chi2 --atoms 0")
    assert (wrong.code, wrong.out) == (2, "")
    greedy = queue.run(f"submit encode {vectors} codes", *OPTIONS, "--memory", "1MB")
    assert (greedy.code, greedy.out) == (1, "")
    assert "encoding would take " in greedy.err
    assert json.loads(queue.succeed("jobs", "--json")) == []


def test_logs_follow_until_the_end_and_watch_draws_a_table(vectors: Path, queue: Queue) -> None:
    queue.submit(f"encode {vectors} codes", *OPTIONS)
    job = submit_what_fails(vectors, queue)
    following = start(f"logs -f {job}", env=queue.environment, cwd=queue.folder)
    out, _ = following.communicate(timeout=120)
    assert queue.status(job)["state"] == "failed"
    began, said, ended = out.splitlines()
    assert f" run 1 began: mercore check -- {queue.folder}/copy" in began
    assert said == f"mercore: {queue.status(job)['why']}"
    assert re.search(r" run 1 failed after .*, exit code 2$", ended)
    drawing = {**queue.environment, "COLUMNS": "200", "FORCE_COLOR": "1"}
    # A shell starts background work with SIGINT ignored, and children inherit that.
    heeding = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    watching = start("jobs", "--watch", env=drawing, cwd=queue.folder, **heeding)
    drawn = ""
    while watching.stdout and "failed" not in drawn:
        drawn += watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=30)
    assert watching.returncode == 0
    assert job in drawn


def test_status_says_whom_a_job_waits_for(
    vectors: Path, undisturbed: dict[str, bytes], queue: Queue
) -> None:
    foreground = start(f"encode {vectors} {queue.folder}/codes", *OPTIONS, "--workers", 1)
    wait_for_receipts(queue.folder / "codes", 3)
    foreground.send_signal(signal.SIGSTOP)
    job = queue.submit(f"encode {vectors} codes", *OPTIONS)
    said = f"waiting for {queue.folder / 'codes'}: process {foreground.pid} on "
    until(lambda: queue.status(job)["why"].startswith(said))
    foreground.kill()
    foreground.communicate()
    assert queue.wait(job)["state"] == "done"
    assert files_of(queue.folder / "codes") == undisturbed

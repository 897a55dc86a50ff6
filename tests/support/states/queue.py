"""A state machine of the queue of jobs: real verbs in this process, and a clock and processes of
the test's own."""

import logging
import os
import shutil
import signal
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mercore.jobs import job_process
from mercore.jobs.background import control, prune, registry, runner, status, submit
from mercore.jobs.background.registry import CANCELLED, DONE, ENDED, FAILED, QUEUED, RUNNING, Job
from mercore.jobs.background.state_folder import FOLDER, open_state
from mercore.stores.location.file_lock import take
from mercore.testing.stores import histograms
from tests.support.killing import Killed
from tests.support.running import invoke
from tests.support.states.disk import disturbed, kill

ENCODE = (
    "encode v c --kernel chi2 --encoder aska --atoms 16 --sparsity 2 --part-rows 20 --workers 1"
)
COMMANDS = [  # two for each target
    "ingest one.npy v",
    "ingest two.npy v",
    ENCODE,
    ENCODE.replace("16", "24"),
    "search c queries.npy --out hits.npz -k 3 --threads 1",
    "search c queries.npy --out hits.npz -k 4 --threads 1",
    "search v queries.npy --kernel chi2 --exact --out true.npz -k 2 --threads 1",
]
OUTPUTS = ("v", "c", "hits.npz", "true.npz")
WRONG_PIDS = (-1, 0, 1, 2**62)
CLOCKS = (registry, control, runner, status, prune, submit, job_process)
DAY = 86400.0

commands = st.sampled_from(COMMANDS)
numbers = st.integers(0, 1 << 16)


def save_rows() -> None:
    """Save what the commands read in the folder of the process."""
    for name, rows, seed in (("one", 50, 1), ("two", 60, 2), ("queries", 3, 3)):
        np.save(f"{name}.npy", histograms(rows, 6, seed=seed))


class Clock:
    """A clock that stands still between steps. It lags far behind: files are newer than jobs."""

    def __init__(self) -> None:
        self.now = 1e9

    def time(self) -> float:
        """Return the seconds since 1970."""
        return self.now

    monotonic = perf_counter = time

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@dataclass(eq=False)
class Process:
    """A job's process that does nothing but hold the lock; a stubborn one ignores Ctrl-C."""

    queue: "QueueStates"
    job: str
    pid: int
    lock: int
    began: float
    stubborn: bool

    def create_time(self) -> float:
        """Return when it began."""
        return self.began

    def open_files(self) -> list[Any]:
        """Return the files that it has open."""
        return [SimpleNamespace(path=str(self.queue.state.lock(self.job).resolve()))]

    def send_signal(self, number: int) -> None:
        """Take Ctrl-C as the process of a job does."""
        assert number == signal.SIGINT
        if not self.stubborn:
            (job,) = self.queue.registry.find(self.job)
            state, now = CANCELLED if job.cancel else FAILED, self.queue.clock.now
            self.queue.registry.change(self.job, state=state, ended=now, pid=None, cancel=0)
            self.end()

    def end(self) -> None:
        """End it: its lock is free."""
        os.close(self.lock)
        del self.queue.processes[self.pid]


class QueueStates(RuleBasedStateMachine):
    """The jobs of one state folder.

    ``trusted`` are the jobs whose next run has to succeed: their sources are there or to come, and
    nothing disturbs them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(TemporaryDirectory()))
        self._stack.callback(os.chdir, Path.cwd())
        os.chdir(folder)
        save_rows()
        self.clock = Clock()
        self.processes: dict[int, Process] = {}
        self.trusted: set[str] = set()
        for module in CLOCKS:
            self.replace(module, "time", self.clock)
        self.replace(control, "psutil", self)
        for name in ("kill", "killpg"):
            self.replace(os, name, self.killed)
        self._stack.enter_context(patch.dict(os.environ, {FOLDER: str(folder / "state")}))
        self.state = open_state()
        self.registry = self.state.registry()
        lock = take(self.state.runner_lock)  # this is the runner, so no other one is started
        assert lock is not None
        self._stack.callback(os.close, lock)

    def replace(self, module: Any, name: str, value: object) -> None:
        """Put a value in place of one of a module, to the end."""
        self._stack.enter_context(patch.object(module, name, value))

    def teardown(self) -> None:
        """End all processes, and remove all files."""
        for process in list(self.processes.values()):
            process.end()
        self.registry.close()
        self._stack.close()

    # What is used of psutil, and of os

    Error, NoSuchProcess = psutil.Error, psutil.NoSuchProcess

    def Process(self, pid: int) -> Process:  # noqa: N802 - its name there
        """Return a process by its number."""
        if pid < 0:
            raise ValueError(pid)
        if pid not in self.processes:
            raise psutil.NoSuchProcess(pid)
        return self.processes[pid]

    def killed(self, pid: int, number: int) -> None:
        """Kill the process of a job, and no other."""
        assert pid in self.processes, f"signal {number} was sent to {pid}"
        self.processes[pid].end()

    # What users do

    @rule(words=commands, meanwhile=st.none() | st.just("run") | commands)
    def submit(self, words: str, meanwhile: str | None) -> None:
        """Submit a job, while another one is submitted or all queued ones end."""
        look, others = submit._check, [meanwhile]

        def look_and_let_others(*arguments: Any) -> None:
            look(*arguments)
            other = others.pop() if others else None
            if other == "run":
                self.run_all()
            elif other:
                self.submitted(other)

        with patch.object(submit, "_check", look_and_let_others):
            self.submitted(words)

    def submitted(self, words: str) -> None:
        """Submit a job; it is refused, or its run has to succeed."""
        before = {job.id: job for job in self.registry.jobs()}
        outcome = invoke("submit", *words.split())
        assert outcome.code == 0 or "Fix: " in outcome.err, outcome
        if outcome.code == 0:
            self.queued(before.get(outcome.out.strip()), outcome.out.strip())

    def queued(self, before: Job | None, name: str) -> None:
        """Note that a job was queued; what is done and there may not be."""
        (job,) = self.registry.find(name)
        if job.state != QUEUED or (before and before.state == QUEUED):
            return
        assert job.target is not None
        there = Path(job.target).exists()
        if before is not None and before.state == DONE:
            assert job.verb == "encode" or not there, f"{name} was queued again"
        if not there or all(Path(source).exists() for source in job.sources):
            self.trusted.add(name)

    @precondition(lambda self: self.registry.jobs())
    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        job = self.pick(number)
        outcome = invoke("cancel", job.id)
        if job.state in ENDED:
            assert outcome.code == 2
            return
        assert outcome.code == 0, outcome
        assert self.registry.find(job.id)[0].state == CANCELLED
        assert not self.state.alive(job.id)
        for other in self.registry.jobs(QUEUED):
            assert job.target not in other.sources or other.position < job.position
        self.distrust(job.id)

    @precondition(lambda self: self.registry.jobs())
    @rule(number=numbers)
    def resume(self, number: int) -> None:
        job = self.pick(number)
        current = status.current_state(self.state, job)
        outcome = invoke("resume", job.id)
        if current in (QUEUED, RUNNING):
            assert outcome.code == 2
        elif outcome.code == 0:
            assert not self.state.alive(job.id)
            self.queued(job, job.id)
        else:  # its source is to be resumed first, or another job writes its output
            assert "Fix: " in outcome.err, outcome
            assert self.registry.find(job.id) == [job]

    @rule(days=st.sampled_from([0, 1, 7]))
    def forget(self, days: int) -> None:
        jobs, limit = self.registry.jobs(), self.clock.now - days * DAY
        assert invoke("jobs", "--prune", "--older-than", days).code == 0
        kept = [job.id for job in jobs if job.state not in ENDED or (job.ended or 0) > limit]
        assert [job.id for job in self.registry.jobs()] == kept

    @rule(output=st.sampled_from(OUTPUTS))
    def remove(self, output: str) -> None:
        """Remove a file or a store, and what unfinished searches keep of it."""
        for name in (output, f"{output}.certificate.npz", "true.npz.parts"):
            if Path(name).is_dir():
                shutil.rmtree(name)
            Path(name).unlink(missing_ok=True)
        self.distrust_readers(str(Path(output).resolve()))

    @rule(seconds=st.sampled_from([1.0, 10.0, 100.0, 3 * DAY]))
    def wait(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    # What the runner and processes do

    @rule(stop=st.none() | st.integers(0, 40))
    def run_next(self, stop: int | None) -> None:
        """Run the next job, to its end or to a kill."""
        if (job := self.claimed()) is None:
            return
        lock = take(self.state.lock(job.id))
        assert lock is not None
        with (
            self.state.report(job.id).open("w") as report,
            self.state.log(job.id).open("a") as log,
            redirect_stdout(report),
            redirect_stderr(log),
            suppress(Killed),
            disturbed(-1 if stop is None else stop, kill),
        ):
            job_process.run(self.state, job.id)
        os.close(lock)
        (after,) = self.registry.find(job.id)
        if after.state == RUNNING:
            assert stop is not None
        elif after.state == DONE:
            assert Path(str(job.target)).exists()
        else:
            assert job.id not in self.trusted, after.why
            self.distrust_readers(str(job.target))
        self.trusted.discard(job.id)

    def run_all(self) -> None:
        """Run jobs until none is queued, or one hangs."""
        while not self.processes and self.registry.jobs(QUEUED, RUNNING):
            self.run_next(None)

    @rule(stubborn=st.booleans())
    def hang(self, stubborn: bool) -> None:
        """The next job's process begins, and does nothing."""
        if job := self.claimed():
            lock, pid = take(self.state.lock(job.id)), 1000 + job.runs
            assert lock is not None
            now = self.clock.now
            self.processes[pid] = Process(self, job.id, pid, lock, now, stubborn)
            self.registry.change(job.id, pid=pid, heartbeat=now)
            self.distrust(job.id)

    @precondition(lambda self: self.processes)
    @rule()
    def die(self) -> None:
        """A hanging process is killed by the system."""
        next(iter(self.processes.values())).end()

    @precondition(lambda self: self.processes)
    @rule(pid=st.sampled_from(WRONG_PIDS), silent=st.booleans())
    def name_a_wrong_process(self, pid: int, silent: bool) -> None:
        """The registry names a process that is not the job's: no signal is sent."""
        process = next(iter(self.processes.values()))
        began = self.clock.now - (100 if silent else 0)
        self.registry.change(process.job, pid=pid, heartbeat=began)
        outcome = invoke("resume" if silent else "cancel", process.job)
        assert (outcome.code != 0, "No signal was sent" in outcome.err) == (True, True), outcome
        assert self.processes == {process.pid: process}
        self.registry.change(process.job, pid=process.pid, cancel=0)

    def claimed(self) -> Job | None:
        """Look after running jobs; return the next one if none runs, as the runner does."""
        running = self.registry.jobs(RUNNING)
        living = runner.recover(self.state, self.registry, logging.getLogger("states"))
        for job in running:
            if self.state.alive(job.id):
                continue
            (after,) = self.registry.find(job.id)
            assert after.state == (FAILED if after.crashes >= runner.MAX_CRASHES else QUEUED)
            if after.state == FAILED:
                self.distrust_readers(str(job.target))
        if living:
            return None
        to_come: set[str | None] = set()
        expected = None
        for job in self.registry.jobs(QUEUED):
            if expected is None and to_come.isdisjoint(job.sources):
                expected = job.id
            to_come.add(job.target)
        claimed = self.registry.claim()
        assert (claimed and claimed.id) == expected
        if claimed:
            self.state.make_folder(claimed.id)
        return claimed

    def pick(self, number: int) -> Job:
        """Return one of the jobs."""
        jobs = self.registry.jobs()
        return jobs[number % len(jobs)]

    def distrust(self, name: str) -> None:
        """A run of a job may fail from now on, and those of jobs that wait for it."""
        self.trusted.discard(name)
        (job,) = self.registry.find(name)
        self.distrust_readers(str(job.target))

    def distrust_readers(self, path: str) -> None:
        """Runs of the jobs that read a path may fail from now on."""
        for job in self.registry.jobs():
            if path in job.sources and job.id in self.trusted:
                self.distrust(job.id)

    @invariant()
    def jobs_that_wait_or_run_write_different_paths(self) -> None:
        targets = [job.target for job in self.registry.jobs(QUEUED, RUNNING)]
        assert len(set(targets)) == len(targets), targets

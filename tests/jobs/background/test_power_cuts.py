"""A power cut takes from the folders of jobs what no fsync has kept; the registry is SQLite's."""

import logging
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.random import default_rng

import mercore
from mercore.jobs.background.follow import log_lines
from mercore.jobs.background.registry import DONE, QUEUED, Job, JobSpec, Registry
from mercore.jobs.background.runner import recover
from mercore.jobs.background.state_folder import FOLDER, StateFolder, open_state
from mercore.jobs.background.status import job_status
from mercore.jobs.job_process import run
from tests.support.forgetful import Disk, recorded, tree_of


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    """A state folder with a job that runs: it shows what a store of vectors holds."""
    mercore.ingest(np.ones((3, 2), np.float32), tmp_path / "v")
    words = ["info", str(tmp_path / "v")]
    folder = StateFolder(tmp_path / "state")
    (folder.path / "jobs").mkdir(parents=True)
    registry = folder.registry()
    registry.submit("job", JobSpec("info", {}, words, None, [words[1]]))
    registry.claim()
    registry.close()
    return folder


def test_a_new_state_folder_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "state"))
    with recorded(tmp_path) as steps:
        open_state()
    disk = Disk({})
    disk.apply(*steps)
    assert list(disk.left(default_rng(0), 10)) == [{"state": None}]


@pytest.mark.promise(
    "A job that is done has its report, after a power cut too; a job that ran goes on"
)
def test_the_report_of_a_job_is_kept_before_the_registry_says_that_it_is_done(
    folder: StateFolder,
) -> None:
    change, written = Registry.change, []

    def noted(registry: Registry, job: str, **values: Any) -> Job:
        if values.get("state") == DONE:
            written.append(len(steps))
        return change(registry, job, **values)

    jobs = folder.path / "jobs"
    with recorded(jobs) as steps, patch.object(Registry, "change", noted):
        folder.make_folder("job")
        with folder.report("job").open("w") as report, redirect_stdout(report):
            folder.note("job", "the runner begins it")
            assert run(folder, "job") == 0
    disk = Disk({})
    disk.apply(*steps[: written.pop()])
    found = list(disk.left(default_rng(0), 100))
    assert len(found) > 1  # the log may be lost
    assert {tree["job/report.json"] for tree in found} == {tree_of(jobs)["job/report.json"]}


@pytest.mark.promise(
    "A job that is done has its report, after a power cut too; a job that ran goes on"
)
def test_a_job_that_ran_goes_on_if_its_folder_is_lost(folder: StateFolder) -> None:
    registry = folder.registry()
    assert recover(folder, registry, logging.getLogger("test")) == 0
    (job,) = registry.jobs()
    assert job.state == QUEUED
    assert job_status(folder, job)["state"] == QUEUED
    assert list(log_lines(folder, registry, "job", follow=False)) == []
    assert not any((folder.path / "jobs").iterdir())
    registry.close()

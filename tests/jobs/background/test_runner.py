"""The runner queues, fails or cancels a job whose process is gone, unless the job has ended."""

from pathlib import Path
from typing import Any

import pytest

from mercore.jobs.background.registry import CANCELLED, DONE, FAILED, QUEUED, RUNNING, Registry
from mercore.jobs.background.runner import MAX_CRASHES, mark_dead
from tests.jobs.background.test_registry import SPEC

LEFT = [
    pytest.param({"cancel": 1}, CANCELLED, id="to be cancelled"),
    pytest.param({}, QUEUED, id="that died once"),
    pytest.param({"crashes": MAX_CRASHES - 1}, FAILED, id="that keeps dying"),
]


@pytest.mark.parametrize(("columns", "after"), LEFT)
def test_a_job_whose_process_died_is_marked_dead(
    columns: dict[str, Any], after: str, tmp_path: Path
) -> None:
    registry = Registry(tmp_path / "registry.sqlite")
    registry.submit("job", SPEC)
    registry.claim()
    job = registry.change("job", pid=4242, **columns)
    assert job.state == RUNNING
    dead = mark_dead(registry, job)
    assert (dead.state, dead.pid) == (after, None)
    assert registry.jobs() == [dead]
    registry.close()


@pytest.mark.parametrize(("columns", "after"), LEFT)
def test_a_job_that_ended_after_it_was_read_stays_as_it_ended(
    columns: dict[str, Any], after: str, tmp_path: Path
) -> None:
    registry = Registry(tmp_path / "registry.sqlite")
    registry.submit("job", SPEC)
    registry.claim()
    seen = registry.change("job", pid=4242, **columns)
    ended = registry.change("job", state=DONE, exit_code=0, ended=1.0)
    assert mark_dead(registry, seen) == ended
    assert registry.jobs() == [ended]
    registry.close()

"""Where work runs: one place, and the memory that it counts."""

from typing import Any

import pytest

from mercore.jobs.resources.execution import Execution, WorkerPaths, available_cores
from mercore.jobs.resources.limits import INTERPRETER_BYTES, check_budget, taken_at
from mercore.stores.errors import BudgetError, InputError
from mercore.stores.wording import option as marked

SCHEDULER = "tcp://127.0.0.1:1"


def test_threads_are_the_cores_if_none_are_named() -> None:
    assert Execution().thread_count == available_cores()
    assert Execution(threads=3).thread_count == 3
    assert not Execution(threads=3).remote


def test_a_remote_worker_has_one_thread() -> None:
    for execution in (Execution(processes=3), Execution(scheduler=SCHEDULER)):
        execution.check()
        assert execution.remote
        assert execution.thread_count == 1


@pytest.mark.parametrize(
    ("options", "option", "refused"),
    [
        ({"threads": 2, "processes": 2}, "threads", "threads"),
        ({"threads": 2, "processes": 2}, "workers", "workers"),
        ({"threads": 2, "scheduler": SCHEDULER}, "threads", "threads"),
        ({"processes": 2, "scheduler": SCHEDULER}, "threads", "processes"),
    ],
)
def test_two_places_are_refused(options: dict[str, Any], option: str, refused: str) -> None:
    because = (
        "an existing cluster has its own workers"
        if "scheduler" in options
        else "processes is the number of workers, and each has one thread"
    )
    with pytest.raises(
        InputError, match=f"^{refused} has no use here: {because}. Fix: leave {refused} out.$"
    ):
        Execution(**options, threads_option=option).check()


def test_processes_count_with_their_interpreters() -> None:
    one, most = 1 << 20, 3 * (INTERPRETER_BYTES + (1 << 20))
    check_budget("searching", taken_at(Execution(processes=2), one), most, "less")
    check_budget("searching", taken_at(Execution(scheduler=SCHEDULER), one), most // 3, "less")
    with pytest.raises(BudgetError, match=r"^searching would take .* Fix: less\.$"):
        check_budget("searching", taken_at(Execution(processes=2), one), most - 1, "less")
    assert Execution(processes=2).or_fewer == f", or fewer {marked('processes')}"
    assert Execution(scheduler=SCHEDULER).or_fewer == ""


def test_workers_are_told_whole_paths(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = WorkerPaths(
        kernel={"name": "chi2"}, codes="codes", vectors="../vectors", linear_map="map.npy"
    ).resolved()
    assert told == WorkerPaths(
        kernel={"name": "chi2"},
        codes=str(tmp_path / "codes"),
        vectors=str(tmp_path.parent / "vectors"),
        linear_map=str(tmp_path / "map.npy"),
    )

"""Where the options say that work is done: one place, and the memory that it counts."""

from typing import Any

import pytest

from mercore.jobs.options import available_cores
from mercore.jobs.resources.execution import Execution, Stores, execution_of
from mercore.jobs.resources.limits import INTERPRETER_BYTES, check_budget, taken_at
from mercore.stores.errors import BudgetError, InputError

SCHEDULER = "tcp://127.0.0.1:1"


def test_threads_are_one_in_the_library_and_the_cores_where_none_is_said() -> None:
    assert execution_of({}) == Execution(threads=1)
    assert execution_of({"threads": None}) == Execution(threads=available_cores())
    assert execution_of({"threads": 3, "memory": 5}) == Execution(threads=3, memory=5)
    assert execution_of({"workers": 3}, "workers") == Execution(threads=3, counted="workers")
    assert not execution_of({"threads": 3}).remote


def test_elsewhere_a_worker_counts_as_one_of_one_thread() -> None:
    assert execution_of({"threads": None, "processes": 3}) == Execution(processes=3, counted="processes")
    assert execution_of({"threads": None, "scheduler": SCHEDULER}) == Execution(scheduler=SCHEDULER)
    assert execution_of({"processes": 3}).remote
    assert execution_of({"scheduler": SCHEDULER}).remote


@pytest.mark.parametrize(
    ("options", "counted", "refused"),
    [
        ({"threads": 2, "processes": 2}, "threads", "threads"),
        ({"workers": 2, "processes": 2}, "workers", "workers"),
        ({"threads": 2, "scheduler": SCHEDULER}, "threads", "threads"),
        ({"processes": 2, "scheduler": SCHEDULER}, "threads", "processes"),
    ],
)
def test_two_places_are_refused(options: dict[str, Any], counted: str, refused: str) -> None:
    because = (
        "a cluster that exists has its own workers"
        if "scheduler" in options
        else "--processes says how many work, each on one thread"
    )
    with pytest.raises(InputError, match=f"^--{refused} has no use here: {because}. Fix: leave --{refused} out.$"):
        execution_of(options, counted)


def test_processes_count_with_their_interpreters() -> None:
    one, most = 1 << 20, 3 * (INTERPRETER_BYTES + (1 << 20))
    assert check_budget("searching", taken_at(Execution(processes=2), one), most, "less") == 0
    assert check_budget("searching", taken_at(Execution(scheduler=SCHEDULER), one), most, "less") == 2 * most // 3
    with pytest.raises(BudgetError, match=r"^searching would take .* Fix: less\.$"):
        check_budget("searching", taken_at(Execution(processes=2), one), most - 1, "less")
    assert Execution(processes=2, counted="processes").or_fewer == ", or fewer --processes"
    assert Execution(scheduler=SCHEDULER).or_fewer == ""


def test_workers_are_told_whole_paths(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = Stores(kernel={"name": "chi2"}, codes="codes", vectors="../vectors").resolved()
    assert told == Stores(
        kernel={"name": "chi2"}, codes=str(tmp_path / "codes"), vectors=str(tmp_path.parent / "vectors")
    )

"""Where the options say that work is done: one place, and the memory that it counts."""

from typing import Any

import pytest

from mercore.jobs.options import available_cores
from mercore.jobs.resources.execution import Stores, Workplace, workplace_of
from mercore.jobs.resources.limits import INTERPRETER_BYTES, check_budget, taken_at
from mercore.stores.errors import BudgetError, InputError

SCHEDULER = "tcp://127.0.0.1:1"


def test_threads_are_one_in_the_library_and_the_cores_where_none_is_said() -> None:
    assert workplace_of({}) == Workplace(threads=1)
    assert workplace_of({"threads": None}) == Workplace(threads=available_cores())
    assert workplace_of({"threads": 3, "memory": 5}) == Workplace(threads=3, memory=5)
    assert workplace_of({"workers": 3}, "workers") == Workplace(threads=3, counted="workers")
    assert not workplace_of({"threads": 3}).elsewhere


def test_elsewhere_a_worker_counts_as_one_of_one_thread() -> None:
    assert workplace_of({"threads": None, "processes": 3}) == Workplace(processes=3, counted="processes")
    assert workplace_of({"threads": None, "scheduler": SCHEDULER}) == Workplace(scheduler=SCHEDULER)
    assert workplace_of({"processes": 3}).elsewhere
    assert workplace_of({"scheduler": SCHEDULER}).elsewhere


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
    with pytest.raises(InputError, match=f"^--{refused} has no use here: {because}. Mend: leave --{refused} out.$"):
        workplace_of(options, counted)


def test_processes_count_with_their_interpreters() -> None:
    one, most = 1 << 20, 3 * (INTERPRETER_BYTES + (1 << 20))
    assert check_budget("searching", taken_at(Workplace(processes=2), one), most, "less") == 0
    assert check_budget("searching", taken_at(Workplace(scheduler=SCHEDULER), one), most, "less") == 2 * most // 3
    with pytest.raises(BudgetError, match=r"^searching would take .* Mend: less\.$"):
        check_budget("searching", taken_at(Workplace(processes=2), one), most - 1, "less")
    assert Workplace(processes=2, counted="processes").or_fewer == ", or fewer --processes"
    assert Workplace(scheduler=SCHEDULER).or_fewer == ""


def test_workers_are_told_whole_paths(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = Stores(kernel={"name": "chi2"}, codes="codes", vectors="../vectors").resolved()
    assert told == Stores(
        kernel={"name": "chi2"}, codes=str(tmp_path / "codes"), vectors=str(tmp_path.parent / "vectors")
    )

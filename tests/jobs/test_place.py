"""Where the options say that work is done: one place, and the memory that it counts."""

from typing import Any

import pytest

from jobs.budget import INTERPRETER_BYTES, check_budget, taken_at
from jobs.options import available_cores
from jobs.place import Place, Stores, place_of
from stores.errors import BudgetError, InputError

SCHEDULER = "tcp://127.0.0.1:1"


def test_threads_are_one_in_the_library_and_the_cores_where_none_is_said() -> None:
    assert place_of({}) == Place(threads=1)
    assert place_of({"threads": None}) == Place(threads=available_cores())
    assert place_of({"threads": 3, "memory": 5}) == Place(threads=3, memory=5)
    assert place_of({"workers": 3}, "workers") == Place(threads=3, counted="workers")
    assert not place_of({"threads": 3}).elsewhere


def test_elsewhere_a_worker_counts_as_one_of_one_thread() -> None:
    assert place_of({"threads": None, "processes": 3}) == Place(processes=3, counted="processes")
    assert place_of({"threads": None, "scheduler": SCHEDULER}) == Place(scheduler=SCHEDULER)
    assert place_of({"processes": 3}).elsewhere
    assert place_of({"scheduler": SCHEDULER}).elsewhere


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
        place_of(options, counted)


def test_processes_count_with_their_interpreters() -> None:
    one, most = 1 << 20, 3 * (INTERPRETER_BYTES + (1 << 20))
    assert check_budget("searching", taken_at(Place(processes=2), one), most, "less") == 0
    assert check_budget("searching", taken_at(Place(scheduler=SCHEDULER), one), most, "less") == 2 * most // 3
    with pytest.raises(BudgetError, match=r"^searching would take .* Mend: less\.$"):
        check_budget("searching", taken_at(Place(processes=2), one), most - 1, "less")
    assert Place(processes=2, counted="processes").or_fewer == ", or fewer --processes"
    assert Place(scheduler=SCHEDULER).or_fewer == ""


def test_workers_are_told_whole_paths(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = Stores(kernel={"name": "chi2"}, codes="codes", vectors="../vectors").resolved()
    assert told == Stores(
        kernel={"name": "chi2"}, codes=str(tmp_path / "codes"), vectors=str(tmp_path.parent / "vectors")
    )

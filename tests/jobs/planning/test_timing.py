"""What samples say of whole jobs: what grows with the work, what does not, cores, and the time
that other processes take."""

import time

import pytest

from mercore.jobs.planning.report import times
from mercore.jobs.planning.timing import THREADS, Spent, Timing, measure, timed
from mercore.jobs.resources.execution import available_cores
from tests.support.busy import busy_processes


def test_what_does_not_grow_with_the_work_is_counted_once_and_on_one_core() -> None:
    found = Timing(units=8, seconds=5.0 + 8, one=5.0 + 1)
    assert found.of(8) == 13.0
    assert found.of(100) == pytest.approx(105.0)
    assert found.of(100, cores=4) == pytest.approx(5.0 + 25)


def test_a_smaller_run_that_took_longer_gives_no_negative_time() -> None:
    assert Timing(units=8, seconds=4.0, one=5.0).of(100) >= 4.0


def test_a_single_unit_is_divided_by_the_cores() -> None:
    assert Timing(units=1, seconds=4.0, one=4.0).of(1, cores=4) == 1.0


def test_all_of_the_work_is_not_extrapolated() -> None:
    sizes: list[int] = []
    found = measure(sizes.append, 3, 0.1)
    assert (found.units, sizes) == (3, [1, 1, 2, 3])
    assert found.of(3) == pytest.approx(found.seconds)


def test_a_sample_is_a_small_share_of_the_work_and_tells_a_fixed_cost() -> None:
    sizes: list[int] = []

    def run(units: int) -> None:
        sizes.append(units)
        until = (
            time.thread_time() + 0.02 + 0.001 * units
        )  # of this thread alone: others on the machine do not count
        while time.thread_time() < until:
            pass

    found = measure(run, 10_000, 0.015)
    assert sum(sizes) < 0.05 * 10_000
    assert found.of(10_000) < 10_000 * found.seconds / found.units


@pytest.mark.promise("Other processes do not change what a plan says of a free machine")
def test_waiting_for_a_core_is_not_counted() -> None:
    # one of two threads had a core alone; the other shared its core with another process
    spent = Spent(passed=4.0, processor=6.0, waited=2.0)
    assert spent.seconds == 3.0
    assert spent.slowdown == pytest.approx(4 / 3)
    # a single thread that also waited for the disk
    assert Spent(passed=4.0, processor=1.0, waited=1.0).seconds == 3.0
    assert Spent(passed=4.0, processor=1.0).seconds == 4.0


@pytest.mark.skipif(not list(THREADS.glob("*/schedstat")), reason="the system does not say")
@pytest.mark.promise("Other processes do not change what a plan says of a free machine")
def test_other_processes_do_not_change_what_work_takes() -> None:
    with busy_processes(3 * available_cores()):
        time.sleep(0.3)  # until they run
        with timed() as spent:
            until = time.thread_time() + 0.3
            while time.thread_time() < until:
                pass
    assert spent.passed > 0.45
    assert 0.2 < spent.seconds < 0.75 * spent.passed  # other threads of the test may wait too


def test_times_name_other_processes_only_where_they_slow_the_job() -> None:
    alone, slowed = times(2, 1, lambda cores: 8.0 / cores, 1.5)
    assert (alone, slowed["seconds"]) == ({"cores": 1, "seconds": 8.0, "measured": False}, 4.0)
    assert slowed["seconds_busy"] == 6.0
    assert "seconds_busy" not in times(1, 1, lambda _: 8.0, 1.05)[0]

"""What samples say of whole jobs: what grows with the work, what does not, cores, and the time
that other processes take."""

import time

import pytest

from mercore.jobs.planning.report import times
from mercore.jobs.planning.timing import THREADS, Spent, Timing, measure, on_cores, timed
from mercore.jobs.resources.execution import available_cores
from tests.support.busy import busy_processes


def pace(units: int, seconds: float, fewer: int, fewer_seconds: float) -> Timing:
    return Timing(
        units=units,
        seconds=seconds,
        processor=2 * seconds,
        fewer=fewer,
        fewer_seconds=fewer_seconds,
        fewer_processor=2 * fewer_seconds,
    )


def test_what_does_not_grow_with_the_work_is_counted_once() -> None:
    found = pace(8, 5.0 + 8, 2, 5.0 + 2)
    assert found.of(8) == 13.0
    assert found.of(100) == pytest.approx(105.0)
    assert found.processor_of(100) == pytest.approx(210.0)


def test_a_smaller_run_that_took_longer_gives_no_negative_time() -> None:
    assert pace(8, 4.0, 2, 5.0).of(100) >= 4.0


def test_all_of_the_work_is_not_extrapolated() -> None:
    sizes: list[int] = []
    found = measure({"run": sizes.append}, 3, 0.1)["run"]
    assert (found.units, max(sizes)) == (3, 3)
    assert found.of(3) == found.seconds


def test_a_fixed_cost_is_told_from_what_a_unit_takes() -> None:
    def run(units: int) -> None:
        until = (
            time.thread_time() + 0.02 + 0.001 * units
        )  # of this thread alone: others on the machine do not count
        while time.thread_time() < until:
            pass

    found = measure({"run": run}, 10_000, 0.02)["run"]
    assert found.units < 10_000
    assert found.of(10_000) < 10_000 * found.seconds / found.units


@pytest.mark.parametrize(("cores", "seconds"), [(1, 10.0), (2, 5.0), (10, 1.0)])
def test_work_without_a_serial_share_is_divided_by_the_cores(cores: int, seconds: float) -> None:
    assert on_cores(cores, 10.0, (2, 5.0, 10.0)) == pytest.approx(seconds)


def test_a_serial_share_stays() -> None:
    # one thread works for 5 seconds while the other idles, and both for 2.5 seconds
    assert on_cores(1000, 10.0, (2, 7.5, 10.0)) == pytest.approx(5.005)
    assert on_cores(2, 10.0, (2, 7.5, 10.0)) == 7.5


def test_cores_that_slow_each_other_are_no_serial_share() -> None:
    assert on_cores(64, 10.0, (2, 8.0, 16.0)) == pytest.approx(0.25)


def test_waiting_for_a_core_is_not_counted() -> None:
    # one of two threads had a core alone; the other shared its core with another process
    spent = Spent(passed=4.0, processor=6.0, waited=2.0)
    assert spent.seconds == 3.0
    assert spent.slowdown == pytest.approx(4 / 3)
    # a single thread that also waited for the disk
    assert Spent(passed=4.0, processor=1.0, waited=1.0).seconds == 3.0
    assert Spent(passed=4.0, processor=1.0).seconds == 4.0


@pytest.mark.skipif(not list(THREADS.glob("*/schedstat")), reason="the system does not say")
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
    quiet, slowed = times(1, 2, lambda cores: {"seconds": 8.0 / cores}, {1: 1.05, 2: 1.5})
    assert "seconds_busy" not in quiet
    assert (slowed["seconds"], slowed["seconds_busy"]) == (4.0, 6.0)

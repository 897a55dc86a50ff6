"""What samples say of whole jobs: what grows with the work, what does not, and cores."""

import time

import pytest

from mercore.jobs.planning.timing import Timing, measure, on_cores


def pace(units: int, seconds: float, fewer: int, fewer_seconds: float) -> Timing:
    return Timing(units=units, seconds=seconds, fewer=fewer, fewer_seconds=fewer_seconds, first=0.0)


def test_what_does_not_grow_with_the_work_is_counted_once() -> None:
    found = pace(8, 5.0 + 8, 2, 5.0 + 2)
    assert found.of(8) == 13.0
    assert found.of(100) == pytest.approx(105.0)


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
    assert on_cores(cores, 10.0, (2, 5.0)) == pytest.approx(seconds)


def test_a_serial_share_stays() -> None:
    assert on_cores(1000, 10.0, (2, 7.5)) == pytest.approx(5.005)
    assert on_cores(2, 10.0, (2, 7.5)) == 7.5
    assert on_cores(64, 10.0, (2, 11.0)) == 10.0

"""Work on several items at once, in their order."""

import threading

import pytest

from pipeline.parallel import in_order


@pytest.mark.parametrize("at_once", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_come_in_the_order_of_the_items(at_once: int, count: int) -> None:
    assert list(in_order(range(count), lambda item: item * item, at_once)) == [item * item for item in range(count)]


def test_as_many_as_asked_for_are_at_work_at_once() -> None:
    both = threading.Barrier(2, timeout=30)
    assert sorted(in_order(range(4), lambda item: both.wait() >= 0, 2)) == [True] * 4


@pytest.mark.parametrize("at_once", [1, 2])
def test_an_error_ends_it_and_is_raised_in_its_turn(at_once: int) -> None:
    found = in_order([1, 0, 2], lambda item: 1 // item, at_once)
    assert next(found) == 1
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert list(found) == []

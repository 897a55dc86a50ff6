"""Results come in the order of the items; parts are shared among threads that are kept."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator

import pytest

from mercore.pipeline.parallel import in_order, over_parts, read_ahead
from mercore.testing.cases import loop_over


def parts_read(count: int) -> list[int]:
    return [
        value for _, value in read_ahead(iter(range(count)), lambda part, slot: 10 * part + slot)
    ]


def sums(threads: int, count: int) -> int:
    return sum(over_parts(list(range(count)), threads, lambda parts: sum(part for part in parts)))


@loop_over("workers", [1, 2, 3])
@loop_over("count", [0, 1, 2, 7])
def test_results_come_in_the_order_of_the_items(workers: int, count: int) -> None:
    assert list(in_order(range(count), lambda item: item * item, workers)) == [
        item * item for item in range(count)
    ]


def test_as_many_workers_as_asked_for_run_concurrently() -> None:
    both = threading.Barrier(2, timeout=30)
    assert sorted(in_order(range(4), lambda item: both.wait() >= 0, 2)) == [True] * 4


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_ends_it_and_is_raised_in_its_turn(workers: int) -> None:
    found = in_order([1, 0, 2], lambda item: 1 // item, workers)
    assert next(found) == 1
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert list(found) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_items_that_nobody_waits_for_stop_at_their_next_part(threads: int) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(parts: Iterator[int]) -> None:
        for _ in parts:
            begun.set()
            time.sleep(0.001)

    def work(item: int) -> None:
        if item == 0:
            assert begun.wait(30)
            raise ZeroDivisionError
        try:
            over_parts([0] * 1_000_000, threads, endless)
        finally:
            ended.set()

    with pytest.raises(ZeroDivisionError):
        list(in_order(range(2), work, 2))
    assert ended.wait(30)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_parts_are_read_ahead_into_two_slots(count: int) -> None:
    assert parts_read(count) == [10 * part + part % 2 for part in range(count)]


def test_threads_are_kept_for_the_next_search() -> None:
    known, new = threading.local(), []

    def read(part: int, _: int) -> int:
        if not hasattr(known, "met"):
            known.met = True
            new.append(part)
        return part

    for _ in range(10):
        assert list(read_ahead(iter([5, 6, 7]), read)) == [(5, 5), (6, 6), (7, 7)]
    assert sorted(new) == [
        5,
        6,
    ]  # this thread reads the first part, and one other, the same ten times, the rest


def test_an_error_in_reading_is_raised_and_the_next_search_is_whole() -> None:
    with pytest.raises(ZeroDivisionError):
        list(read_ahead(iter([1, 0, 2]), lambda part, _: 1 // part))
    assert parts_read(2) == [0, 11]


def test_a_reading_that_nobody_wants_any_more_is_over_before_its_buffers_are_used_again() -> None:
    go_on, over = threading.Event(), threading.Event()

    def read(part: int, _: int) -> int:
        if part == 1:
            go_on.wait(30)
            over.set()
        return part

    reading = read_ahead(iter([0, 1]), read)
    threading.Timer(0.05, go_on.set).start()
    assert next(reading) == (0, 0)
    reading.close()  # type: ignore[attr-defined]
    assert over.is_set()


def test_an_error_on_one_thread_stops_the_others() -> None:
    both, taken = threading.Barrier(2, timeout=30), []

    def work(parts: Iterator[int]) -> None:
        for part in parts:
            taken.append(part)
            if len(taken) <= 2 and both.wait() == 0:
                raise ZeroDivisionError
            time.sleep(0.001)

    with pytest.raises(ZeroDivisionError):
        over_parts(list(range(1000)), 2, work)
    assert 2 <= len(taken) < 500  # all of them would take the other thread a second
    assert sums(2, 100) == 4950


def test_a_forked_process_starts_threads_of_its_own() -> None:
    assert (parts_read(3), sums(2, 10)) == ([0, 11, 20], 45)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # that threads do not come along is what this is about
        child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if (parts_read(3), sums(2, 10)) == ([0, 11, 20], 45) else 1)
    assert os.waitpid(child, 0)[1] == 0

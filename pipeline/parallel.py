"""Threads that share the parts of a store: each takes the next part, and reads one part ahead."""

import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")
Result = TypeVar("Result")

# idle pools by their number of threads
_idle: defaultdict[int, list[ThreadPoolExecutor]] = defaultdict(list)
_local = threading.local()  # ``given_up``: whether nobody waits for the work of this thread
os.register_at_fork(after_in_child=_idle.clear)  # a forked child has none of the threads


class GivenUpError(Exception):
    """The work of this thread is not wanted any more; nobody sees this error."""


def over_parts(
    parts: list[int], threads: int, work: Callable[[Iterator[int]], Result]
) -> list[Result]:
    """Run ``work`` on every thread, each with an iterator that takes the next part that is left.

    Return the results. An error on one thread stops the others at their next part, and is raised.
    With ``threads`` = 1 the work is done on the caller's thread.
    """
    shared = _until(parts, getattr(_local, "given_up", None))
    if threads == 1 or len(parts) == 1:
        return [work(shared)]
    lock, failed = threading.Lock(), threading.Event()

    def remaining_parts() -> Iterator[int]:
        while not failed.is_set():
            with lock:
                part = next(shared, None)
            if part is None:
                return
            yield part

    def guarded() -> Result:
        try:
            return work(remaining_parts())
        except BaseException:
            failed.set()
            raise

    with idle_pool(threads) as pool:
        futures = [pool.submit(guarded) for _ in range(threads)]
        try:
            return [future.result() for future in futures]
        finally:
            failed.set()  # after an error or Ctrl-C here, the threads stop soon
            wait(futures)


def read_ahead(
    parts: Iterator[int], read: Callable[[int, int], Value]
) -> Iterator[tuple[int, Value]]:
    """Yield (part, value) while a thread reads the next part; the caller's thread reads the first.

    ``read(part, slot)`` may reuse the buffers of slot 0 or 1: a slot is read again only once the
    next value is asked for.
    """
    turn, part = 0, next(parts, None)
    ahead: Future[Value] | None = None
    with idle_pool(1) as pool:
        try:
            while part is not None:
                after = next(parts, None)
                current, ahead = (
                    ahead,
                    None if after is None else pool.submit(read, after, (turn + 1) % 2),
                )
                yield part, read(part, 0) if current is None else current.result()
                turn, part = turn + 1, after
        finally:
            if ahead is not None:
                wait([ahead])


def in_order(
    items: Iterable[Item], work: Callable[[Item], Result], workers: int
) -> Iterator[Result]:
    """Yield the result of ``work`` for each item, in their order, from ``workers`` threads."""
    if workers == 1:
        yield from map(work, items)
        return
    pool, pending = ThreadPoolExecutor(workers, thread_name_prefix="batch"), deque[Future[Result]]()
    given_up = threading.Event()

    def work_on(item: Item) -> Result:
        _local.given_up = given_up
        return work(item)

    try:
        for item in items:
            pending.append(pool.submit(work_on, item))
            if len(pending) == workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        # after an error, do not wait for the other items: they stop at their next part
        given_up.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _until(parts: list[int], given_up: threading.Event | None) -> Iterator[int]:
    """Yield parts until the work on them is given up."""
    for part in parts:
        if given_up is not None and given_up.is_set():
            raise GivenUpError
        yield part


@contextmanager
def idle_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool that is not in use, and keep it afterwards.

    Starting threads takes longer than a short search.

    All submitted work must be done at the end of the ``with`` block.
    """
    try:
        pool = _idle[threads].pop()
    except IndexError:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="parts")
    try:
        yield pool
    finally:
        _idle[threads].append(pool)

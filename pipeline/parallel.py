"""Threads of ours over the parts of a store: each takes the next part, and reads one ahead of its work."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from stores.pools import idle_pool

Item = TypeVar("Item")
Value = TypeVar("Value")
Result = TypeVar("Result")


def over_parts(parts: list[int], threads: int, work: Callable[[Iterator[int]], Result]) -> list[Result]:
    """Run ``work`` on every thread, each with an iterator that shares the parts out in ascending order.

    An error on one thread stops the others at their next part, and is raised. One thread is the caller's own.
    """
    shared = iter(parts)
    if threads == 1 or len(parts) == 1:
        return [work(shared)]
    lock, failed = threading.Lock(), threading.Event()

    def take() -> Iterator[int]:
        while not failed.is_set():
            with lock:
                part = next(shared, None)
            if part is None:
                return
            yield part

    def guarded() -> Result:
        try:
            return work(take())
        except BaseException:
            failed.set()
            raise

    with idle_pool(threads) as pool:
        futures = [pool.submit(guarded) for _ in range(threads)]
        try:
            return [future.result() for future in futures]
        finally:
            failed.set()  # so that after an error here, or Ctrl-C, they stop soon
            wait(futures)


def read_ahead(parts: Iterator[int], read: Callable[[int, int], Value]) -> Iterator[tuple[int, Value]]:
    """Yield (part, value) while a thread reads the part after it.

    ``read(part, slot)`` may reuse the buffers of slot 0 or 1: a slot is read anew only when its value is done with.
    """
    with idle_pool(1) as pool:
        pending: list[tuple[int, Future[Value]]] = []
        try:
            for turn, part in enumerate(parts):
                pending.append((part, pool.submit(read, part, turn % 2)))
                if turn > 0:
                    yield pending[0][0], pending[0][1].result()
                    del pending[0]
            for part, value in pending:
                yield part, value.result()
        finally:
            wait([value for _, value in pending])


def in_order(items: Iterable[Item], work: Callable[[Item], Result], at_once: int) -> Iterator[Result]:
    """Yield what ``work`` makes of each item, in the items' order, while a thread each is at work on ``at_once``."""
    if at_once == 1:
        yield from map(work, items)
        return
    pool, pending = ThreadPoolExecutor(at_once, thread_name_prefix="batch"), deque[Future[Result]]()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) == at_once:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after an error nobody waits for the other batches

"""Threads that wait for the next who asks."""

import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_idle: defaultdict[int, list[ThreadPoolExecutor]] = defaultdict(list)  # by their threads
os.register_at_fork(after_in_child=_idle.clear)  # threads stay with the parent


@contextmanager
def idle_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool that nobody else uses, and keep it for the next: starting threads takes longer than a short search.

    All that it was given has to be done at the end.
    """
    try:
        pool = _idle[threads].pop()
    except IndexError:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="parts")
    try:
        yield pool
    finally:
        _idle[threads].append(pool)

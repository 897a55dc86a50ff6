"""Kills at every publication of a file, simulated in this process."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mercore.stores.location.local import LocalLocation


class Killed(BaseException):
    """The process ended here: no clean-up of errors runs."""


@contextmanager
def killed_at(publication: int, kind: type[Any] = LocalLocation) -> Iterator[None]:
    """Run the block until it would publish or remove a file for the n-th time, from 0 on.

    ``kind`` is the class of the locations that count.
    """
    done = 0

    def counted(method: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: object) -> None:
            nonlocal done
            if done == publication:
                raise Killed
            done += 1
            method(*arguments)

        return run

    with (
        patch.object(os, "fsync"),
        patch.object(kind, "publish", counted(kind.publish)),
        patch.object(kind, "remove", counted(kind.remove)),
    ):
        yield


def kills(run: Callable[[int], object]) -> Iterator[int]:
    """Yield the number of each kill, right after it; end when ``run`` is no longer disturbed."""
    for number in range(10_000):
        try:
            with killed_at(number):
                run(number)
        except Killed:
            yield number
        else:
            return

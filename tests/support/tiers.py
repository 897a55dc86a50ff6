"""Parameters of a test that go to different tiers: a few to the fast one, the rest to a slower one."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def slow_then_soak(values: Iterable[Any]) -> list[Any]:
    """Return parameters of which the first is ``slow`` and each other one ``soak``."""
    marks = pytest.mark.slow, pytest.mark.soak
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks[number > 0])
        for number, value in enumerate(values)
    ]


def slow_unless(fast: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Return the parameters of a test; those that are not ``fast`` are marked slow."""
    found = []
    for value in values:
        given = value if hasattr(value, "marks") else pytest.param(value)
        marks = given.marks if fast(value) else [*given.marks, pytest.mark.slow]
        found.append(pytest.param(*given.values, marks=marks, id=given.id))
    return found


def first_of(kind: Callable[[Any], Hashable]) -> Callable[[Any], bool]:
    """Return the function that says whether a value is the first of its kind."""
    counts = Counter[Hashable]()

    def is_first(value: Any) -> bool:
        counts[kind(value)] += 1
        return counts[kind(value)] == 1

    return is_first

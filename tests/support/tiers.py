"""Parameters of a test that go to different tiers: a small one to ``slow``, the rest to
``soak``."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_then_soak(values: Iterable[Any]) -> list[Any]:
    """Return parameters of which the first is ``slow`` and each other one ``soak``."""
    marks = pytest.mark.slow, pytest.mark.soak
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=marks[number > 0])
        for number, value in enumerate(values)
    ]

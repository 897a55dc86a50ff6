"""Modules with slow tests come first, and no test touches the state folder of whoever runs the
tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mercore.jobs.background.state_folder import FOLDER

TEN_SECONDS = 10  # and more is what slow tests take that say no number


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules of the longest tests, so that no core waits at the end for one of
    them.

    A module stays whole: what its tests share is made once on a core.
    """
    longest: dict[Path, float] = {}
    for item in items:
        slow = item.get_closest_marker("slow")
        if slow is not None:
            seconds = slow.args[0] if slow.args else TEN_SECONDS
            longest[item.path] = max(seconds, longest.get(item.path, 0))
    items.sort(key=lambda item: -longest.get(item.path, 0))


@pytest.fixture(scope="session", autouse=True)
def state_of_no_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Name a state folder that is not there, for this process and all that it starts."""
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(tmp_path_factory.mktemp("no-user") / "state")
    yield
    if before is None:
        del os.environ[FOLDER]
    else:
        os.environ[FOLDER] = before

"""Slow tests come first, and no test touches the state folder of whoever runs the tests."""

import os
from collections.abc import Iterator

import pytest

from jobs.state import FOLDER


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that no core waits at the end for one long test."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


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

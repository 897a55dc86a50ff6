"""No test touches the state folder of the user who runs the tests."""

import os
from collections.abc import Iterator

import pytest

from mercore.jobs.background.state_folder import FOLDER

collect_ignore = ["support/plugin"]  # a package of its own, which is not installed here


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

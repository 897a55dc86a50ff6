"""The queue under any commands in any order: kills, stalled processes, races, and wrong numbers.

The number of a test is its seed, which decides all steps.
"""

import pytest

from tests.support.running import succeed
from tests.support.states.machine import run_states
from tests.support.states.queue import COMMANDS, QueueStates, save_rows


@pytest.fixture(autouse=True, scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is compiled in the tests: a process that compiles may hold a lock for a moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("compiled"))
        save_rows()
        for words in (COMMANDS[0], COMMANDS[2], COMMANDS[4], COMMANDS[6]):
            succeed(words)


@pytest.mark.parametrize("seed", [0])
@pytest.mark.promise(
    "What `submit` accepts ends well, whatever was submitted, cancelled, killed or forgotten before"
)
def test_a_few_hundred_steps(seed: int) -> None:
    run_states(QueueStates, seed, examples=10)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.promise(
    "What `submit` accepts ends well, whatever was submitted, cancelled, killed or forgotten before"
)
def test_ten_thousand_steps(seed: int) -> None:
    run_states(QueueStates, seed, examples=25)

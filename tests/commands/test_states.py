"""Stores under any verbs in any order, against a model: kills, rivals, damage, moves.

The number of a test is its seed, which decides all steps.
"""

import pytest

from tests.support.states.machine import StoreStates, run_states


@pytest.mark.parametrize("seed", [0])
def test_a_few_hundred_steps(seed: int) -> None:
    run_states(StoreStates, seed, examples=8)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(1, 51))
def test_a_hundred_thousand_steps(seed: int) -> None:
    run_states(StoreStates, seed, examples=50)

"""Stores under any verbs in any order, against a model: kills, rivals, damage, moves.

The number of a test is its seed, which decides all steps.
"""

from collections.abc import Iterator

import pytest

from tests.support.object_server import ObjectServer, object_server
from tests.support.states.disk import Bucket
from tests.support.states.machine import StoreStates, run_states
from tests.support.tiers import slow_then_soak


@pytest.mark.parametrize("seed", [0])
@pytest.mark.promise(
    "Any verbs in any order, killed, raced, read meanwhile and damaged, leave what a model says"
)
def test_a_few_hundred_steps(seed: int) -> None:
    run_states(StoreStates, seed, examples=8)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(1, 51))
@pytest.mark.promise(
    "Any verbs in any order, killed, raced, read meanwhile and damaged, leave what a model says"
)
def test_a_hundred_thousand_steps(seed: int) -> None:
    run_states(StoreStates, seed, examples=50)


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", slow_then_soak(range(10)))
@pytest.mark.promise(
    "Any verbs in any order, killed, raced, read meanwhile and damaged, leave what a model says"
)
def test_steps_on_an_object_store(seed: int, server: ObjectServer) -> None:
    class ObjectStates(StoreStates):
        def new_place(self) -> Bucket:
            return Bucket(server)

    run_states(ObjectStates, seed, examples=5 if seed else 3, steps=20)

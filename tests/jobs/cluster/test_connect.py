"""Threads of this process as workers: every task once, and an error ends the work."""

import pytest

from mercore.jobs.cluster.connect import GRAPH_TASKS, ThreadsHere
from mercore.jobs.cluster.workers import Work
from mercore.stores.errors import IntegrityError

WORK = Work("codes", lambda: -1)


def test_every_task_runs_once_whatever_the_number_of_graphs() -> None:
    seen: list[int] = []
    ThreadsHere(2).run(
        WORK, lambda sign, item: sign * item, range(2 * GRAPH_TASKS + 1), seen.append
    )
    assert sorted(seen) == list(range(-2 * GRAPH_TASKS, 1))


@pytest.mark.parametrize("error", [IntegrityError("part 3 is wrong"), KeyboardInterrupt()])
def test_an_error_ends_the_work_and_is_raised_as_it_is(error: BaseException) -> None:
    begun: list[int] = []
    done: list[int] = []

    def task(_: int, item: int) -> int:
        begun.append(item)
        if len(begun) == 3:
            raise error
        return item

    with pytest.raises(type(error)) as raised:
        ThreadsHere(1).run(WORK, task, range(10), done.append)
    assert raised.value is error
    assert (len(begun), done) == (3, begun[:2])

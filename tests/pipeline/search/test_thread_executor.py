"""How the batches of a search share the threads of a process."""

import numpy as np
import pytest

from mercore.pipeline.kernels import make_kernel
from mercore.pipeline.search.thread_executor import ThreadExecutor, shares
from mercore.testing.cases import loop_over


@pytest.mark.parametrize(
    ("batches", "threads", "wanted"),
    [
        (1, 4, [4]),
        (2, 2, [1, 1]),
        (3, 2, [1, 1, 2]),
        (3, 8, [3, 3, 2]),
        (4, 1, [1, 1, 1, 1]),
        (6, 4, [1, 1, 1, 1, 2, 2]),
    ],
)
def test_a_thread_takes_a_whole_batch_and_the_last_batches_share(
    batches: int, threads: int, wanted: list[int]
) -> None:
    assert shares(batches, threads) == wanted


@loop_over("batches", [1, 2, 5, 64, 65, 100])
@loop_over("threads", [1, 2, 3, 64])
def test_batches_at_work_together_have_all_threads_and_no_more(batches: int, threads: int) -> None:
    executor = ThreadExecutor(kernel=make_kernel("chi2"), threads=threads, batches=batches)
    taken = np.array([executor.share().threads for _ in range(batches)])
    at_once = executor.concurrent_batches
    for start in range(0, batches, at_once):
        assert taken[start : start + at_once].sum() == threads

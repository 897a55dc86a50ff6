"""Jobs survive the death of what runs them: thirty runs with kills, and fifty races."""

from pathlib import Path

import pytest

from tests.soak import survival
from tests.support.running import count_receipts, files_of, succeed
from tests.support.tiers import slow_then_soak


@pytest.fixture(scope="module")
def undisturbed(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file of the store that a foreground encode writes."""
    store = tmp_path_factory.mktemp("undisturbed") / "codes"
    succeed(f"encode {vectors} {store}", *survival.OPTIONS)
    assert count_receipts(store) == survival.PARTS
    return files_of(store)


@pytest.mark.parametrize("seed", slow_then_soak(range(30)))
@pytest.mark.promise("Workers, schedulers and runners may be killed in any order")
def test_a_worker_the_scheduler_and_the_runner_are_killed(
    seed: int, vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    survival.survive(seed, vectors, undisturbed, tmp_path)


@pytest.mark.parametrize("seed", slow_then_soak(range(50)))
@pytest.mark.promise("Workers, schedulers and runners may be killed in any order")
def test_two_submitters_and_two_runners_race_for_one_store(
    seed: int, vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    survival.race(seed, vectors, undisturbed, tmp_path)

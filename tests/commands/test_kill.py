"""kill -9 at any moment loses at most the parts in flight, and the finished store is what an
undisturbed run writes."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.running import (
    ENCODE,
    Cluster,
    count_receipts,
    files_of,
    finish,
    kill_after,
    names_in,
    run,
    scratch_in,
    start,
    succeed,
    wait_for_receipts,
    wait_until,
)
from tests.support.tiers import slow_then_soak

PARTS, PART_ROWS = 300, 10
OPTIONS = (*ENCODE, "--part-rows", PART_ROWS)


@pytest.fixture(scope="module")
def undisturbed(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file of a store of 300 parts that nothing disturbed."""
    store = tmp_path_factory.mktemp("undisturbed") / "codes"
    succeed(f"encode {vectors} {store}", *OPTIONS, "--workers", 2)
    assert count_receipts(store) == PARTS
    return files_of(store)


@pytest.mark.parametrize("kills", slow_then_soak([5, 20]))
@pytest.mark.timeout(300)
@pytest.mark.promise("A killed encode resumes to the bytes of an undisturbed run")
def test_kills_and_resumptions_leave_the_undisturbed_store(
    kills: int, vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    """Kill on until one kill hits a write: the stated number is sometimes too few."""
    store = tmp_path / "codes"
    rng = np.random.default_rng(20)
    done: list[int] = []
    littered = 0
    while len(done) < kills or (not littered and done[-1] < PARTS - 30):
        process = start(f"encode {vectors} {store}", *OPTIONS, "--workers", 2)
        wait_for_receipts(store, count_receipts(store) + int(rng.integers(1, 8)), process)
        kill_after(process, int(rng.integers(0, 4_000)))
        done.append(count_receipts(store))
        littered += bool(scratch_in(store))
    assert all(before < after < PARTS for before, after in zip([0, *done], done, strict=False)), (
        done
    )
    assert littered > 0, "no kill hit a write: the next lines show less than they should"

    last = run(f"encode {vectors} {store}", *OPTIONS, "--json")
    assert last.code == 0, last.err
    assert json.loads(last.out)["parts_done_now"] == PARTS - done[-1]
    assert files_of(store) == undisturbed
    assert names_in(tmp_path) == ["codes"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_while_the_store_is_made_leaves_nothing_that_stays(
    seed: int, vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(f"encode {vectors} {tmp_path}/codes", *OPTIONS)
    wait_until(lambda: any(tmp_path.iterdir()), process)
    kill_after(process, int(np.random.default_rng(seed).integers(0, 4_000)))
    last = run(f"encode {vectors} {tmp_path}/codes", *OPTIONS)
    assert last.code == 0, last.err
    assert names_in(tmp_path) == ["codes"]
    assert files_of(tmp_path / "codes") == undisturbed


@pytest.mark.slow
@pytest.mark.promise("A killed ingest leaves no store")
def test_killed_ingest_leaves_no_store_and_the_next_one_tidies_up(
    data: Path, tmp_path: Path
) -> None:
    rows = np.lib.format.open_memmap(
        str(tmp_path / "rows.npy"), mode="w+", dtype=np.uint8, shape=(400_000, 128)
    )
    rows[:] = np.arange(128, dtype=np.uint8)
    process = start("ingest rows.npy vectors", cwd=tmp_path)
    wait_until(lambda: len(scratch_in(tmp_path)) > 0, process)
    kill_after(process, 20_000)
    assert not (tmp_path / "vectors").exists()
    assert len(scratch_in(tmp_path)) > 0, "the kill came too late to show anything"

    for name in ("vectors", "undisturbed"):
        again = run(f"ingest rows.npy {name}", cwd=tmp_path)
        assert again.code == 0, again.err
    assert names_in(tmp_path) == ["rows.npy", "undisturbed", "vectors"]
    assert files_of(tmp_path / "vectors") == files_of(tmp_path / "undisturbed")


@pytest.mark.slow
def test_two_commands_that_encode_one_store_at_once_both_succeed(
    vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    both = [start(f"encode {vectors} {tmp_path}/codes", *OPTIONS) for _ in range(2)]
    for outcome in map(finish, both):
        assert outcome.code == 0, outcome.err
    assert files_of(tmp_path / "codes") == undisturbed


@pytest.mark.slow
@pytest.mark.promise("Exit code 130: Ctrl-C, and what is done stays done")
def test_ctrl_c_says_so_and_keeps_what_is_done(
    vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    store = tmp_path / "codes"
    # A shell starts background work with SIGINT ignored, and children inherit that.
    process = start(
        f"encode {vectors} {store}",
        *OPTIONS,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for_receipts(store, 20, process)
    process.send_signal(signal.SIGINT)
    outcome = finish(process)
    assert (outcome.code, outcome.out) == (130, "")
    assert (
        outcome.err
        == "mercore: interrupted. Fix: run the same command again; encode keeps the parts that are done.\n"
    )
    done = count_receipts(store)
    assert 20 <= done < PARTS
    assert scratch_in(tmp_path) == []
    last = run(f"encode {vectors} {store}", *OPTIONS, "--json")
    assert json.loads(last.out)["parts_done_now"] == PARTS - done
    assert files_of(store) == undisturbed


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two workers."""
    made = Cluster(tmp_path_factory.mktemp("cluster"), workers=2)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.promise("A killed worker costs its parts alone")
def test_a_killed_dask_worker_does_not_stop_the_command(
    seed: int, vectors: Path, undisturbed: dict[str, bytes], cluster: Cluster, tmp_path: Path
) -> None:
    store = tmp_path / "codes"
    rng = np.random.default_rng(seed)
    process = start(f"encode {vectors} {store}", *OPTIONS, "--scheduler", cluster.address, "--json")
    wait_for_receipts(store, int(rng.integers(10, 100)), process)
    kill_after(cluster.workers[seed % 2], int(rng.integers(0, 20_000)))
    done = count_receipts(store)
    outcome = finish(process)
    assert done < PARTS
    assert (outcome.code, outcome.err) == (0, "")
    assert json.loads(outcome.out)["parts_done_now"] == PARTS
    assert files_of(store) == undisturbed
    assert names_in(tmp_path) == ["codes"]


@pytest.mark.slow
@pytest.mark.promise("A lost cluster ends the command with one paragraph, and the work resumes")
def test_a_killed_scheduler_ends_the_command_with_one_paragraph_and_a_resumable_store(
    vectors: Path, undisturbed: dict[str, bytes], cluster: Cluster, tmp_path: Path
) -> None:
    store = tmp_path / "codes"
    process = start(f"encode {vectors} {store}", *OPTIONS, "--scheduler", cluster.address)
    wait_for_receipts(store, 20, process)
    kill_after(cluster.scheduler, 0)
    outcome = finish(process)
    assert count_receipts(store) < PARTS
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"mercore: the cluster lost a part of {store}: ")
    assert outcome.err.count("\n") == 1
    for worker in cluster.workers:
        worker.kill()
    last = run(f"encode {vectors} {store}", *OPTIONS)
    assert last.code == 0, last.err
    assert files_of(store) == undisturbed


@pytest.mark.slow
def test_two_jobs_on_one_cluster_do_not_mix(
    vectors: Path, cluster: Cluster, tmp_path: Path
) -> None:
    jobs = [
        start(
            f"encode {vectors} {tmp_path}/codes{seed}",
            *OPTIONS,
            "--random-state",
            seed,
            "--scheduler",
            address,
        )
        for seed, address in enumerate([cluster.address] * 2)
    ]
    for outcome in map(finish, jobs):
        assert (outcome.code, outcome.err) == (0, "")
    for seed in range(2):
        succeed(f"encode {vectors} {tmp_path}/here{seed}", *OPTIONS, "--random-state", seed)
        assert files_of(tmp_path / f"codes{seed}") == files_of(tmp_path / f"here{seed}")

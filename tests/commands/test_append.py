"""``append`` by the real command: kill -9, object stores, and the queue."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mercore.stores.location.s3 import S3Location
from mercore.testing.stores import histograms
from tests.support.killing import Killed, killed_at
from tests.support.object_server import BUCKET, ObjectServer, object_server
from tests.support.queueing import Queue
from tests.support.running import ENCODE, command, files_of, finish, invoke, run, start, succeed
from tests.support.tiers import slow_then_soak

pytestmark = pytest.mark.slow

ROWS, NEW = 2000, 40_000
OPTIONS = (*ENCODE, "--part-rows", 16384)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with ``one.npy``, ``two.npy`` and ``more.npy``."""
    rows = histograms(ROWS + NEW, 24, seed=3)
    np.save(tmp_path / "one.npy", rows[: ROWS // 2])
    np.save(tmp_path / "two.npy", rows[ROWS // 2 : ROWS])
    np.save(tmp_path / "more.npy", rows[ROWS:])
    return tmp_path


def ingested(sources: Path, name: str) -> Path:
    succeed(f"ingest {sources}/one.npy {sources}/two.npy {sources}/{name}")
    return sources / name


def rows_in(store: Path) -> int:
    return int(json.loads(succeed(f"info {store} --json"))["rows"])


@pytest.mark.parametrize("kills", slow_then_soak([6, 40]))
@pytest.mark.timeout(300)
def test_kill_9_leaves_old_rows_or_new_ones(kills: int, sources: Path) -> None:
    undisturbed, store = ingested(sources, "undisturbed"), ingested(sources, "store")
    succeed(f"append {sources}/more.npy {undisturbed}")
    rng = np.random.default_rng(9)
    done = 0
    for _ in range(kills):
        process = start(f"append {sources}/more.npy {store}")
        while process.poll() is None and not (store.parent / ".store.lease").exists():
            pass
        try:
            finish(process, seconds=float(rng.uniform(0, 0.3)))
        except AssertionError:  # it was killed: finish does so in the end
            done += 1
        assert json.loads(run(f"check {store} --json").out)["faults"] == []
        assert rows_in(store) in (ROWS, ROWS + NEW)
        if rows_in(store) > ROWS:
            break
    assert done > 0
    succeed(f"append {sources}/more.npy {store}")
    assert files_of(store) == files_of(undisturbed)


@pytest.mark.promise(
    "An append that is repeated adds no rows, whatever failed after the first had added them"
)
def test_a_full_stdout_and_the_same_command_again_append_once(sources: Path) -> None:
    store = ingested(sources, "store")
    words = (f"append {sources}/more.npy {store}",)
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command(*words), stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, rows_in(store)) == (1, ROWS + NEW)
    again = run(*words, "--json")
    assert (again.code, json.loads(again.out)["rows_appended"]) == (0, 0)
    assert again.err == (
        f"{store} has these rows already, as ids 2,000 to 41,999 from {sources}/more.npy. "
        "Nothing is appended; --again appends them once more.\n"
    )
    assert rows_in(store) == ROWS + NEW
    succeed(*words, "--again")
    assert rows_in(store) == ROWS + 2 * NEW


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


@pytest.mark.timeout(300)
def test_appends_to_an_object_store_publish_the_same_objects(
    server: ObjectServer, sources: Path
) -> None:
    vectors, codes = ingested(sources, "vectors"), sources / "codes"
    succeed(f"encode {vectors} {codes}", *OPTIONS)
    url = f"s3://{BUCKET}/append"
    server.copy_from(vectors, "append/vectors")
    succeed(f"encode {url}/vectors {url}/codes", *OPTIONS)
    succeed(f"append {sources}/more.npy {vectors}")
    succeed(f"encode {vectors} {codes}", *OPTIONS)
    for publication in (1, 2, 3, 4):  # the receipt, the chunk, the header, and what follows it
        with pytest.raises(Killed), killed_at(publication, S3Location):
            invoke(f"append {sources}/more.npy {url}/vectors")
        assert json.loads(succeed(f"check {url}/vectors --json"))["faults"] == []
    succeed(f"append {sources}/more.npy {url}/vectors")
    assert server.objects("append/vectors") == files_of(vectors)
    succeed(f"encode {url}/vectors {url}/codes", *OPTIONS)
    grown = server.objects("append/codes")
    assert grown.keys() == files_of(codes).keys()
    assert {key for key in grown if grown[key] != files_of(codes)[key]} == {"zarr.json"}  # a path


@pytest.mark.timeout(300)
def test_jobs_wait_for_the_store_that_they_append_to(queue: Queue, sources: Path) -> None:
    store, codes = sources / "store", sources / "codes"
    jobs = [
        queue.submit(f"ingest {sources}/one.npy {sources}/two.npy {store}"),
        queue.submit(f"append {sources}/more.npy {store}"),
        queue.submit(f"encode {store} {codes}", *OPTIONS),
    ]
    assert [queue.wait(job)["state"] for job in jobs] == ["done"] * 3
    assert (rows_in(store), rows_in(codes)) == (ROWS + NEW, ROWS + NEW)
    assert queue.submit(f"append {sources}/more.npy {store}") == jobs[1]
    queue.wait(jobs[1])
    assert rows_in(store) == ROWS + NEW

"""Kill what runs jobs at random moments, and race for one store: it must end as if nothing had
happened."""

import json
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.queueing import Queue, kill, until
from tests.support.running import ENCODE, Cluster, count_receipts, files_of, finish, names_in, start

PARTS, PART_ROWS = 100, 30
OPTIONS = (*ENCODE, "--part-rows", PART_ROWS)
WORKERS = 3
TO_BE_DONE = (
    8,
    30,
    55,
)  # how many parts at least when the worker, the scheduler, the runner are killed


def survive(
    seed: int, vectors: Path, undisturbed: dict[str, bytes], folder: Path
) -> dict[str, Any]:
    """Encode on a scheduler and three workers; kill -9 a worker, the scheduler, then the runner;
    return what happened.

    The store must be the undisturbed one, byte for byte, and the job ``done``.
    """
    moments = random.Random(seed)  # noqa: S311 - moments, not secrets
    codes = folder / "codes"
    with _queue(folder) as queue, _cluster(folder / "first") as first:
        job = queue.submit(f"encode {vectors} {codes}", *OPTIONS, "--scheduler", first.address)
        counts = [_wait(codes, TO_BE_DONE[0], moments)]
        first.workers[moments.randrange(WORKERS)].send_signal(signal.SIGKILL)
        counts.append(_wait(codes, TO_BE_DONE[1], moments))
        first.scheduler.send_signal(signal.SIGKILL)
        lost = queue.wait(job)
        assert (lost["state"], lost["exit_code"]) == ("failed", 1), lost
        assert lost["why"].startswith("the cluster lost "), lost
        port = first.address.rsplit(":", 1)[1]
        with _cluster(folder / "second", "--port", port):
            queue.succeed("resume", job)
            counts.append(_wait(codes, TO_BE_DONE[2], moments))
            kill(*queue.runners())
            report = queue.wait(job)
        assert (report["state"], report["exit_code"], report["parts_done"]) == ("done", 0, PARTS), (
            report
        )
        assert all(count < PARTS for count in counts), "a kill came too late to show anything"
        assert files_of(codes) == undisturbed
        assert "codes" in names_in(folder)
        assert not [name for name in names_in(folder) if name.startswith(".codes")]
    return {"seed": seed, "parts when killed": counts, "runs": report["runs"]}


def race(seed: int, vectors: Path, undisturbed: dict[str, bytes], folder: Path) -> dict[str, Any]:
    """Let two submitters and two runners on each of two state folders race for one store; return
    who did how much.

    In every other race one of the two jobs is killed -9 at a random moment.
    """
    moments = random.Random(seed)  # noqa: S311 - moments, not secrets
    codes = folder / "codes"
    with _queue(folder / "one") as one, _queue(folder / "two") as two:
        words = (f"submit encode {vectors} {codes}", *OPTIONS, "--workers", 1)
        submitters = [
            start(*words, env=queue.environment) for queue in (one, two) for _ in range(2)
        ]
        runners = [start("runner", env=queue.environment) for queue in (one, two) for _ in range(2)]
        outcomes = [finish(process) for process in submitters]
        assert [outcome.code for outcome in outcomes] == [0] * 4, outcomes
        (job,) = {outcome.out.strip() for outcome in outcomes}
        if seed % 2:
            _wait(codes, 10, moments)
            workers = one.workers() + two.workers()
            kill(*workers[:1] if moments.random() < 0.5 else workers[1:])
        reports = [queue.wait(job) for queue in (one, two)]
        assert [report["state"] for report in reports] == ["done"] * 2, reports
        assert [finish(process).code for process in runners] == [0] * 4
        assert files_of(codes) == undisturbed
        assert names_in(folder) == ["codes", "one", "two"]
        done = [
            json.loads(Path(report["report"]).read_text())["parts_done_now"] for report in reports
        ]
        assert sum(done) <= PARTS, done
        assert seed % 2 or sum(done) == PARTS, "a part was done twice"
    return {
        "seed": seed,
        "parts done by each": done,
        "runs": [report["runs"] for report in reports],
    }


def _wait(store: Path, count: int, moments: random.Random) -> int:
    """Wait until so many parts are done, then for a moment; return how many are."""
    until(lambda: count_receipts(store) >= count)
    time.sleep(moments.uniform(0, 0.05))
    return count_receipts(store)


@contextmanager
def _queue(folder: Path) -> Iterator[Queue]:
    folder.mkdir(parents=True, exist_ok=True)
    queue = Queue(folder)
    try:
        yield queue
    finally:
        queue.kill()


@contextmanager
def _cluster(folder: Path, *options: str) -> Iterator[Cluster]:
    folder.mkdir()
    cluster = Cluster(folder, WORKERS, options=("--no-dashboard", *options))
    try:
        yield cluster
    finally:
        cluster.end()

"""Commands that write to one place at once, and are killed at random: one works, the others wait
for it."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mercore.pipeline.search.exact import ExactSearch
from mercore.pipeline.search.thread_executor import ThreadExecutor
from mercore.stores.location.file_lock import take
from mercore.stores.location.lease import lease
from mercore.stores.vector_writer import VectorWriter
from tests.support.running import (
    ENCODE,
    count_receipts,
    files_of,
    finish,
    invoke,
    names_in,
    run,
    start,
    succeed,
    wait_for_receipts,
)

PARTS = 60
OPTIONS = (*ENCODE, "--part-rows", 50)
LOST = (
    r"mercore: {} is no longer this process's to write: found that {} is gone, expected "
    r"process \d+ on .*\. Fix: .*\n"
)


@pytest.fixture
def undisturbed(codes: Path) -> dict[str, bytes]:
    """Every file of a store of 60 parts that nothing disturbed."""
    return files_of(codes)


def owner_of(store: Path) -> int | None:
    """Return the process that works on a store."""
    try:
        return int(store.with_name(f".{store.name}.lease").read_text().split()[1])
    except (FileNotFoundError, IndexError):
        return None


def first_words(process: "subprocess.Popen[str]") -> str:
    """Return the first line that a command says on stderr."""
    assert process.stderr is not None
    return process.stderr.readline()


def wait_for_parts(store: Path, count: int, processes: list["subprocess.Popen[str]"]) -> None:
    """Look until so many parts are done, or nobody works any more."""
    give_up = time.monotonic() + 120
    while count_receipts(store) < count and any(process.poll() is None for process in processes):
        assert time.monotonic() < give_up
        time.sleep(0.001)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "commands"), [(0, 2), (3, 4)])
def test_of_commands_that_encode_one_store_those_that_live_succeed(
    seed: int, commands: int, vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    store, rng = tmp_path / "codes", np.random.default_rng(seed)
    started = [start(f"encode {vectors} {store}", *OPTIONS, "--json") for _ in range(commands)]
    for _ in range(commands - 1):
        wait_for_parts(
            store, count_receipts(store) + int(rng.integers(0, PARTS // commands)), started
        )
        owner = owner_of(store)
        at_work = [process for process in started if process.pid == owner]
        victim = (
            at_work[0]
            if at_work and rng.random() < 0.7
            else started[int(rng.integers(len(started)))]
        )
        started.remove(victim)
        victim.kill()
        finish(victim)
    (survivor,) = map(finish, started)
    assert survivor.code == 0, survivor.err
    assert "Traceback" not in survivor.err
    assert json.loads(survivor.out)["parts_done_now"] <= PARTS
    assert files_of(store) == undisturbed
    last = run(
        f"encode {vectors} {store}", *OPTIONS, "--json"
    )  # a waiter killed as the last left may have left its file
    assert (last.code, json.loads(last.out)["parts_done_now"]) == (0, 0)
    assert names_in(tmp_path) == ["codes"]


@pytest.mark.slow
@pytest.mark.promise(
    "One command at a time writes to a location; the second waits and then finds all done"
)
def test_a_second_command_waits_says_so_and_finds_all_done(
    vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    store = tmp_path / "codes"
    first = start(f"encode {vectors} {store}", *OPTIONS, "--json")
    wait_for_receipts(store, 1, first)
    first.send_signal(signal.SIGSTOP)
    second = start(f"encode {vectors} {store}", *OPTIONS, "--json")
    said = first_words(second)
    first.send_signal(signal.SIGCONT)
    assert re.fullmatch(
        rf"waiting for {store}: process {first.pid} on \S+ since .* UTC is at work on it\n", said
    )
    outcomes = [finish(process) for process in (first, second)]
    assert [(outcome.code, outcome.err) for outcome in outcomes] == [(0, "")] * 2
    assert [json.loads(outcome.out)["parts_done_now"] for outcome in outcomes] == [PARTS, 0]
    assert files_of(store) == undisturbed
    assert names_in(tmp_path) == ["codes"]


@pytest.mark.slow
@pytest.mark.promise("A killed owner is followed at once, a stopped one is waited for")
def test_a_killed_command_is_followed_at_once_by_one_that_waits(
    vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    store = tmp_path / "codes"
    first = start(f"encode {vectors} {store}", *OPTIONS)
    wait_for_receipts(store, 1, first)
    first.send_signal(signal.SIGSTOP)
    second = start(f"encode {vectors} {store}", *OPTIONS, "--json")
    assert first_words(second).startswith("waiting for ")
    done = count_receipts(store)
    first.kill()
    finish(first)
    outcome = finish(second)
    assert outcome.code == 0, outcome.err
    assert outcome.err == f"parts: {done} of {PARTS} done, {PARTS - done} missing, 0 wrong\n"
    assert json.loads(outcome.out)["parts_done_now"] == PARTS - done < PARTS
    assert files_of(store) == undisturbed
    assert names_in(tmp_path) == ["codes"]


@pytest.mark.slow
def test_ctrl_c_ends_the_wait(vectors: Path, tmp_path: Path) -> None:
    with lease(tmp_path / "codes") as handle:
        process = start(
            f"encode {vectors} {tmp_path}/codes",
            *OPTIONS,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert first_words(process).startswith("waiting for ")
        process.send_signal(signal.SIGINT)
        outcome = finish(process)
        assert (outcome.code, outcome.out) == (130, "")
        assert (
            outcome.err
            == "mercore: interrupted. Fix: run the same command again; encode keeps the parts "
            "that are done.\n"
        )
        assert names_in(tmp_path) == [".codes.lease"]
        handle.check()


@pytest.mark.slow
@pytest.mark.promise("A command that lost its lease stops before the next part")
def test_an_encode_that_lost_its_lease_stops_before_the_next_part(
    vectors: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    store, place = tmp_path / "codes", tmp_path / ".codes.lease"
    process = start(f"encode {vectors} {store}", *OPTIONS)
    wait_for_receipts(store, 5, process)
    place.unlink()
    outcome = finish(process)
    assert (outcome.code, outcome.out) == (1, "")
    assert re.fullmatch(LOST.format(store, place), outcome.err), outcome.err
    assert 5 <= count_receipts(store) < PARTS
    succeed(f"encode {vectors} {store}", *OPTIONS)
    assert files_of(store) == undisturbed
    assert names_in(tmp_path) == ["codes"]


WRITING: dict[str, tuple[str, Callable[[Path, Path], list[object]]]] = {
    "ingest": ("new", lambda data, out: ["ingest", data / "base.npy", out]),
    "encode": ("new", lambda data, out: ["encode", data / "vectors", out, *ENCODE]),
    "search": ("hits.npz", lambda data, out: [*exactly(data), "--check-all", "--out", out]),
    "compare": ("compared", lambda data, out: [*comparing(data), "--out", out]),
}


def exactly(data: Path) -> list[object]:
    """Return the words of an exact search of twelve queries, three at a time."""
    words = [
        "search",
        data / "vectors",
        data / "queries.npy",
        "--kernel",
        "chi2",
        "-k",
        3,
        "--exact",
        "--batch",
        3,
    ]
    return list(words)


def comparing(data: Path) -> list[object]:
    """Return the words of a comparison of two small encoders."""
    encoders = [
        word for bits in (32, 64) for word in ("--encoder", f"kpca-lsh:landmarks=64,bits={bits}")
    ]
    return [
        "compare",
        data / "vectors",
        data / "queries.npy",
        "--kernel",
        "chi2",
        "--ranks",
        "1,10",
        *encoders,
    ]


@pytest.mark.parametrize("verb", WRITING)
def test_verbs_that_write_wait_their_turn(
    verb: str, vectors: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, words = WRITING[verb]
    with ExitStack() as stack:
        stack.enter_context(lease(tmp_path / name))

        def give_back(path: Path, *, wait: bool = False) -> int | None:
            if wait:
                assert set(names_in(tmp_path)) <= {f".{name}.lease", "compared"}
                stack.close()
            return take(path, wait=wait)

        monkeypatch.setattr("mercore.stores.location.lease.take", give_back)
        outcome = invoke(*words(data, tmp_path / name))
    assert outcome.code == 0, outcome.err
    assert outcome.err.startswith(f"waiting for {tmp_path / name}: process ")
    assert not [left for left in names_in(tmp_path) if left.startswith(".")]


@pytest.mark.parametrize(
    ("verb", "kind", "method"),
    [
        ("ingest", VectorWriter, "append"),
        ("search", ExactSearch, "prove"),
        ("search", ThreadExecutor, "check_rest"),
    ],
)
@pytest.mark.promise("A command that lost its lease stops before the next part")
def test_verbs_that_lost_their_lease_stop(
    verb: str,
    kind: type,
    method: str,
    vectors: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, words = WRITING[verb]
    place = tmp_path / f".{name}.lease"
    really = getattr(kind, method)

    def remove(*arguments: Any) -> Any:
        place.unlink(missing_ok=True)
        return really(*arguments)

    monkeypatch.setattr(kind, method, remove)
    outcome = invoke(*words(data, tmp_path / name))
    assert (outcome.code, outcome.out) == (1, "")
    assert re.fullmatch(LOST.format(tmp_path / name, place), outcome.err), outcome.err
    assert not (tmp_path / name).exists()
    kept = list(tmp_path.glob("*.parts/batch-*.npz"))
    assert len(kept) == (
        4 if method == "check_rest" else 0
    )  # by then all batches had been answered
    monkeypatch.undo()
    succeed(*words(data, tmp_path / name))
    assert not [
        left for left in names_in(tmp_path) if left.startswith(".") or left.endswith(".parts")
    ]


def test_a_comparison_that_lost_its_lease_records_no_more(
    vectors: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mercore.jobs.comparison import compare
    from mercore.jobs.comparison import setup as compared

    place, really = tmp_path / ".compared.lease", compare._record

    def record(*arguments: Any) -> None:
        really(*arguments)
        place.unlink()

    monkeypatch.setattr(compare, "_record", record)
    outcome = invoke(*WRITING["compare"][1](data, tmp_path / "compared"))
    assert (outcome.code, outcome.out) == (1, "")
    assert re.fullmatch(
        LOST.format(tmp_path / "compared", place), outcome.err.splitlines(keepends=True)[-1]
    )
    assert len(compared.read_records(tmp_path / "compared/compare.json")) == 1


@pytest.mark.promise("Verbs that read do not wait")
def test_verbs_that_read_do_not_wait(
    codes: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease(codes), lease(data / "vectors"):

        def at_once(path: Path, *, wait: bool = False) -> int | None:
            assert not wait
            return take(path)

        monkeypatch.setattr("mercore.stores.location.lease.take", at_once)
        for words in (
            ["info", codes],
            ["check", codes],
            [f"search {codes} {data}/queries.npy -k 3"],
            [f"search {codes} {data}/queries.npy -k 3 --out {tmp_path}/hits.npz"],
            exactly(data),
        ):
            assert invoke(*words).code == 0

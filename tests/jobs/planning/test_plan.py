"""Plans: the verbs' own options, bytes that come true, nothing written, and refusals before any
work."""

import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from mercore.jobs.cli import main
from mercore.jobs.face.commands import call_of
from mercore.jobs.face.declaring import VERBS
from mercore.jobs.planning.report import refuse_excess
from mercore.stores.errors import BudgetError
from mercore.stores.location.local import LocalLocation
from mercore.stores.location.resolve import location_of
from tests.support.running import histograms, invoke, names_in, succeed

ASKA = ("--encoder", "aska", "--atoms", 64, "--sparsity", 4)
ENCODE = ("--kernel", "chi2", *ASKA, "--part-rows", 500)
GROUPS = ("--kernel", "chi2", "--encoder", "bin-bound", "--groups", 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, a vector store of them, queries, and bounds."""
    made = tmp_path_factory.mktemp("plan")
    np.save(made / "rows.npy", histograms(3000, 24, seed=1))
    np.save(made / "queries.npy", histograms(30, 24, seed=2))
    succeed(f"ingest {made}/rows.npy {made}/vectors")
    succeed(f"encode {made}/vectors {made}/bounds", *GROUPS)
    return made


def planned(*words: object) -> dict[str, Any]:
    """Return what ``mercore plan`` says, as JSON."""
    found: dict[str, Any] = json.loads(succeed("plan", *words, "--json"))
    return found


@pytest.mark.parametrize("verb", ["encode", "search", "ingest"])
@pytest.mark.promise("A plan takes the options of its verb")
def test_a_plan_has_the_options_of_its_verb(verb: str) -> None:
    plan = main.commands["plan"]
    options = {name for parameter in plan.commands[verb].params for name in parameter.opts}  # type: ignore[attr-defined]
    assert options == {
        name for parameter in main.commands[verb].params for name in parameter.opts
    } | {"--cores"}


@pytest.mark.parametrize("extra", [(), ("--compressor", "zstd"), GROUPS[2:]])
@pytest.mark.promise("A plan writes nothing, and its bytes come true")
def test_the_bytes_of_codes_come_true_and_nothing_is_written(
    tmp_path: Path, folder: Path, extra: Sequence[Any]
) -> None:
    words = (
        "encode",
        folder / "vectors",
        tmp_path / "codes",
        *(GROUPS if "--groups" in extra else (*ENCODE, *extra)),
    )
    plan = planned(*words)
    assert names_in(tmp_path) == []
    succeed(*words)
    stored = location_of(tmp_path / "codes").stored_bytes()
    assert plan["bytes"] == pytest.approx(stored, rel=0.01 if not extra else 0.05)
    assert plan["free"] > 0
    assert plan["times"][0]["seconds"] > plan["seconds_before_encoding"] > 0
    assert planned(*words)["parts_left"] == 0


@pytest.mark.parametrize("compressor", ["none", "zstd"])
@pytest.mark.promise("A plan writes nothing, and its bytes come true")
def test_the_bytes_of_vectors_come_true(tmp_path: Path, folder: Path, compressor: str) -> None:
    words = ("ingest", folder / "rows.npy", tmp_path / "vectors", "--compressor", compressor)
    plan = planned(*words)
    assert names_in(tmp_path) == []
    succeed(*words)
    assert plan["bytes"] == pytest.approx(
        location_of(tmp_path / "vectors").stored_bytes(), rel=0.02
    )


class Search(NamedTuple):
    """A search and the store it is of."""

    store: str
    words: Sequence[object]


@pytest.mark.parametrize(
    "search",
    [
        Search("bounds", ("-k", 5)),
        Search("bounds", ("-k", 5, "--rerank", 50)),
        Search("bounds", ("-k", 5, "--exact")),
        Search("vectors", ("-k", 5, "--kernel", "chi2")),
        Search("vectors", ("-k", 5, "--kernel", "chi2", "--exact")),
    ],
)
def test_a_search_is_timed_on_the_cores_here_and_on_more(folder: Path, search: Search) -> None:
    before = names_in(folder)
    plan = planned(
        "search",
        folder / search.store,
        folder / "queries.npy",
        *search.words,
        "--batch",
        10,
        "--cores",
        3,
    )
    here = len(os.sched_getaffinity(0))
    assert [each["cores"] for each in plan["times"]] == sorted({here, 3})
    assert (plan["passes"], plan["batch"], plan["rows"]) == (3, 10, 3000)
    for each in plan["times"]:
        assert each["seconds"] > 0
        assert each["measured"] == (each["cores"] == here)
    assert names_in(folder) == before


@pytest.mark.parametrize(
    "words",
    [("graph", "vectors", "--kernel", "chi2", "-k", 5), ("pairs", "bounds", "--within", 0.9)],
)
def test_a_search_of_rows_by_themselves_is_planned(folder: Path, words: Sequence[object]) -> None:
    before, (verb, store, *options) = names_in(folder), words
    plan = planned(verb, folder / str(store), *options, "--batch", 1000, "--cores", 3)
    assert (plan["passes"], plan["batch"], plan["rows"]) == (3, 1000, 3000)
    assert all(each["seconds"] > 0 for each in plan["times"])
    assert names_in(folder) == before


@pytest.mark.slow
@pytest.mark.parametrize("exact", [(), ("--exact",)])
@pytest.mark.promise("A plan of a long search takes about a second of one core")
def test_a_plan_of_a_long_search_takes_about_a_second(
    tmp_path: Path, exact: Sequence[object]
) -> None:
    np.save(tmp_path / "rows.npy", histograms(200_000, 128, seed=3))
    np.save(tmp_path / "queries.npy", histograms(1000, 128, seed=4))
    succeed(f"ingest {tmp_path}/rows.npy {tmp_path}/vectors")
    words = ("search", tmp_path / "vectors", tmp_path / "queries.npy", "--kernel", "chi2", *exact)
    planned(*words)  # loads the functions
    began = time.process_time()
    planned(*words)
    assert time.process_time() - began < 1.5


@pytest.mark.promise("A plan over the budget is printed, with exit code 1")
def test_a_plan_over_budget_is_printed_and_then_refused(tmp_path: Path, folder: Path) -> None:
    for words in (
        ("encode", folder / "vectors", tmp_path / "codes", *ENCODE),
        ("search", folder / "bounds", folder / "queries.npy"),
    ):
        outcome = invoke("plan", *words, "--memory", "1MB")
        assert outcome.code == 1
        assert "memory, at most" in outcome.out
        assert outcome.err.splitlines()[-1].startswith("mercore: this would take ")
        assert " of memory: expected at most 1 MB, as --memory says. Fix: " in outcome.err


@pytest.mark.promise("What does not fit is refused before it runs")
def test_what_the_disk_has_no_room_for_is_refused(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalLocation, "free_bytes", lambda self: 1000)
    for words, work in (
        (
            ("encode", folder / "vectors", tmp_path / "new", *ENCODE),
            r"encoding would write [\d.]+ kB",
        ),
        (("ingest", folder / "rows.npy", tmp_path / "new"), r"ingesting would write [\d.]+ [kM]B"),
    ):
        outcome = invoke(*words)
        assert (outcome.code, outcome.out) == (1, "")
        room = re.escape(
            f": expected at most 1 kB, which is free for {tmp_path / 'new'}. "
            "Fix: free space there, or name a path on another disk.\n"
        )
        assert re.fullmatch(f"mercore: {work}{room}", outcome.err)
        outcome = invoke("plan", *words)
        assert outcome.code == 1
        assert "bytes on disk" in outcome.out
        assert "expected at most 1 kB, which is free for" in outcome.err
    assert names_in(tmp_path) == []


def test_what_lies_there_already_needs_no_room() -> None:
    report = {"bytes": 1000, "bytes_there": 600, "path": "codes"}
    refuse_excess(report | {"free": 400}, None)
    message = (
        "this would write 400 B: expected at most 399 B, which is free for codes. Fix: "
        "free space there, or "
    )
    with pytest.raises(BudgetError, match=message):
        refuse_excess(report | {"free": 399}, None)


def open_task(name: str, arguments: list[str], options: dict[str, object]) -> Any:
    """Return a verb with everything open."""
    verb = VERBS[name]
    return call_of(verb, {**dict(zip(verb.parameters, arguments, strict=False)), **options}).task()


def test_what_a_job_would_exceed_is_told_without_a_measurement(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors, bounds, queries = (str(folder / name) for name in ("vectors", "bounds", "queries.npy"))
    new = str(tmp_path / "new")
    encode, search, ingest = [vectors, new], [bounds, queries], [str(folder / "rows.npy"), new]
    small: dict[str, object] = {"kernel": "chi2", "atoms": 64}
    few: dict[str, object] = {"k": 5}
    for task in (
        open_task("encode", encode, small),
        open_task("search", search, few),
        open_task("ingest", ingest, {}),
    ):
        task.check_limits()
    for options in (small, {"kernel": "chi2", "encoder": "bound"}):
        with pytest.raises(BudgetError, match=r"would take \d+ MB"):
            open_task("encode", encode, {**options, "memory": 1 << 20}).check_limits()
    for options in (few, {**few, "exact": True}, {**few, "rerank": 9}):
        with pytest.raises(BudgetError, match=r"searching would take"):
            open_task("search", search, {**options, "memory": 1 << 20}).check_limits()
    monkeypatch.setattr(LocalLocation, "free_bytes", lambda self: 1000)
    for task in (open_task("encode", encode, small), open_task("ingest", ingest, {})):
        with pytest.raises(BudgetError, match="which is free for"):
            task.check_limits()
    assert names_in(tmp_path) == []


@pytest.mark.promise(
    "Batches and threads shrink before a refusal, unless they are named; no answer changes"
)
def test_a_batch_and_threads_are_as_large_as_the_memory_allows(
    folder: Path, tmp_path: Path
) -> None:
    many = tmp_path / "many.npy"
    np.save(many, histograms(1024, 24, seed=5))
    words = (
        f"search {folder}/bounds {many} -k 2000 --threads 2 --out {tmp_path}/hits.npz --force",
    )
    succeed(*words)
    wanted = np.load(tmp_path / "hits.npz")["ids"]
    outcome = invoke(*words, "--memory", "480MB")
    assert outcome.code == 0
    assert "--memory allows no more than this: queries per batch: 128, threads: 2\n" in outcome.err
    assert np.array_equal(np.load(tmp_path / "hits.npz")["ids"], wanted)
    outcome = invoke(*words, "--memory", "480MB", "--batch", 1024)  # what the user named is kept
    assert outcome.code == 1
    assert "searching would take " in outcome.err

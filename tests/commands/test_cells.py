"""An index of cells by the command line: index, kill and run again, search, check, plan, submit."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mercore
from mercore.stores.results.hits import Hits, open_hits
from tests.commands.test_happy_path import assert_same, hits_of
from tests.support.queueing import Queue
from tests.support.running import (
    count_receipts,
    files_of,
    histograms,
    invoke,
    kill_after,
    names_in,
    run,
    start,
    succeed,
    wait_for_receipts,
)

ROWS, K, CELLS, PARTS = 3000, 10, 40, 15
ENCODE = "--kernel chi2 --encoder map-pq --subquantizers 16 --components 48 --part-rows 250".split()
OPTIONS = ("--cells", CELLS, "--part-rows", 200)


@pytest.fixture(scope="module")
def coded(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Codes of 12 parts."""
    store = tmp_path_factory.mktemp("codes") / "codes"
    succeed(f"encode {vectors} {store}", *ENCODE)
    return store


@pytest.fixture(scope="module")
def cells(coded: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty cells, in 15 parts."""
    store = tmp_path_factory.mktemp("cells") / "cells"
    succeed(f"index {coded} {store}", *OPTIONS)
    return store


@pytest.fixture(scope="module")
def exact(vectors: Path, data: Path) -> Hits:
    """Every row by the true kernel."""
    return hits_of(vectors, data / "queries.npy", "-k", ROWS, "--kernel", "chi2")


def test_an_index_says_what_it_is_and_is_whole(cells: Path, vectors: Path) -> None:
    report = json.loads(succeed(f"info {cells} --json"))
    assert (report["kind"], report["rows"], report["cells"]) == ("cells", ROWS, CELLS)
    assert (report["parts"], report["parts_done"]) == (PARTS, PARTS)
    assert report["source"] == str(vectors)
    assert report["bytes"] == ROWS * (16 + 4) + 2 * 4 * PARTS  # a checksum each column and part
    recalls = list(report["recall_at_10"].values())
    assert recalls == sorted(recalls)
    assert recalls[-1] > 0.9
    assert json.loads(succeed(f"check {cells} --json"))["faults"] == []
    assert names_in(cells.parent) == ["cells"]


def test_more_probes_find_more_and_a_reranked_hit_has_its_true_score(
    cells: Path, data: Path, exact: Hits
) -> None:
    assert exact.scores is not None
    found, scanned = [], []
    for probes in (1, 5, CELLS):
        words = (cells, data / "queries.npy", "-k", K, "--probes", probes, "--rerank", ROWS)
        report = json.loads(succeed("search", *words, "--json"))
        ids, scores = np.array(report["ids"]), np.array(report["scores"], float)
        for query, (row, score) in enumerate(zip(ids, scores, strict=True)):
            true = dict(zip(exact.ids[query].tolist(), exact.scores[query].tolist(), strict=True))
            assert [true[each] for each in row[row >= 0].tolist()] == score[row >= 0].tolist()
        pairs = zip(exact.ids[:, :K], ids, strict=True)
        found.append(np.mean([np.isin(*pair).mean() for pair in pairs]))
        scanned.append(report["rows_per_query"])
        assert report["share_of_rows"] == pytest.approx(scanned[-1] / ROWS, rel=1e-3)
        assert (report["probes"], report["reranked"]) == (probes, ROWS)
    assert found == sorted(found)
    assert scanned == sorted(scanned)
    assert (found[-1], scanned[-1]) == (1, ROWS)


@pytest.mark.promise(
    "The recall that an index expects is that of the true neighbours of its sample"
)
def test_a_recall_chooses_cells_and_codes_to_rerank(cells: Path, data: Path) -> None:
    words = (cells, data / "queries.npy", "-k", K)
    usual, more = (
        json.loads(succeed("search", *words, *recall, "--json"))
        for recall in ((), ("--recall", 0.99))
    )
    assert usual["expected_recall"] >= 0.95
    assert more["expected_recall"] >= 0.99
    assert (usual["probes"], usual["reranked"]) < (more["probes"], more["reranked"] + 1)
    printed = invoke("search", *words).err
    assert f"in {usual['probes']} of {CELLS} cells" in printed
    assert f"expected recall: {usual['expected_recall']:.3f}, that of sampled rows" in printed


def test_rows_that_take_no_part_are_no_hits(
    cells: Path, vectors: Path, coded: Path, data: Path, tmp_path: Path
) -> None:
    words = (data / "queries.npy", "-k", K)
    named = ("--among", "200:2600", "--without", "500:700")
    flat = hits_of(coded, *words, *named)
    assert_same(hits_of(cells, *words, "--probes", CELLS, *named), flat)
    reranked = hits_of(cells, *words, "--probes", CELLS, "--rerank", 50, *named)
    assert_same(reranked, hits_of(coded, *words, "--rerank", 50, *named))
    copied = Path(shutil.copytree(vectors, tmp_path / "vectors"))
    np.save(tmp_path / "ids.npy", np.unique(flat.ids))
    succeed(f"delete {copied} {tmp_path}/ids.npy")
    left = hits_of(cells, *words, "--probes", CELLS, "--vectors", copied, "--rerank", K)
    assert not np.isin(left.ids, flat.ids).any()


def test_hits_within_a_threshold_are_the_k_nearest_of_them(
    cells: Path, data: Path, tmp_path: Path
) -> None:
    words = (cells, data / "queries.npy", "-k", K, "--probes", 9, "--rerank", 100)
    every = hits_of(*words)
    assert every.scores is not None
    threshold = float(np.median(every.scores))
    succeed("search", *words, "--within", threshold, "--out", tmp_path / "near.npz")
    near = open_hits(str(tmp_path / "near.npz"))
    kept = every.scores >= threshold
    assert np.array_equal(near.ids, np.where(kept, every.ids, -1))


def test_an_open_index_answers_as_a_search_does(cells: Path, data: Path) -> None:
    queries = np.load(data / "queries.npy")
    with mercore.open(cells) as index:
        assert "40 cells of codes of map-pq" in repr(index)
        assert len(index) == ROWS
        choices: list[dict[str, Any]] = [
            {"probes": 4},
            {"recall": 0.9},
            {"probes": 9, "rerank": 30},
            {"among": slice(100, 900), "probes": 20},
        ]
        for options in choices:
            _, expected = mercore.search(cells, queries, k=K, **options)
            assert_same(index.search(queries, k=K, **options), expected)
        assert index.prefetch() == ROWS * 20
        before = index.stats()["cells"]["bytes"]
        index.search(queries, k=K)
        assert index.stats()["cells"]["bytes"] == before
        for refused in (
            lambda: index.search(queries, exact=True),
            lambda: index.search_within(queries, 0.5),
        ):
            with pytest.raises(mercore.MercoreError, match="search leaves rows out"):
                refused()
        with pytest.raises(mercore.MercoreError, match="probes has no use here"):
            index.search(queries, probes=3, recall=0.9)
        with pytest.raises(mercore.MercoreError, match="recall is out of range"):
            index.search(queries, recall=0)
    with pytest.raises(mercore.MercoreError, match="no index of cells"):
        mercore.open(data / "vectors", kernel="chi2").search(queries, probes=3)


def test_without_its_vectors_an_index_needs_a_number_of_cells(
    coded: Path, cells: Path, data: Path, tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(coded, tmp_path / "moved/codes"))
    header = json.loads((moved / "zarr.json").read_text())
    assert header["attributes"]["mercore"]["notes"]["source_path"]
    vectors, away = data / "vectors", tmp_path / "away"
    vectors.rename(away)
    try:
        made = invoke(f"index {moved} {tmp_path}/cells", *OPTIONS)
        assert made.code == 0, made.err
        assert "recall is not measured, so --probes has no default" in made.err
        refused = invoke(f"search {tmp_path}/cells {data}/queries.npy -k {K}")
        assert (refused.code, refused.out) == (2, "")
        assert "was not measured when it was made" in refused.err
        words = (data / "queries.npy", "-k", K, "--probes", 7)
        assert_same(hits_of(tmp_path / "cells", *words), hits_of(cells, *words))
        succeed(f"index {moved} {tmp_path}/named --vectors {away}", *OPTIONS)
    finally:
        away.rename(vectors)
    assert files_of(tmp_path / "named/rows") == files_of(cells / "rows")


@pytest.mark.promise("A killed index resumes to the bytes of an undisturbed run")
def test_indexing_again_mends_what_is_missing_or_damaged_and_only_that(
    coded: Path, cells: Path, tmp_path: Path
) -> None:
    store = Path(shutil.copytree(cells, tmp_path / "cells"))
    whole = files_of(store)
    (store / "receipts/c/5/0").unlink()
    chunk = store / "rows/c/11"
    chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    (store / "model/starts/c/0").unlink()
    again = invoke(f"index {coded} {store}", *OPTIONS, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["parts_done_now"] == 2
    assert "doing part 11 again: " in again.err
    assert files_of(store) == whole
    nothing = json.loads(succeed(f"index {coded} {store}", *OPTIONS, "--json"))
    assert nothing["parts_done_now"] == 0
    assert names_in(tmp_path) == ["cells"]


def test_memory_for_a_part_at_a_time_writes_the_same_bytes(
    coded: Path, cells: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercore.jobs.verbs.cells.CellsTask.needed", lambda _, __, parts: parts)
    monkeypatch.setattr("mercore.jobs.resources.limits.INTERPRETER_BYTES", 0)
    small = invoke(f"index {coded} {tmp_path}/cells", *OPTIONS, "--memory", 1)
    assert small.code == 0, small.err
    assert files_of(tmp_path / "cells") == files_of(cells)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("index", "CODES", "new", "--cells", 0), "cells is out of range: found 0"),
        (("index", "CODES", "new", "--cells", 4000), "expected 1 to 3000"),
        (("index", "CODES", "new", "--orders", 9), "--orders has no use here"),
        (("index", "CODES", "new", "--memory", "1MB"), "indexing would take"),
        (("index", "CODES", "CODES"), "exists and is no index of cells"),
        (("index", "CODES", "CELLS", "--cells", 7), "cells (40, not 7)"),
        (("search", "CELLS", "QUERIES", "--probes", 41), "expected 1 to 40, the cells"),
        (("search", "CELLS", "QUERIES", "--recall", 1.5), "recall is out of range: found 1.5"),
        (("search", "CELLS", "QUERIES", "--recall", 0.9, "--probes", 2), "--probes has no use"),
        (("search", "CELLS", "QUERIES", "--exact"), "--exact has no use here"),
        (("search", "CELLS", "QUERIES", "--within", 0.5), "found --within without -k"),
        (("search", "CELLS", "QUERIES", "--neighbours", 5), "--neighbours has no use here"),
        (("search", "CELLS", "QUERIES", "--kernel", "ip"), ": found --kernel inner_product"),
        (("search", "CELLS", "QUERIES", "-k", 4000), "k is out of range: found 4000"),
        (("search", "CODES", "QUERIES", "--probes", 2), "--probes has no use here"),
    ],
)
def test_wrong_input_is_refused_before_any_work(
    words: tuple[object, ...],
    message: str,
    coded: Path,
    cells: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = {"CODES": coded, "CELLS": cells, "QUERIES": data / "queries.npy"}
    refused = invoke(*(paths.get(str(word), word) for word in words))
    assert (refused.code, refused.out) in ((1, ""), (2, ""))
    assert message in refused.err
    assert "Fix: " in refused.err
    assert names_in(tmp_path) == []


def test_a_part_that_is_damaged_gives_no_answer(cells: Path, data: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(cells, tmp_path / "cells"))
    for chunk in store.glob("code/c/*/0"):
        chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    refused = invoke(f"search {store} {data}/queries.npy -k {K}")
    assert (refused.code, refused.out) == (1, "")
    assert "column code has no checksum of its own bytes" in refused.err
    assert "Fix: run the same mercore index again" in refused.err


def test_plans_of_an_index_and_of_its_search(
    coded: Path, cells: Path, data: Path, tmp_path: Path
) -> None:
    planned = json.loads(succeed(f"plan index {coded} {tmp_path}/cells", *OPTIONS, "--json"))
    size = json.loads(succeed(f"info {cells} --json"))["bytes"]
    assert planned["bytes_of"]["code"] + planned["bytes_of"]["rows"] == size
    assert planned["bytes_of"]["sorted_parts"] > size
    assert all(entry["seconds"] > 0 for entry in planned["times"])
    searched = json.loads(succeed(f"plan search {cells} {data}/queries.npy --json"))
    assert searched["passes"] == 1
    assert all(entry["seconds"] > 0 for entry in searched["times"])
    assert names_in(tmp_path) == []


def _before_parts(store: Path) -> int:
    return count_receipts(Path(f"{store}.sorted")) + count_receipts(store)


@pytest.mark.slow
@pytest.mark.promise("A killed index resumes to the bytes of an undisturbed run")
def test_kills_and_resumptions_leave_the_undisturbed_index(coded: Path, tmp_path: Path) -> None:
    options = ("--cells", CELLS, "--part-rows", 20)
    store, rng = tmp_path / "cells", np.random.default_rng(4)
    words = (f"index {coded} {store}", *options, "--workers", 2)
    first = start(*words)
    wait_for_receipts(Path(f"{store}.sorted"), int(rng.integers(2, 9)), first)
    kill_after(first, int(rng.integers(0, 4_000)))
    for wanted in (20, 60):
        process = start(*words)
        wait_for_receipts(store, wanted, process)
        kill_after(process, int(rng.integers(0, 4_000)))
    done = count_receipts(store)
    last = run(*words, "--json")
    assert last.code == 0, last.err
    assert json.loads(last.out)["parts_done_now"] == 150 - done
    succeed(f"index {coded} {tmp_path}/undisturbed", *options)
    assert files_of(store) == files_of(tmp_path / "undisturbed")
    assert names_in(tmp_path) == ["cells", "undisturbed"]


@pytest.mark.slow
def test_processes_index_and_rerank_as_threads_do(
    coded: Path, cells: Path, data: Path, tmp_path: Path
) -> None:
    succeed(f"index {coded} {tmp_path}/cells", *OPTIONS, "--processes", 2)
    assert files_of(tmp_path / "cells") == files_of(cells)
    words = (cells, data / "queries.npy", "-k", K, "--rerank", 40)
    assert_same(hits_of(*words, "--processes", 2), hits_of(*words))
    refused = invoke("search", cells, data / "queries.npy", "--probes", 2, "--processes", 2)
    assert "--processes has no use here" in refused.err


@pytest.mark.slow
def test_a_job_indexes(coded: Path, cells: Path, queue: Queue, tmp_path: Path) -> None:
    job = queue.submit(f"index {coded} {tmp_path}/cells", *OPTIONS)
    report = queue.wait(job)
    assert (report["state"], report["parts_done"]) == ("done", PARTS)
    assert files_of(tmp_path / "cells") == files_of(cells)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index of 1 300 rows, whose codes have grown to 1 730 rows and then 2 000."""
    folder = tmp_path_factory.mktemp("growing")
    rows = histograms(2000, 24, seed=9)
    for name, part in (("0", rows[:1300]), ("1", rows[1300:1730]), ("2", rows[1730:])):
        np.save(folder / f"{name}.npy", part)
    np.save(folder / "queries.npy", histograms(9, 24, seed=10))
    succeed(f"ingest {folder}/0.npy {folder}/vectors")
    succeed(f"encode {folder}/vectors {folder}/codes", *ENCODE)
    succeed(f"index {folder}/codes {folder}/first --cells 20 --part-rows 200")
    shutil.copytree(folder / "first", folder / "cells")
    for more in ("1", "2"):
        succeed(f"append {folder}/{more}.npy {folder}/vectors")
        succeed(f"encode {folder}/vectors {folder}/codes", *ENCODE)
        grown = json.loads(succeed(f"index {folder}/codes {folder}/cells --json"))
        assert grown["parts_done_now"] in (3, 2)
    return folder


def test_appended_rows_are_found_without_building_anew(growing: Path) -> None:
    words = (growing / "queries.npy", "-k", K)
    flat = hits_of(growing / "codes", *words)
    assert (flat.ids >= 1300).any()
    assert (flat.ids >= 1730).any()
    assert_same(hits_of(growing / "cells", *words, "--probes", 20), flat)
    few = hits_of(growing / "cells", *words, "--probes", 3, "--rerank", 30)
    assert (few.ids >= 1300).any()
    report = json.loads(succeed(f"info {growing}/cells --json"))
    assert (report["rows"], report["parts"], report["parts_done"]) == (2000, 10, 10)
    assert json.loads(succeed(f"check {growing}/cells --json"))["faults"] == []
    with mercore.open(growing / "cells") as index:
        found = index.search(np.load(growing / "queries.npy"), k=K, probes=20)
    assert_same(found, flat)
    again = json.loads(succeed(f"index {growing}/codes {growing}/cells --json"))
    assert again["parts_done_now"] == 0


def test_an_index_that_has_not_grown_has_the_rows_of_before(growing: Path) -> None:
    words = (growing / "queries.npy", "-k", K, "--probes", 20)
    for more in ((), ("--rerank", 30)):
        searched = invoke("search", growing / "first", *words, *more)
        assert searched.code == 0, searched.err
        assert "newer rows are not searched" in searched.err
        ids = [int(line.split("\t")[2]) for line in searched.out.splitlines()[1:]]
        assert max(ids) < 1300


def test_a_grown_index_is_mended_in_every_run(growing: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(growing / "cells", tmp_path / "cells"))
    whole = files_of(store)
    for part in (0, 6, 8, 9):
        (store / f"receipts/c/{part}/0").unlink()
    chunk = store / "code/c/7/0"
    chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    again = json.loads(succeed(f"index {growing}/codes {store} --json"))
    assert again["parts_done_now"] == 5
    for name, data in files_of(store).items():  # receipts name the state in which they were made
        assert name.startswith("receipts/") or data == whole[name]
    assert json.loads(succeed(f"check {store} --json"))["faults"] == []
    broken = Path(shutil.copytree(growing / "first", tmp_path / "first"))
    (broken / "receipts/c/3/0").unlink()
    refused = invoke(f"index {growing}/codes {broken}")
    assert (refused.code, refused.out) in ((1, ""), (2, ""))
    assert "is not whole, and its codes have grown" in refused.err


@pytest.mark.slow
def test_a_killed_growth_leaves_the_old_rows_or_all(growing: Path, tmp_path: Path) -> None:

    for place in ("once", "killed"):
        shutil.copytree(growing / "first", tmp_path / place)
    succeed(f"index {growing}/codes {tmp_path}/once")
    expected = files_of(tmp_path / "once")
    rng, words = np.random.default_rng(3), (f"index {growing}/codes {tmp_path}/killed",)
    flat = hits_of(growing / "codes", growing / "queries.npy", "-k", K)
    for wanted in (1, 3, 8, 10):
        process = start(*words)
        sorted_parts = tmp_path / "killed.sorted"
        watched, count = (sorted_parts, wanted) if wanted < 4 else (tmp_path / "killed", wanted)
        wait_for_receipts(watched, count, process)
        kill_after(process, int(rng.integers(0, 8_000)))
        searched = hits_of(tmp_path / "killed", growing / "queries.npy", "-k", K, "--probes", 20)
        assert searched.ids.max() < 1300 or np.array_equal(searched.ids, flat.ids)
    succeed(*words)
    assert files_of(tmp_path / "killed") == expected
    assert names_in(tmp_path) == ["killed", "once"]

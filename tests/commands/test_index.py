"""Sorted orders by the command line: index, kill and run again, search, check, plan, submit."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mercore.stores.results.hits import Hits, open_hits
from tests.commands.test_happy_path import assert_same, hits_of
from tests.support.queueing import Queue
from tests.support.running import (
    count_receipts,
    files_of,
    invoke,
    kill_after,
    names_in,
    run,
    start,
    succeed,
    wait_for_receipts,
)

ROWS, K, ORDERS, PART_ROWS, PARTS = 3000, 10, 8, 500, 48
KLSH = ("--kernel", "chi2", "--encoder", "klsh", "--landmarks", 100, "--subset", 20)
OPTIONS = ("--orders", ORDERS, "--part-rows", PART_ROWS)


@pytest.fixture(scope="module")
def codes(vectors: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Binary codes of 12 parts."""
    store = tmp_path_factory.mktemp("codes") / "codes"
    succeed(f"encode {vectors} {store}", *KLSH, "--bits", 128, "--part-rows", 250)
    return store


@pytest.fixture(scope="module")
def orders(codes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight orders of six parts each."""
    store = tmp_path_factory.mktemp("orders") / "orders"
    succeed(f"index {codes} {store}", *OPTIONS)
    return store


@pytest.fixture(scope="module")
def exact(vectors: Path, data: Path) -> Hits:
    """Every row by the true kernel."""
    return hits_of(vectors, data / "queries.npy", "-k", ROWS, "--kernel", "chi2")


def test_a_store_says_what_it_is_and_is_whole(orders: Path, vectors: Path) -> None:
    report = json.loads(succeed(f"info {orders} --json"))
    assert (report["kind"], report["rows"], report["orders"]) == ("orders", ROWS, ORDERS)
    assert (report["parts"], report["parts_done"]) == (PARTS, PARTS)
    assert report["source"] == str(vectors)
    assert report["bytes"] == PARTS * (12 * PART_ROWS + 8)  # a checksum each column and part
    assert json.loads(succeed(f"check {orders} --json"))["faults"] == []


@pytest.mark.promise(
    "A search of sorted orders scores the rows next to each query, by the true kernel"
)
def test_more_neighbours_find_more_and_a_hit_has_its_true_score(
    orders: Path, data: Path, exact: Hits
) -> None:
    assert exact.scores is not None
    true = dict(zip(zip(*_pairs(exact), strict=True), exact.scores.ravel().tolist(), strict=True))
    found, scored = [], []
    for neighbours in (0, 4, 40, ROWS):
        words = (orders, data / "queries.npy", "-k", K, "--neighbours", neighbours, "--json")
        report = json.loads(succeed("search", *words))
        hits = Hits(ids=np.array(report["ids"], np.int64), scores=np.array(report["scores"]))
        assert hits.scores is not None
        pairs = zip(*_pairs(hits), strict=True)
        assert [true[pair] for pair in pairs] == hits.scores.ravel().tolist()
        found.append(
            np.mean(
                [
                    len(np.intersect1d(*pair))
                    for pair in zip(hits.ids, exact.ids[:, :K], strict=True)
                ]
            )
        )
        scored.append(report["candidates_per_query"])
        assert report["share_of_rows"] == pytest.approx(scored[-1] / ROWS, rel=1e-3)
    assert found == sorted(found)
    assert scored == sorted(scored)
    assert scored[0] <= 2 * ORDERS
    assert found[-1] == K
    assert scored[-1] == ROWS


def _pairs(hits: Hits) -> tuple[list[int], list[int]]:
    queries = np.repeat(np.arange(len(hits.ids)), hits.ids.shape[1])
    return queries.tolist(), hits.ids.ravel().tolist()


@pytest.mark.promise(
    "A search of sorted orders scores the rows next to each query, by the true kernel"
)
def test_answers_do_not_depend_on_threads_batch_or_parts(
    orders: Path, codes: Path, data: Path, tmp_path: Path
) -> None:
    words = (data / "queries.npy", "-k", K, "--neighbours", 2)
    found = hits_of(orders, *words)
    for how in (("--threads", 1), ("--threads", 3, "--batch", 5), ("--batch", 1)):
        assert_same(hits_of(orders, *words, *how), found)
    succeed(f"index {codes} {tmp_path}/other --orders {ORDERS} --part-rows 700")
    assert_same(hits_of(tmp_path / "other", *words), found)


def test_fewer_candidates_than_neighbours_leave_the_rest_empty(
    orders: Path, data: Path, tmp_path: Path
) -> None:
    words = (orders, data / "queries.npy", "-k", 50)
    report = json.loads(succeed("search", *words, "--json"))
    absent = np.array(report["ids"]) < 0
    assert absent.any()
    assert all(
        score is None
        for row, empty in zip(report["scores"], absent, strict=True)
        for score in np.array(row)[empty]
    )
    printed = succeed("search", *words).splitlines()
    assert len(printed) == 1 + (~absent).sum()
    succeed("search", *words, "--out", tmp_path / "hits.npz")
    assert np.array_equal(open_hits(str(tmp_path / "hits.npz")).ids, report["ids"])


@pytest.mark.promise("A killed index resumes to the bytes of an undisturbed run")
def test_sorting_again_mends_what_is_missing_or_damaged_and_only_that(
    codes: Path, orders: Path, tmp_path: Path
) -> None:
    store = Path(shutil.copytree(orders, tmp_path / "orders"))
    whole = files_of(store)
    (store / "receipts/c/5/0").unlink()
    chunk = store / "rows/c/40"
    chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    (store / "model/key_bits/c/0/0").unlink()
    again = invoke(f"index {codes} {store}", *OPTIONS, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["parts_done_now"] == 2
    assert "doing part 40 again: " in again.err
    assert "parts: 46 of 48 done, 1 missing, 1 wrong\n" in again.err
    assert files_of(store) == whole


def test_a_part_that_is_damaged_gives_no_answer(orders: Path, data: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(orders, tmp_path / "orders"))
    for chunk in store.glob("keys/c/*"):
        chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    refused = invoke(f"search {store} {data}/queries.npy -k {K}")
    assert (refused.code, refused.out) == (1, "")
    assert "column keys has no checksum of its own bytes" in refused.err
    (store / "receipts/c/0/0").unlink()
    refused = invoke(f"search {store} {data}/queries.npy -k {K}")
    assert (refused.code, refused.out) == (1, "")
    assert "part 0: it has no receipt, so it is not done" in refused.err
    assert "Fix: run the same mercore index again" in refused.err


def test_memory_for_a_part_at_a_time_writes_the_same_bytes(
    codes: Path, orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mercore.jobs.verbs.index.OrdersTask.run_bytes", lambda _, parts: parts)
    monkeypatch.setattr("mercore.jobs.resources.limits.INTERPRETER_BYTES", 0)
    small = invoke(f"index {codes} {tmp_path}/orders", *OPTIONS, "--memory", 1)
    assert small.code == 0, small.err
    assert files_of(tmp_path / "orders") == files_of(orders)


def test_other_options_are_another_store(codes: Path, orders: Path) -> None:
    refused = invoke(f"index {codes} {orders}", *OPTIONS, "--random-state", 9)
    assert refused.code == 2
    assert refused.err == (
        f"mercore: {orders} is another store: it differs in random_state (0, not 9). "
        "Fix: give the options it was made with, or name another path.\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("index", "CODES", "new", "--orders", 0), "orders is out of range: found 0"),
        (("index", "CODES", "new", "--epsilon", 0), "epsilon is 0.0: expected a number above 0"),
        (("index", "CODES", "new", "--part-rows", 0), "part_rows is out of range: found 0"),
        (("index", "VECTORS", "new"), "is a store of vectors: expected one of codes"),
        (("index", "CODES", "CODES"), "exists and is no store of orders"),
        (("search", "ORDERS", "QUERIES", "--rerank", 20), "--rerank has no use here"),
        (("search", "ORDERS", "QUERIES", "--exact"), "--exact has no use here"),
        (("search", "ORDERS", "QUERIES", "--gamma", 1), "has gamma none: found --gamma 1.0"),
        (("search", "ORDERS", "QUERIES", "--kernel", "ip"), ": found --kernel inner_product"),
        (("search", "ORDERS", "QUERIES", "--neighbours", -1), "neighbours is out of range"),
        (("search", "CODES", "QUERIES", "--neighbours", 1), "--neighbours has no use here"),
        (("search", "ORDERS", "QUERIES", "-k", 4000), "k is out of range: found 4000"),
    ],
)
def test_wrong_input_is_refused_before_any_work(
    words: tuple[object, ...],
    message: str,
    codes: Path,
    orders: Path,
    vectors: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = {"CODES": codes, "ORDERS": orders, "VECTORS": vectors, "QUERIES": data / "queries.npy"}
    refused = invoke(*(paths.get(str(word), word) for word in words))
    assert (refused.code, refused.out) in ((1, ""), (2, ""))
    assert message in refused.err
    assert "Fix: " in refused.err
    assert names_in(tmp_path) == []


def test_plans_of_an_index_and_of_its_search(
    codes: Path, orders: Path, data: Path, tmp_path: Path
) -> None:
    words = (f"plan index {codes} {tmp_path}/orders", *OPTIONS)
    planned = json.loads(succeed(*words, "--json"))
    size = sum(path.stat().st_size for path in orders.rglob("*") if path.is_file())
    assert planned["bytes"] == pytest.approx(size, rel=0.001)
    assert (planned["orders"], planned["parts"]) == (ORDERS, PARTS)
    assert all(entry["seconds"] > 0 for entry in planned["times"])
    assert names_in(tmp_path) == []
    refused = invoke(*words, "--memory", "1MB")
    assert refused.code == 1
    assert "expected at most 1 MB" in refused.err
    searched = json.loads(succeed(f"plan search {orders} {data}/queries.npy --json"))
    assert searched["passes"] == 1
    assert all(entry["seconds"] > 0 for entry in searched["times"])


@pytest.mark.slow
@pytest.mark.promise("A killed index resumes to the bytes of an undisturbed run")
def test_kills_and_resumptions_leave_the_undisturbed_store(codes: Path, tmp_path: Path) -> None:
    options = ("--orders", 5, "--part-rows", 100)
    store, rng, done = tmp_path / "orders", np.random.default_rng(4), 0
    for _ in range(2):
        process = start(f"index {codes} {store}", *options, "--workers", 2)
        wait_for_receipts(store, done + int(rng.integers(5, 40)), process)
        kill_after(process, int(rng.integers(0, 4_000)))
        before, done = done, count_receipts(store)
        assert before < done < 150
    last = run(f"index {codes} {store}", *options, "--json")
    assert last.code == 0, last.err
    assert json.loads(last.out)["parts_done_now"] == 150 - done
    succeed(f"index {codes} {tmp_path}/undisturbed", *options)
    assert files_of(store) == files_of(tmp_path / "undisturbed")
    assert names_in(tmp_path) == ["orders", "undisturbed"]


@pytest.mark.slow
def test_processes_sort_and_search_as_threads_do(
    codes: Path, orders: Path, data: Path, tmp_path: Path
) -> None:
    succeed(f"index {codes} {tmp_path}/orders", *OPTIONS, "--processes", 2)
    assert files_of(tmp_path / "orders") == files_of(orders)
    words = (orders, data / "queries.npy", "-k", K, "--neighbours", 3)
    assert_same(hits_of(*words, "--processes", 2), hits_of(*words))


@pytest.mark.slow
def test_a_job_sorts_orders(codes: Path, orders: Path, queue: Queue, tmp_path: Path) -> None:
    job = queue.submit(f"index {codes} {tmp_path}/orders", *OPTIONS)
    report = queue.wait(job)
    assert (report["state"], report["parts_done"]) == ("done", PARTS)
    assert files_of(tmp_path / "orders") == files_of(orders)

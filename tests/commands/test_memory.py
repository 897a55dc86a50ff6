"""Measured peaks of 205 MB of vectors stay under 320 MB, and under what ``--memory`` allowed."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.peaks import measured, peak, peak_with_children
from tests.support.running import histograms, invoke, names_in, succeed
from tests.support.tiers import slow_then_soak

DIMS = 256
LARGE, SMALL = 800_000, 100_000  # 205 MB and 26 MB
ALLOWED = 500_000_000  # what --memory says
WARM = 320_000_000  # of which the interpreter and its libraries take about 190, the loops compiled
ENCODE = ("--kernel", "hellinger", "--atoms", 256, "--sparsity", 2, "--workers", 2)


def measure(folder: Path, rows: int) -> list[int]:
    """Ingest, encode and search ``rows`` rows.

    Return the peak memory of four steps: ingest, encode, search of codes, search of vectors.
    """
    base = np.lib.format.open_memmap(
        str(folder / "rows.npy"), mode="w+", dtype=np.uint8, shape=(rows, DIMS)
    )
    block = histograms(10_000, DIMS, seed=7)
    for start in range(0, rows, len(block)):
        base[start : start + len(block)] = block
    base.flush()
    del base
    np.save(folder / "queries.npy", histograms(16, DIMS, seed=8))
    vectors, codes, queries = folder / "vectors", folder / "codes", folder / "queries.npy"
    searched = (
        f"-k 10 --batch 16 --threads 2 --out {folder}/hits.npz --memory {ALLOWED} --force".split()
    )
    return [
        peak(f"ingest {folder}/rows.npy {vectors}"),
        peak(f"encode {vectors} {codes}", *ENCODE, "--part-rows", 16384, "--memory", ALLOWED),
        peak(f"search {codes} {queries}", *searched),
        peak(f"search {vectors} {queries} --kernel hellinger", *searched),
    ]


@pytest.mark.slow
@pytest.mark.promise("`--memory` is a hard limit")
def test_peaks_stay_within_the_budget_and_do_not_grow_with_the_store(tmp_path: Path) -> None:
    for rows in (SMALL, LARGE):  # the small one also compiles the loops, if no run before this did
        (tmp_path / str(rows)).mkdir()
        peaks = measure(tmp_path / str(rows), rows)
        assert max(peaks) < ALLOWED, peaks
    assert max(peaks) < WARM, peaks


BUDGETS = (512_000_000, 1_000_000_000, 4_000_000_000)
OUTPUTS = (("codes", ""), ("hits", ".npz"), ("exact", ".npz"))
ROWS, WIDTH = 1_200_000, 500  # 600 MB, more than the least budget


def jittered(folder: Path) -> Path:
    """Write a vector store of more bytes than the least budget, and ``queries.npy``, each near some
    of its rows."""
    centres, step = histograms(1000, WIDTH, seed=7) // 2, 20_000
    rng = np.random.default_rng(9)
    base = np.lib.format.open_memmap(
        str(folder / "rows.npy"), mode="w+", dtype=np.uint8, shape=(ROWS, WIDTH)
    )
    for start in range(0, ROWS, step):
        base[start : start + step] = centres[rng.integers(0, 1000, step)] + rng.integers(
            0, 4, (step, WIDTH), np.uint8
        )
    np.save(
        folder / "queries.npy",
        base[rng.integers(0, ROWS, 128)] + rng.integers(0, 2, WIDTH, np.uint8),
    )
    base.flush()
    del base
    peak(f"ingest {folder}/rows.npy {folder}/vectors")
    (folder / "rows.npy").unlink()
    return folder / "vectors"


@pytest.mark.parametrize("budgets", slow_then_soak([[BUDGETS[0]], [*BUDGETS]]))
@pytest.mark.promise("`--memory` is a hard limit")
def test_budgets_hold_on_a_store_that_is_larger_than_the_least(
    budgets: list[int], tmp_path: Path
) -> None:
    vectors, queries = jittered(tmp_path), tmp_path / "queries.npy"
    small = "--kernel intersection --encoder bin-bound --groups 128 --training-rows 1024".split()
    answers = []
    for budget in budgets:
        codes, hits, exact = (tmp_path / f"{name}-{budget}{end}" for name, end in OUTPUTS)
        memory = ("--memory", budget)
        runs = [
            measured(f"encode {vectors} {codes}", *small, *memory),
            measured(f"search {codes} {queries} -k 10 --out {hits}", *memory),
            measured(f"search {codes} {queries} -k 10 --exact --out {exact}", *memory),
        ]
        assert max(run.peak for run in runs) <= budget, runs
        if budget in (BUDGETS[0], BUDGETS[-1]):
            assert ("--memory allows no more than this: " in runs[-1].outcome.err) == (
                budget == BUDGETS[0]
            )
        answers.append([np.load(path)["ids"] for path in (hits, exact)])
    for others in answers[1:]:
        assert all(
            np.array_equal(one, other) for one, other in zip(answers[0], others, strict=True)
        )


def planned(*words: object) -> int:
    """Return what a command that is refused says that it would take, in bytes, and a little
    more."""
    outcome = invoke(*words, "--memory", "1MB")
    found = re.fullmatch(
        r"mercore: [a-z ]+ would take ([\d.]+) ([MG]B): expected at most 1 MB, as --memory "
        r"says\. Fix: [^\n]+\n",
        outcome.err,
    )
    assert (outcome.code, outcome.out) == (1, "")
    assert found, outcome.err
    return int(float(found[1]) * {"MB": 1e6, "GB": 1e9}[found[2]] * 1.01)


@pytest.mark.slow
@pytest.mark.promise("`--memory` is a hard limit")
def test_exact_search_and_its_bounds_stay_within_what_they_plan(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", histograms(200_000, 64, seed=7))
    np.save(tmp_path / "queries.npy", histograms(256, 64, seed=8))
    np.save(tmp_path / "labels.npy", np.arange(200_000) % 7)
    np.save(tmp_path / "asked.npy", np.arange(256) % 7)
    labels = f"--other {tmp_path}/labels.npy --query-labels {tmp_path}/asked.npy"
    vectors, bounds, bins, codes = (
        tmp_path / name for name in ("vectors", "bounds", "bins", "codes")
    )
    out, queries = tmp_path / "hits.npz", tmp_path / "queries.npy"
    peak(f"ingest {tmp_path}/rows.npy {vectors}")
    small = ("--landmarks", 256, "--components", 64, "--workers", 2)
    quantised = (*small, "--subquantizers", 32)
    exact = ("-k", 10, "--exact", "--threads", 2, "--out", out, "--force")
    encode = (f"encode {vectors} {codes} --kernel chi2 --encoder kpca-pq", *quantised)
    allowed = planned(*encode)
    assert peak(*encode, "--memory", allowed) < allowed  # k-means takes more than WARM
    for words in (
        (f"encode {vectors} {bounds} --kernel chi2 --encoder kpca-bound", *small),
        (f"encode {vectors} {bins} --kernel chi2 --encoder bin-bound --workers 2",),
        (f"search {bounds} {queries}", *exact, "--batch", 64),
        (f"search {codes} {queries}", *exact, "--batch", 256),
        (f"search {bins} {queries}", *exact, "--batch", 256),
        (f"search {vectors} {queries} --kernel chi2 {labels}", *exact),
        (f"search {codes} {queries} {labels}", *exact, "--batch", 256),
        (f"search {vectors} {queries} --kernel chi2", *exact),
        (f"verify {vectors} {queries} {out} --kernel chi2 --bounds {bounds} --threads 2",),
    ):
        allowed = planned(*words)
        assert peak(*words, "--memory", allowed) < min(allowed, WARM), words


@pytest.mark.slow
@pytest.mark.promise("`--memory` is a hard limit")
def test_a_graph_whose_answers_take_more_than_the_memory_stays_within_what_it_plans(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "rows.npy", histograms(60_000, 16, seed=7))
    peak(f"ingest {tmp_path}/rows.npy {tmp_path}/vectors")
    line = f"graph {tmp_path}/vectors --kernel euclidean -k 100 --batch 512 --threads 2 --out"
    allowed = planned(f"{line} {tmp_path}/graph.npz")
    assert planned(f"{line} {tmp_path}/graph.parquet") > allowed + 60_000 * 100 * 16
    assert peak(f"{line} {tmp_path}/graph.npz --memory", allowed) < min(allowed, WARM)


@pytest.mark.slow
@pytest.mark.promise("`--memory` is a hard limit")
def test_sorted_orders_stay_within_what_they_plan(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", histograms(400_000, 32, seed=7))
    np.save(tmp_path / "queries.npy", histograms(256, 32, seed=8))
    vectors, codes, orders = (tmp_path / name for name in ("vectors", "codes", "orders"))
    peak(f"ingest {tmp_path}/rows.npy {vectors}")
    klsh = ("--encoder", "klsh", "--landmarks", 128, "--bits", 64)
    peak(f"encode {vectors} {codes} --kernel chi2", *klsh)
    scored = ("-k", 10, "--neighbours", 4, "--threads", 2, "--out", tmp_path / "hits.npz")
    for words in (
        (f"index {codes} {orders} --orders 8 --workers 2",),
        (f"search {orders} {tmp_path}/queries.npy", *scored),
    ):
        allowed = planned(*words)
        assert peak(*words, "--memory", allowed) < allowed, words


@pytest.mark.slow
def test_cells_stay_within_what_they_plan(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", histograms(400_000, 32, seed=7))
    np.save(tmp_path / "queries.npy", histograms(256, 32, seed=8))
    vectors, codes, cells = (tmp_path / name for name in ("vectors", "codes", "cells"))
    peak(f"ingest {tmp_path}/rows.npy {vectors}")
    peak(f"encode {vectors} {codes} --kernel chi2 --encoder map-pq --subquantizers 64")
    reranked = ("-k", 10, "--probes", 200, "--rerank", 100, "--threads", 2)
    for words in (
        (f"index {codes} {cells} --workers 2",),
        (f"search {cells} {tmp_path}/queries.npy --out {tmp_path}/hits.npz", *reranked),
    ):
        allowed = planned(*words)
        assert peak(*words, "--memory", allowed) < allowed, words


@pytest.mark.slow
def test_choosing_a_bound_stays_within_what_it_plans(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", histograms(5000, 256, seed=7))
    peak(f"ingest {tmp_path}/rows.npy {tmp_path}/vectors")
    words = (f"encode {tmp_path}/vectors {tmp_path}/bounds --kernel chi2 --encoder bound --force",)
    allowed = planned(*words)
    assert not (tmp_path / "bounds").exists()
    assert peak(*words, "--memory", allowed) < allowed


@pytest.mark.promise("What does not fit is refused before it runs")
def test_exact_work_that_would_not_fit_is_refused_before_it_runs(
    tmp_path: Path, vectors: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds, queries = tmp_path / "bounds", data / "queries.npy"
    small = ("--kernel", "chi2", "--encoder", "kpca-bound", "--landmarks", 64, "--components", 8)
    succeed(f"encode {vectors} {bounds}", *small)
    np.savez(tmp_path / "hits.npz", ids=np.zeros((12, 2000), np.int64))
    monkeypatch.setattr("mercore.jobs.verbs.searches.exact.ExactSearch", None)
    monkeypatch.setattr("mercore.jobs.verbs.choices.bound.choose_bound", None)
    wide = ("--batch", 65536)
    for words, work in (
        (
            (f"search {bounds} {queries} --exact -k 2000", *wide, "--out", tmp_path / "new.npz"),
            "searching",
        ),
        ((f"search {vectors} {queries} --exact -k 2000", *wide, "--kernel", "chi2"), "searching"),
        ((f"verify {vectors} {queries} {tmp_path}/hits.npz --kernel chi2", *wide), "searching"),
        ((f"encode {vectors} {tmp_path}/new --kernel chi2 --encoder bound",), "choosing a bound"),
    ):
        outcome = invoke(*words, "--memory", "357MB")
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err.startswith(f"mercore: {work} would take ")
        assert "expected at most 357 MB, as --memory says. Fix: " in outcome.err
    assert names_in(tmp_path) == ["bounds", "hits.npz"]


@pytest.mark.promise("What does not fit is refused before it runs")
def test_what_would_not_fit_is_refused_before_it_runs(
    tmp_path: Path, vectors: Path, codes: Path, data: Path
) -> None:
    for words in (
        [f"encode {vectors} {tmp_path}/codes --kernel chi2 --atoms 2900"],
        [f"search {codes} {data}/queries.npy -k 3000 --batch 65536"],
        [f"search {vectors} {data}/queries.npy -k 3000 --batch 65536 --kernel chi2"],
    ):
        outcome = invoke(*words, "--memory", "357MB")
        assert outcome.code == 1
        assert re.search(r" would take [\d.]+ [MG]B: ", outcome.err)
        assert "expected at most 357 MB, as --memory says" in outcome.err
        assert not (tmp_path / "codes").exists()


@pytest.mark.slow
@pytest.mark.promise("`--memory` is a hard limit")
def test_processes_stay_within_what_they_plan_together(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", histograms(200_000, 64, seed=7))
    np.save(tmp_path / "queries.npy", histograms(256, 64, seed=8))
    vectors, bounds, queries = (tmp_path / name for name in ("vectors", "bounds", "queries.npy"))
    peak(f"ingest {tmp_path}/rows.npy {vectors}")
    encode = f"encode {vectors} {bounds} --kernel chi2 --encoder bin-bound --groups 32"
    search = f"search {bounds} {queries} -k 10 --exact --out {tmp_path}/hits.npz --force"
    for words in (encode, search):
        peak(words)  # compiles
    shutil.rmtree(bounds)
    for words in (encode, search):
        allowed = planned(words, "--processes", 2)
        assert peak_with_children(words, "--processes", 2, "--memory", allowed) <= allowed

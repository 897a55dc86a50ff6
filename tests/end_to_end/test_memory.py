"""Measured peaks of 205 MB of vectors stay under 320 MB, and under what ``--memory`` allowed."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.running import finish, histograms, invoke, names_in, start_words, succeed

DIMS = 256
LARGE, SMALL = 800_000, 100_000  # 205 MB and 26 MB
ALLOWED = 500_000_000  # what --memory says
WARM = 320_000_000  # of which the interpreter and its libraries take about 190, the loops compiled
ENCODE = ("--kernel", "hellinger", "--atoms", 256, "--sparsity", 2, "--workers", 2)

# The command in a process that writes its own peak down: a parent's peak would count for a forked child.
LAUNCH = """
import atexit, pathlib, sys
note = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: note.write_text(pathlib.Path("/proc/self/status").read_text()))
from jobs.cli import main
main()
"""


def peak(folder: Path, *words: object) -> int:
    """Run the command line in a process of its own, and return its peak resident memory in bytes."""
    note = folder / "status"
    outcome = finish(start_words([sys.executable, "-c", LAUNCH, str(note), *map(str, words)]))
    assert outcome.code == 0, outcome.err
    (line,) = (line for line in note.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def measure(folder: Path, rows: int) -> list[int]:
    """Ingest, encode and search so many rows; return the peak of each step: ingest, encode, codes, vectors."""
    base = np.lib.format.open_memmap(str(folder / "rows.npy"), mode="w+", dtype=np.uint8, shape=(rows, DIMS))
    block = histograms(10_000, DIMS, seed=7)
    for start in range(0, rows, len(block)):
        base[start : start + len(block)] = block
    base.flush()
    del base
    np.save(folder / "queries.npy", histograms(16, DIMS, seed=8))
    vectors, codes, queries = folder / "vectors", folder / "codes", folder / "queries.npy"
    searched = ("-k", 10, "--batch", 16, "--threads", 2, "--out", folder / "hits.npz", "--memory", ALLOWED)
    return [
        peak(folder, "ingest", folder / "rows.npy", vectors),
        peak(folder, "encode", vectors, codes, *ENCODE, "--part-rows", 16384, "--memory", ALLOWED),
        peak(folder, "search", codes, queries, *searched),
        peak(folder, "search", vectors, queries, "--kernel", "hellinger", *searched),
    ]


@pytest.mark.slow
def test_peaks_stay_within_the_budget_and_do_not_grow_with_the_store(tmp_path: Path) -> None:
    for rows in (SMALL, LARGE):  # the small one also compiles the loops, if no run before this did
        (tmp_path / str(rows)).mkdir()
        peaks = measure(tmp_path / str(rows), rows)
        assert max(peaks) < ALLOWED, peaks
    assert max(peaks) < WARM, peaks


def planned(*words: object) -> int:
    """Return what a command that is refused says that it would take, in bytes, and a little more."""
    outcome = invoke(*words, "--memory", "1MB")
    found = re.fullmatch(
        r"mercore: [a-z ]+ would take (\d+\.\d\d) GiB: expected at most 0\.00 GiB, as --memory says\. Mend: [^\n]+\n",
        outcome.err,
    )
    assert (outcome.code, outcome.out) == (1, "")
    assert found, outcome.err
    return int((float(found[1]) + 0.01) * 2**30)


@pytest.mark.slow
def test_exact_search_and_its_bounds_stay_within_what_they_plan(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", histograms(200_000, 64, seed=7))
    np.save(tmp_path / "queries.npy", histograms(256, 64, seed=8))
    vectors, bounds, bins = (tmp_path / name for name in ("vectors", "bounds", "bins"))
    out, queries = tmp_path / "hits.npz", tmp_path / "queries.npy"
    peak(tmp_path, "ingest", tmp_path / "rows.npy", vectors)
    small = ("--landmarks", 256, "--components", 64, "--workers", 2)
    exact = ("-k", 10, "--exact", "--threads", 2, "--out", out)
    for words in (
        ("encode", vectors, bounds, "--kernel", "chi2", "--encoder", "kpca-bound", *small),
        ("encode", vectors, bins, "--kernel", "chi2", "--encoder", "bin-bound", "--workers", 2),
        ("search", bounds, queries, *exact, "--batch", 64),
        ("search", bins, queries, *exact, "--batch", 256),
        ("search", vectors, queries, "--kernel", "chi2", *exact),
        ("verify", vectors, queries, out, "--kernel", "chi2", "--bounds", bounds, "--threads", 2),
    ):
        allowed = planned(*words)
        assert peak(tmp_path, *words, "--memory", allowed) < min(allowed, WARM), words


@pytest.mark.slow
def test_choosing_a_bound_stays_within_what_it_plans(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", histograms(5000, 256, seed=7))
    peak(tmp_path, "ingest", tmp_path / "rows.npy", tmp_path / "vectors")
    words = ("encode", tmp_path / "vectors", tmp_path / "bounds", "--kernel", "chi2", "--encoder", "bound")
    allowed = planned(*words)
    assert not (tmp_path / "bounds").exists()
    assert peak(tmp_path, *words, "--memory", allowed) < allowed


def test_exact_work_that_would_not_fit_is_refused_before_it_runs(
    tmp_path: Path, vectors: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds, queries = tmp_path / "bounds", data / "queries.npy"
    small = ("--kernel", "chi2", "--encoder", "kpca-bound", "--landmarks", 64, "--components", 8)
    succeed("encode", vectors, bounds, *small)
    np.savez(tmp_path / "hits.npz", ids=np.zeros((12, 2000), np.int64))
    monkeypatch.setattr("jobs.exact.ExactSearch", None)
    monkeypatch.setattr("jobs.bound.choose_bound", None)
    wide = ("--batch", 65536)
    for words, work in (
        (("search", bounds, queries, "--exact", "-k", 2000, *wide, "--out", tmp_path / "new.npz"), "searching"),
        (("search", vectors, queries, "--exact", "-k", 2000, *wide, "--kernel", "chi2"), "searching"),
        (("verify", vectors, queries, tmp_path / "hits.npz", "--kernel", "chi2", *wide), "searching"),
        (("encode", vectors, tmp_path / "new", "--kernel", "chi2", "--encoder", "bound"), "choosing a bound"),
    ):
        outcome = invoke(*words, "--memory", "425MB")
        assert (outcome.code, outcome.out) == (1, "")
        assert outcome.err.startswith(f"mercore: {work} would take ")
        assert "expected at most 0.40 GiB, as --memory says. Mend: " in outcome.err
    assert names_in(tmp_path) == ["bounds", "hits.npz"]


def test_what_would_not_fit_is_refused_before_it_runs(tmp_path: Path, vectors: Path, codes: Path, data: Path) -> None:
    for words in (
        ["encode", vectors, tmp_path / "codes", "--kernel", "chi2", "--atoms", 2000],
        ["search", codes, data / "queries.npy", "-k", 3000, "--batch", 65536],
        ["search", vectors, data / "queries.npy", "-k", 3000, "--batch", 65536, "--kernel", "chi2"],
    ):
        outcome = invoke(*words, "--memory", "425MB")
        assert outcome.code == 1
        assert " would take 0." in outcome.err or " would take 1" in outcome.err
        assert "expected at most 0.40 GiB, as --memory says" in outcome.err
        assert not (tmp_path / "codes").exists()

"""Measured peaks of 205 MB of vectors stay under 320 MB, and under what ``--memory`` allowed."""

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.running import finish, histograms, invoke, start_words

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

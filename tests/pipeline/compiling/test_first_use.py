"""First use: an exact search by bounds compiles their scan in a second process."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mercore.testing.stores import histograms
from tests.support.running import succeed

COMMAND = """
import sys
started = lambda event, words: event == "subprocess.Popen" and print("started", words[1][-2:])
sys.addaudithook(started)
from mercore.jobs.cli import main
main()
"""


@pytest.mark.slow
def test_an_exact_search_by_bounds_compiles_their_scan_beside(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", histograms(200, 12))
    np.save(tmp_path / "queries.npy", histograms(3, 12, seed=1))
    succeed("ingest", tmp_path / "rows.npy", tmp_path / "rows")
    bound = ("--encoder", "kpca-bound", "--landmarks", 16)
    succeed("encode", tmp_path / "rows", tmp_path / "bounds", "--kernel", "chi2", *bound)
    search = ("search", tmp_path / "bounds", tmp_path / "queries.npy", "-k", 3, "--exact")
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *map(str, search)],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append([line for line in done.stdout.splitlines() if line.startswith("started")])
    assert told == [["started ['bounds', '{\"factors\": [4]}']"], []]

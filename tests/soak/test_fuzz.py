"""100 000 mutated files over all readers of rows and hits, in processes of 4 GiB each: no crash, no hang."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mercore.testing.cases import in_case
from tests.support import mutated_stores
from tests.support.fuzzing import HDF5, IN_PROCESS

CASES, STEP = 100_000, 5_000
HDF5_CASES = 1_000  # half a second each


def fuzz(first: int, last: int, folder: Path, *names: str) -> None:
    """Run cases in a process, which must end well."""
    report = folder / f"{first}-{len(names)}"
    report.touch()
    words = ["-m", "tests.support.fuzzing", str(first), str(last), str(report), *names]
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"case {report.read_text()}: {ended.stderr[-2000:]}"


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.promise(
    "A damaged file of rows or hits gives rows of its announced shape, or one error"
)
def test_a_hundred_thousand_mutated_files(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        jobs = [
            *(
                threads.submit(fuzz, first, first + STEP, tmp_path)
                for first in range(0, CASES, STEP)
            ),
            threads.submit(fuzz, 0, HDF5_CASES, tmp_path, *HDF5),
        ]
        for job in jobs:
            job.result()


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_every_wrong_value_in_metadata(tmp_path: Path) -> None:
    mutated_stores.make_stores(tmp_path, *mutated_stores.CODES)
    for case in mutated_stores.cases(tmp_path):
        with in_case(case=case):
            mutated_stores.run_case(tmp_path, case)


@pytest.mark.soak
@pytest.mark.parametrize("name", IN_PROCESS)
def test_files_chosen_by_the_code_that_they_reach(name: str, tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    words = ["-m", "tests.soak.guided", name, "60", str(tmp_path / name)]
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    (runs,) = re.findall(r"^#(\d+)\s+DONE", ended.stderr, re.MULTILINE)
    assert int(runs) > 1_000

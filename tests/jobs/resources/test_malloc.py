"""The command line has freed blocks kept for the next, unless the environment says otherwise."""

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from mercore.jobs.cli import main

try:
    main(["info", "nothing"])
except SystemExit:
    pass
for turn in range(21):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(24 << 20, np.uint8).fill(1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(**environment: str) -> int:
    """Return the pages that the system gave for twenty blocks of 24 MiB, one after the other,
    behind the first."""
    here = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    words = [sys.executable, "-c", FAULTS]
    return int(
        subprocess.run(words, env=here | environment, capture_output=True, check=True).stdout
    )


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library is left as it is")
def test_pages_are_asked_for_once() -> None:
    assert faults(NUMPY_MADVISE_HUGEPAGE="0") < 100
    assert faults(MALLOC_MMAP_THRESHOLD_=str(1 << 20), NUMPY_MADVISE_HUGEPAGE="0") > 20 * 1000

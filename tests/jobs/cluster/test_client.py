"""What Dask says is not said: a command tells once, in its own words, what failed."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

SPEAKING = """
import logging
from mercore.jobs.cluster.client import connect
from mercore.jobs.resources.execution import Execution

with connect(Execution(threads=1)):
    known = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    theirs = [each for each in known if each.name.split(".")[0] in ("distributed", "tornado", "asyncio")]
    assert len(theirs) > 20, theirs
    print(*(each.name for each in theirs if each.isEnabledFor(LEVEL)))
"""

COLLECTING = """
import gc
from mercore.jobs.cluster.client import connect
from mercore.jobs.resources.execution import Execution

with connect(Execution(threads=1)):
    owners = [type(getattr(each, "__self__", None)) for each in gc.callbacks]
    print(gc.isenabled(), [owner for owner in owners if owner.__module__.startswith("distributed")])
"""

WARNING = """
import warnings
from mercore.jobs.cluster.client import connect
from mercore.jobs.resources.execution import Execution

with connect(Execution(threads=1)):
    warnings.warn("Creating scratch directories is taking a surprisingly long time. (1.07s) ", stacklevel=2)
    warnings.warn("Anything else", stacklevel=2)
"""

ADDRESSES = """
from mercore.jobs.cluster.client import connect
from mercore.jobs.resources.execution import Execution

if __name__ == "__main__":
    with connect(Execution(processes=2)) as client:
        print(client.scheduler.address, *client.nthreads())
"""


def test_a_slow_disk_is_not_what_stderr_is_for() -> None:
    said = subprocess.run(
        [sys.executable, "-c", WARNING], capture_output=True, text=True, check=True
    )
    assert "Anything else" in said.stderr
    assert "scratch" not in said.stderr


def test_no_report_of_dask_is_made_where_it_would_swallow_an_interrupt() -> None:
    said = subprocess.run(
        [sys.executable, "-c", COLLECTING], capture_output=True, text=True, check=True
    )
    assert (said.stdout, said.stderr) == ("True []\n", "")


def test_no_logger_of_dask_speaks_while_a_cluster_is_connected() -> None:
    script = SPEAKING.replace("LEVEL", str(logging.ERROR))
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert (said.stdout, said.stderr) == ("\n", "")


@pytest.mark.slow
def test_processes_of_this_machine_speak_tls_only(tmp_path: Path) -> None:
    script = tmp_path / "addresses.py"
    script.write_text(ADDRESSES)
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    addresses = said.stdout.split()
    assert len(addresses) == 3
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)

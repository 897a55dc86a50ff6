"""Dask is silent: a command tells once, in its own words, what failed. Its processes speak TLS."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import gc, json, logging, warnings
from mercore.jobs.cluster.client import connect
from mercore.jobs.resources.execution import Execution

if __name__ == "__main__":
    with connect(Execution(processes=2)) as workers:
        known = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
        theirs = [each for each in known if each.name.split(".")[0] in ("distributed", "tornado", "asyncio")]
        owners = [type(getattr(each, "__self__", None)).__module__ for each in gc.callbacks]
        warnings.warn("Creating scratch directories is taking a surprisingly long time. (1.07s) ", stacklevel=2)
        warnings.warn("Anything else", stacklevel=2)
        print(json.dumps({
            "loggers": len(theirs),
            "speaking": [each.name for each in theirs if each.isEnabledFor(logging.ERROR)],
            "collects": gc.isenabled(),
            "callbacks": [owner for owner in owners if owner.startswith("distributed")],
            "addresses": [workers.client.scheduler.address, *workers.client.nthreads()],
        }))
"""


@pytest.mark.slow
@pytest.mark.promise("`--processes` speak TLS with a key of their own")
def test_processes_are_silent_let_an_interrupt_through_and_speak_tls_only(tmp_path: Path) -> None:
    script = tmp_path / "processes.py"
    script.write_text(SCRIPT)
    said = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    found = json.loads(said.stdout)
    assert found["loggers"] > 20
    assert found["speaking"] == []
    # a callback of Dask for collections would swallow a KeyboardInterrupt
    assert (found["collects"], found["callbacks"]) == (True, [])
    assert "Anything else" in said.stderr
    assert "scratch" not in said.stderr
    assert len(found["addresses"]) == 3
    assert all(address.startswith("tls://127.0.0.1:") for address in found["addresses"])

"""Processes whose loops are compiled for a processor that has fewer instructions than this
machine's."""

import os
import subprocess
import sys


def output_on(cpu: str, features: str, *words: str) -> str:
    """Run Python with these words, its code made for a processor; it must succeed. Return what it
    printed."""
    build = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    command = [sys.executable, *words]
    done = subprocess.run(
        command, env=os.environ | build, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_passed_on(cpu: str, features: str, file: str, *names: str) -> None:
    """Run tests of a file in one process: beside it, others use the cores already."""
    tests = (f"{file}::{name}" for name in names)
    output_on(cpu, features, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *tests)

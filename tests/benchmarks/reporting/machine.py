"""The conditions of a run: date, commit, processor, memory, versions and command line."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from threadpoolctl import threadpool_info

from mercore.jobs.resources.execution import available_cores

ROOT = Path(__file__).parents[3]
SOURCES = (".src", "jobs", "pipeline", "stores", "tests", "pyproject.toml")
PACKAGES = ("numpy", "numba", "scipy", "scikit-learn", "zarr", "dask", "faiss-cpu", "spams-bin")
WIDE = ("avx512vbmi", "avx512f", "avx2")  # the best of these is named


def run_conditions(words: Sequence[str]) -> dict[str, str]:
    """Return the conditions of a run with these command-line words."""
    return {
        "date": date.today().isoformat(),
        "commit": commit(ROOT),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "versions": versions(),
        "command": command_line(words),
    }


def processor(text: str | None = None) -> str:
    """Return the processor's model, family, number of cores and vector instructions.

    Parameters
    ----------
    text : the content of ``/proc/cpuinfo``; None reads it
    """
    said = Path("/proc/cpuinfo").read_text() if text is None else text
    fields = dict(re.findall(r"^(.+?)\s*: (.*)$", said.split("\n\n", maxsplit=1)[0], re.MULTILINE))
    name = re.sub(r"\((R|TM)\)", "", fields.get("model name", "unknown processor"))
    flags = fields.get("flags", "").split()
    wide = next((flag for flag in WIDE if flag in flags), "")
    parts = [
        " ".join(name.split()),
        f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}",
        f"{available_cores()} cores",
        {"avx512vbmi": "AVX-512 with VBMI", "avx512f": "AVX-512", "avx2": "AVX2"}.get(wide, ""),
    ]
    return ", ".join(filter(None, parts))


def commit(root: Path) -> str:
    """Return the short hash of the commit, marked if source files differ from it."""
    done = _git(root, "rev-parse", "--short", "HEAD")
    if not done:
        return "unknown"
    sources = [name for name in SOURCES if (root / name).exists()]
    changed = _git(root, "status", "--porcelain", "--", *sources)
    return f"{done} + changes" if changed else done


def versions() -> str:
    """Return the versions of Python and of the packages that are measured, in one line."""
    found = [f"Python {sys.version.split()[0]}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed")
    blas = [
        f"numpy's {each['internal_api']} with loops for {each.get('architecture', '?')}"
        for each in threadpool_info()
        if each["user_api"] == "blas" and "numpy.libs" in str(each["filepath"])
    ]
    return ", ".join(found + blas)


def command_line(words: Sequence[str]) -> str:
    """Return the command line with the names of files, without their folders."""
    short = [re.sub(r"[^\s=,]*/", "", word) for word in words]
    return shlex.join(["python", "-m", "tests.benchmarks", *short])


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()

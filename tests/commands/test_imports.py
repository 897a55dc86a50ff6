"""A command imports the packages that it needs, and no other: a user waits for each at every
start."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

LOADED = """
import sys
try:
    import mercore
    if sys.argv[1:]:
        from mercore.jobs.cli import main
        main()
finally:
    files = {name for name, module in sys.modules.items() if getattr(module, "__file__", None)}
    packages = {name.partition(".")[0] for name in files if not name.startswith("_")}
    print(*packages - set(sys.stdlib_module_names), *files & {"scipy.linalg", "numba.np.linalg"})
"""
V1 = Path(__file__).parents[1] / "formats" / "v1"
CODES, ROWS = str(V1 / "codes"), str(V1 / "rows.npy")

PARSED = {"click", "mercore", "numpy", "platformdirs"}
OPENED = PARSED | {"blake3", "google_crc32c", "psutil"}
RUN = OPENED | {"llvmlite", "numba", "rich", "scipy", "threadpoolctl", "yaml"}  # scipy alone: numba
RUN |= {"colorama"}  # by numba, where it is installed


def loaded(*words: str) -> set[str]:
    """Return the packages that a command loads; of no words, those of ``import mercore``."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ((), {"mercore"}),
        (("--version",), PARSED),
        (("--help",), PARSED),
        (("encode", "--help"), PARSED),
        (("search", "--help"), PARSED),
        (("info", CODES), OPENED),
        (("info", ROWS), OPENED),
    ],
)
def test_what_a_command_imports(words: tuple[str, ...], needed: set[str]) -> None:
    assert loaded(*words) <= needed


@pytest.mark.slow
def test_a_search_loads_machine_code_without_the_compiler_s_libraries(tmp_path: Path) -> None:
    np.save(tmp_path / "query.npy", np.load(ROWS)[:1])
    search = "search", CODES, str(tmp_path / "query.npy"), "-k", "2"
    loaded(*search)  # compiles, where no earlier test has
    assert loaded(*search) <= RUN

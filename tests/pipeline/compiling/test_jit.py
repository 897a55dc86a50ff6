"""Machine code on disk: used again while nothing has changed, and never once a source that it was
made of has."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.custom_kernels import LAPLACE, write

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled"
)

LOOPS = """
from made.helpers import STEP, raised
from mercore.pipeline.compiling.jit import jit

@jit
def total(x):
    return raised(x) + STEP
"""
HELPERS = """
from made import far
from mercore.pipeline.compiling.jit import jit

STEP = 10

@jit(inline="always")
def raised(x):
    return x + far.MORE
"""
FAMILY = """
from mercore.pipeline.compiling.jit import jit

def adding(step):
    @jit
    def added(x, times):
        if times == 0:
            return step + x
        return added(x + 1, times - 1)

    return added

first_added, second_added = adding(1000), adding(2000)

@jit
def first(x, times):
    return first_added(x, times)

@jit
def second(x, times):
    return second_added(x, times)
"""
RUN = "from made.loops import total; print(total(1), sum(total.stats.cache_hits.values()))"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Return a package of three modules, the first of which has a loop that is made of all."""
    folder = tmp_path / "made"
    folder.mkdir()
    for name, text in (
        ("__init__", ""),
        ("loops", LOOPS),
        ("helpers", HELPERS),
        ("far", "MORE = 100\n"),
    ):
        (folder / f"{name}.py").write_text(text)
    return folder


def run(made: Path, *, full: bool = False, cache: str = "", code: str = RUN) -> tuple[int, int]:
    """Return what the loop gives, and how often its machine code came from disk, in a process of
    its own."""
    done = start(made, full=full, cache=cache, code=code)
    assert done.returncode == 0, done.stderr
    result, hits = done.stdout.split()
    return int(result), int(hits)


def start(
    made: Path, *, full: bool = False, cache: str = "", code: str = RUN
) -> subprocess.CompletedProcess[str]:
    """Run the loop in a process of its own, to its end."""

    def limit() -> None:
        if full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    paths = os.pathsep.join([str(made.parent), *filter(None, sys.path)])
    environment = os.environ | {
        "PYTHONPATH": paths,
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": cache,
        "XDG_CACHE_HOME": str(cache_of(made)),
    }
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command,
        env=environment,
        cwd=made.parent,
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )


def cache_of(made: Path) -> Path:
    """Return the user's cache folder of a test."""
    return made.parent / "cache"


def kept(made: Path) -> list[Path]:
    """Return the files of the machine code of the function."""
    return sorted((cache_of(made) / "mercore" / "jit").glob("loops.total-*"))


@pytest.mark.slow
@pytest.mark.promise("Machine code is made again when any of its sources changed")
def test_machine_code_is_made_once_and_again_when_any_source_of_it_changed(made: Path) -> None:
    assert run(made) == (111, 0)
    first = kept(made)
    assert run(made) == (111, 1)
    assert kept(made) == first
    (made / "helpers.py").write_text(HELPERS.replace("x + far", "2 * x + far"))
    assert run(made) == (112, 0)
    assert run(made) == (112, 1)
    assert set(first) < set(kept(made))  # another installation may use it
    for path in first:
        os.utime(path, (0, 0))
    (made / "far.py").write_text(
        "MORE = 200\n"
    )  # a constant, of a module that the loop's own does not import
    assert run(made) == (212, 0)
    assert not set(first) & set(kept(made))  # old code of other sources is removed
    (made / "loops.py").touch()
    assert run(made) == (212, 1)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("left", [0, 100])
def test_files_that_a_crash_cut_short_are_made_anew(made: Path, suffix: str, left: int) -> None:
    run(made)
    (path,) = (path for path in kept(made) if path.suffix == suffix)
    path.write_bytes(path.read_bytes()[:left])
    assert run(made) == (111, 0)
    assert run(made) == (111, 1)


@pytest.mark.slow
def test_where_nothing_can_be_written_code_is_made_each_time(made: Path) -> None:
    assert run(made, full=True) == (111, 0)
    assert run(made, full=True) == (111, 0)
    assert run(made) == (111, 0)
    assert run(made, full=True) == (111, 1)


@pytest.mark.slow
@pytest.mark.promise("Machine code that two processes made is not mixed up")
def test_code_that_two_processes_made_is_not_mixed_up(made: Path) -> None:
    """Two functions of one name, made in two processes, serve a third one side by side."""
    (made / "loops.py").write_text(FAMILY)
    for caller, given in (("first", 1010), ("second", 2010)):
        assert run(made, code=f"from made.loops import {caller}; print({caller}(1, 9), 0)") == (
            given,
            0,
        )
    both = "from made.loops import first, second; print(first(1, 9), second(1, 9))"
    assert run(made, code=both) == (1010, 2010)


def test_machine_code_is_not_beside_the_sources(made: Path) -> None:
    run(made)
    assert not list(made.rglob("*.nb[ic]"))


def test_numba_cache_dir_wins(made: Path, tmp_path: Path) -> None:
    run(made, cache=str(tmp_path / "named"))
    assert list((tmp_path / "named" / "mercore").glob("loops.total-*"))
    assert not kept(made)


COMMAND = """
from mercore.stores.jit_cache import numba_cache
numba_cache.MOMENT = 0
from mercore.jobs.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.promise("A first use says that it compiles")
def test_a_command_says_once_that_it_compiles_and_nothing_when_all_is_on_disk(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "rows.npy", np.arange(12, dtype=np.float32).reshape(4, 3))
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    told = []
    for name in ("first", "second"):
        command = [sys.executable, "-c", COMMAND, "ingest", "rows.npy", f"{name}.zarr"]
        done = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stderr)
    assert told == ["compiling loops for this processor, once\n", ""]
    assert not list((tmp_path / "cache").rglob("*.lock"))


TOLD = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
from mercore.stores.jit_cache import numba_cache
numba_cache.MOMENT = 0
from made.loops import total
total(1)
"""


@pytest.mark.slow
def test_what_numba_compiles_for_a_loop_is_no_custom_kernel(made: Path) -> None:
    (made / "loops.py").write_text(LOOPS.replace("raised(x) + STEP", "max(raised(x), STEP)"))
    assert start(made, code=TOLD).stderr == "compiling loops for this processor, once\n"


@pytest.mark.slow
def test_a_command_says_that_it_compiles_a_custom_kernel_for_itself_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(12, dtype=np.float32).reshape(4, 3))
    write(tmp_path, LAPLACE)
    told = []
    for words in ("ingest rows.npy rows", *["search rows rows.npy --kernel mine.py"] * 2):
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, *words.split()],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stderr)
    compiled, *others = told[-1].splitlines()
    assert compiled == "compiling the custom kernel, for this command alone"
    assert [line for line in others if line.startswith("compiling")] == []


@pytest.mark.slow
def test_machine_code_that_others_can_write_is_not_used(made: Path) -> None:
    assert (run(made), run(made)) == ((111, 0), (111, 1))
    for path in kept(made):
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o620)
    assert (run(made), run(made)) == ((111, 0), (111, 1))  # written anew
    folder = cache_of(made) / "mercore" / "jit"
    folder.chmod(0o770)
    before = kept(made)
    done = start(made)
    assert done.stdout.split() == ["111", "0"]
    assert done.stderr == (
        f"machine code is not kept, but compiled anew: {folder} can be written by others: found "
        "mode 770, expected 700. Fix: name a folder of your own with NUMBA_CACHE_DIR.\n"
    )
    assert kept(made) == before


CHOICE = """
from mercore.pipeline.compiling.jit import jit

@jit(constants=("double",))
def inner(x, double):
    if double:
        return 2 * x
    return x.nowhere  # cannot be compiled for a number

@jit(constants=("double",))
def outer(double, x):
    return inner(x, double) + 1
"""
CHOOSE = """
from made.choice import outer
print(outer(True, 3), sum(dispatcher.stats.cache_hits.total() for dispatcher in outer._of_values.values()))
"""


def test_branches_on_constants_are_not_compiled(made: Path) -> None:
    (made / "choice.py").write_text(CHOICE)
    assert [run(made, code=CHOOSE) for _ in range(2)] == [(7, 0), (7, 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "function"),
    [
        ("pursuit", '{"recursive": true, "int8": true}', "pursuit_numba.pursue"),
        ("sparse", '{"nq": 7, "alpha": 8, "residuals": true}', "sparse_filter_numba.scan_filtered"),
    ],
)
def test_a_rehearsal_leaves_machine_code(
    tmp_path: Path, name: str, options: str, function: str
) -> None:
    command = [sys.executable, "-m", "mercore.pipeline.compiling.rehearsal", name, options]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0
    assert list((tmp_path / "mercore").glob(f"{function}-*.nbc"))


def test_all_functions_are_compiled_so() -> None:
    folder = Path(__file__).parents[3]
    sources = [
        path
        for package in ("stores", "pipeline", "jobs")
        for path in (folder / package).rglob("*.py")
    ]
    compiling = [path.name for path in sources if "njit(" in path.read_text()]
    assert sorted(compiling) == [
        "custom_numba.py",
        "jit.py",
    ]  # a user's function has no source that is ours

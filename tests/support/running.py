"""Run mercore: in this process for speed, or as the command that users type; and look at what lies
on disk."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.cli import main
from mercore.jobs.notices import in_options
from mercore.stores.errors import MercoreError
from mercore.stores.jit_cache.folder import CUSTOM_NOTICE, NOTICE
from mercore.stores.wording import render

KERNEL = "chi2"
ENCODE = ("--kernel", KERNEL, "--encoder", "aska", "--atoms", "64", "--sparsity", "4")
WORKER = ("--no-nanny", "--nthreads", "1", "--death-timeout", "60", "--no-dashboard")
ON_LOOPBACK = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


def split_words(words: tuple[object, ...]) -> list[str]:
    """Return the words of a command: the first may be a line of them, which is split at its spaces;
    a word with a space in it is one of the others."""
    return [*" ".join(map(str, words[:1])).split(), *map(str, words[1:])]


def invoke(*words: object) -> Outcome:
    """Run a command in this process; an exception that is no exit of it goes through."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main(split_words(words), prog_name="mercore")
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Outcome(code=code, out=out.getvalue(), err=_without_notice(err.getvalue()))


def on_command_line(error: BaseException) -> str:
    """Return the text of an error as the command line prints it."""
    assert isinstance(error, MercoreError)
    return render(error.message, in_options)


def succeed(*words: object) -> str:
    """Run a command such as ``search b.zarr q.npy -k 3`` in this process and return its stdout; it
    must succeed."""
    outcome = invoke(*words)
    assert outcome.code == 0, outcome.err
    return outcome.out


def command(*words: object) -> list[str]:
    """Return the words of the real command, the one installed beside this interpreter."""
    script = shutil.which("mercore", path=str(Path(sys.executable).parent))
    assert script is not None, "mercore is not installed beside this interpreter: pip install -e ."
    return [script, *split_words(words)]


def run(*words: object, **options: Any) -> Outcome:
    """Run the real command to its end."""
    return finish(start(*words, **options))


def start(*words: object, **options: Any) -> subprocess.Popen[str]:
    """Start the real command."""
    return start_words(command(*words), **options)


def start_words(words: list[str], **options: Any) -> subprocess.Popen[str]:
    """Start any command, its output kept."""
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        errors="surrogateescape",
        env=environment,
        **options,
    )


def finish(process: subprocess.Popen[str], seconds: float = 120) -> Outcome:
    """Wait for a started command; one that hangs is killed, and fails the test."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"no end after {seconds} s: {out}{err}") from None
    return Outcome(code=process.returncode, out=out, err=_without_notice(err))


def _without_notice(err: str) -> str:
    """Return stderr without the lines of compiling, which depend on what ran before on this
    machine, and on its speed."""
    return err.replace(f"{NOTICE}\n", "", 1).replace(f"{CUSTOM_NOTICE}\n", "", 1)


def histograms(rows: int, dims: int, seed: int) -> NDArray[np.uint8]:
    """Return sparse histograms, uint8[rows, dims], none of them all zero."""
    rng = np.random.default_rng(seed)
    values = rng.gamma(0.5, 30, (rows, dims))
    values[rng.random((rows, dims)) < 0.4] = 0
    counts = values.clip(0, 255).astype(np.uint8)
    counts[~counts.any(axis=1), 0] = 1
    return counts


def files_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder by its path there, and every empty folder with no bytes.

    The path of the vectors from codes is left out: equal stores in two folders differ in it.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = without_relative_path(path.read_bytes())
        elif not path.is_dir() or not any(path.iterdir()):
            found[f"{path.relative_to(folder)}/"] = b""
    return found


def without_relative_path(data: bytes) -> bytes:
    """Return a file; of the metadata of codes without the relative path of their vectors."""
    if b'"source_path"' not in data:
        return data
    try:
        metadata = json.loads(data)
        header = metadata["attributes"]["mercore"]
        header["notes"].pop("source_relative", None)
        del header["digest"]  # it covers the notes
    except (ValueError, KeyError):  # damaged
        return data
    return json.dumps(metadata, indent=2, sort_keys=True).encode()


def count_receipts(store: Path) -> int:
    """Return how many parts of a store have a receipt."""
    return sum(1 for _ in store.glob("receipts/c/*/0"))


def names_in(folder: Path) -> list[str]:
    """Return the names of what lies in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


def scratch_in(folder: Path) -> list[str]:
    """Return the scratch files and folders below a folder."""
    return [str(path) for path in folder.rglob(".*.tmp")]


def wait_until(true: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Look until something is true; a process that ends before, or nothing for two minutes, fails
    the test."""
    give_up = time.monotonic() + 120
    while not true():
        assert process.poll() is None, finish(process)
        assert time.monotonic() < give_up
        time.sleep(0.0005)


def wait_for_receipts(store: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Look until so many parts have a receipt."""
    wait_until(lambda: count_receipts(store) >= count, process)


def kill_after(process: subprocess.Popen[str], microseconds: int) -> Outcome:
    """kill -9 a process a moment from now."""
    moment = time.perf_counter() + microseconds / 1e6
    while time.perf_counter() < moment:
        pass
    process.send_signal(signal.SIGKILL)
    outcome = finish(process)
    assert outcome.code == -signal.SIGKILL, outcome
    return outcome


class Cluster:
    """A Dask scheduler and workers of one thread each: real processes on loopback, ended with the
    test."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        *,
        options: tuple[str, ...] = ("--no-dashboard",),
        both: tuple[str, ...] = (),
    ) -> None:
        self._file = folder / "scheduler.json"
        self._environment = {"DASK_TEMPORARY_DIRECTORY": str(folder / "dask")}
        words = ("--port", "0", "--scheduler-file", str(self._file), *options, *both)
        self.scheduler = self._start("dask_scheduler", *words)
        self.workers: list[subprocess.Popen[str]] = []
        try:
            wait_until(
                lambda: self._file.exists() and self._file.read_text().endswith("}"), self.scheduler
            )
            self.address = str(json.loads(self._file.read_text())["address"])
            for _ in range(workers):
                self.join(*both)
        except BaseException:
            self.end()
            raise

    def join(self, *options: str, **environment: str) -> None:
        """Start one more worker."""
        words = (self.address, *WORKER, *options)
        self.workers.append(self._start("dask_worker", *words, **environment))

    def end(self) -> None:
        """Kill every process."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.communicate()

    def _start(self, module: str, *words: str, **environment: str) -> subprocess.Popen[str]:
        python = [sys.executable, "-m", f"distributed.cli.{module}"]
        return start_words([*python, *words, *ON_LOOPBACK], env=self._environment | environment)

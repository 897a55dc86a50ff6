"""Progress on a terminal: a bar with rate and time left, on stderr, so that stdout carries data only.

Where the environment names a file with ``MERCORE_PROGRESS``, it is kept there too, for others to read.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

FILE = "MERCORE_PROGRESS"
WRITE_SECONDS = 0.5  # not oftener


class RateColumn(ProgressColumn):
    """Units a second."""

    def render(self, task: Task) -> Text:
        """Return the rate, or a dash before there is one."""
        speed = task.finished_speed or task.speed
        return Text("–" if speed is None else f"{speed:,.0f} {task.fields['unit']}/s", style="progress.data.speed")


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on a terminal what is being done, for as long as it takes."""
    console = Console(stderr=True)
    with console.status(what) if console.is_terminal else nullcontext():
        yield


@contextmanager
def progress(verb: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a bar of ``total`` units; nothing is drawn where stderr is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        RateColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(verb, total=total, unit=unit)
        written = WrittenProgress(Path(os.environ[FILE]), verb, total, unit) if os.environ.get(FILE) else None

        def advance(count: int) -> None:
            bar.advance(task, count)
            if written:
                written.advance(count)

        yield advance


class WrittenProgress:
    """Progress in a file, as JSON: what is done of how many units, and in how many seconds."""

    def __init__(self, path: Path, verb: str, total: int, unit: str) -> None:
        self._path = path
        self._report: dict[str, Any] = {"verb": verb, "unit": unit, "total": int(total), "done": 0, "seconds": 0.0}
        self._began = self._written = time.monotonic()
        self._write()

    def advance(self, count: int) -> None:
        """Count units; a reader of the file sees all of it, now or soon."""
        now = time.monotonic()
        self._report |= {"done": self._report["done"] + int(count), "seconds": round(now - self._began, 3)}
        if now - self._written >= WRITE_SECONDS or self._report["done"] >= self._report["total"]:
            self._written = now
            self._write()

    def _write(self) -> None:
        scratch = self._path.with_suffix(".tmp")
        scratch.write_text(json.dumps(self._report))
        scratch.replace(self._path)

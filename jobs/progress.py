"""Progress on a terminal: a bar with rate and time left, on stderr, so that stdout carries data only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text


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
        yield lambda count: bar.advance(task, count)

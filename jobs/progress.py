"""Progress bars on stderr, with the rate and the time left; background jobs listen to them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Listener = Callable[[dict[str, Any]], None]
# The listener gets a mapping that each bar keeps up to date: verb, unit, total, done, seconds.
LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)


class RateColumn(ProgressColumn):
    """Units per second."""

    def render(self, task: Task) -> Text:
        """Return the rate, or a dash before there is one."""
        speed = task.finished_speed or task.speed
        return Text(
            "–" if speed is None else f"{speed:,.0f} {task.fields['unit']}/s",
            style="progress.data.speed",
        )


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal what the ``with`` block does."""
    console = Console(stderr=True)
    with console.status(what) if console.is_terminal else nullcontext():
        yield


@contextmanager
def progress(verb: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a bar of ``total`` units.

    It is drawn on a terminal, and in a notebook with ipywidgets.
    """
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
    drawn = sys.stderr.isatty() or (console.is_jupyter and find_spec("ipywidgets") is not None)
    with Progress(*columns, console=console, disable=not drawn) as bar:
        task = bar.add_task(verb, total=total, unit=unit)
        report: dict[str, Any] = {
            "verb": verb,
            "unit": unit,
            "total": int(total),
            "done": 0,
            "seconds": 0.0,
        }
        began = time.monotonic()
        listen = LISTENER.get()
        if listen:
            listen(report)

        def advance(count: int) -> None:
            bar.advance(task, count)
            report.update(
                done=report["done"] + int(count), seconds=round(time.monotonic() - began, 3)
            )

        yield advance

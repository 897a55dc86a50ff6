"""Progress bars on stderr, with the rate and the time left; background jobs listen to them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from io import StringIO
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


class NotebookLine:
    """A line below a notebook's cell that shows a bar; a bar of less than a second shows none.

    Without widgets, nothing but the line stays in the notebook.
    """

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._handle: Any = None
        self._next = time.monotonic() + 1

    def draw(self, *, last: bool = False) -> None:
        """Write the line anew, at most four times per second, or for the ``last`` time."""
        now = time.monotonic()
        if now < self._next and not (last and self._handle):
            return
        self._next = now + 1 / 4
        text = StringIO()
        console = Console(file=text, width=100, force_jupyter=False, color_system=None)
        console.print(self._bar.get_renderable())
        line = {"text/plain": text.getvalue().rstrip()}
        if self._handle is None:
            from IPython.display import display

            shown: Any = display
            self._handle = shown(line, raw=True, display_id=True)
        else:
            self._handle.update(line, raw=True)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal what the ``with`` block does."""
    console = Console(stderr=True)
    with console.status(what) if console.is_terminal else nullcontext():
        yield


@contextmanager
def progress(verb: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a bar of ``total`` units.

    It is drawn on a terminal and in a notebook.
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
    drawn = sys.stderr.isatty() and not console.is_jupyter
    with Progress(*columns, console=console, disable=not drawn) as bar:
        line = NotebookLine(bar) if console.is_jupyter else None
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
            if line:
                line.draw()
            report.update(
                done=report["done"] + int(count), seconds=round(time.monotonic() - began, 3)
            )

        yield advance
        if line:
            line.draw(last=True)

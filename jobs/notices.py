"""What people read: notices and warnings, options in the words of the command line, plain lines."""

import logging
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, TextIO

import click

from mercore.stores.errors import MercoreWarning
from mercore.stores.jit_cache.folder import NAMESPACE, NOTICE, is_first_use
from mercore.stores.wording import render

# C0, DEL, C1; marks that reorder, hide or break text; surrogates, which no terminal can show.
CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_WARNED: set[tuple[str, int, str]] = set()  # places of warnings, with their texts


def printable(text: str) -> str:
    r"""Return a text with each control character as its escape, such as \x1b."""
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def flag(name: str) -> str:
    """Return the option of the command line that a keyword is."""
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def in_options(verb: str, arguments: Sequence[str], options: Mapping[str, object]) -> str:
    """Write one mark of a message as the command line has it: ``-k``, or ``-k 10 --exact``."""
    if not verb and arguments:
        return flag(arguments[0])
    words = ["mercore", verb, *map(shlex.quote, arguments)] if verb else []
    for name, value in options.items():
        words += [flag(name)] if value is True else [flag(name), str(value)]
    return " ".join(words)


def echo(line: object, *, err: bool = False) -> None:
    """Print a line on stdout or stderr, its control characters escaped."""
    click.echo(printable(render(str(line), in_options)), err=err)


class _Stderr(logging.Handler):
    """The handler that prints notices of compiling on stderr, each once per command."""

    printed: ClassVar[set[str]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the notice."""
        if (notice := record.getMessage()) not in self.printed:
            self.printed.add(notice)
            echo(notice, err=True)


_LOGGER, _STDERR = logging.getLogger("mercore.jit"), _Stderr()


def print_notices() -> None:
    """Print notices from now on."""
    _STDERR.printed.clear()
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.addHandler(_STDERR)


def announce_first_use() -> None:
    """Print the notice at once if no machine code is there, before numba is loaded."""
    if is_first_use():
        _LOGGER.info(NOTICE)


def warn(text: str) -> None:
    """Warn once per place, where the first caller outside of mercore stands.

    Python's own memory of places does not last: each ``catch_warnings``, as of scikit-learn's
    checks, clears it.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals["__name__"].partition(".")[0] == NAMESPACE:
        level, frame = level + 1, frame.f_back
    place = (frame.f_code.co_filename, frame.f_lineno, text)
    if place not in _WARNED:
        warnings.warn(text, MercoreWarning, stacklevel=level)
        _WARNED.add(place)


@contextmanager
def printed_warnings() -> Iterator[None]:
    """Print each warning of mercore as one line on stderr."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(  # noqa: PLR0913, PLR0917 - as Python declares it
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, MercoreWarning):
                click.echo(str(message), err=True)
            else:
                shown(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        warnings.simplefilter("always", MercoreWarning)
        _WARNED.clear()
        yield

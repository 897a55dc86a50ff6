"""Notices, warnings and errors on stderr, and lines without control characters."""

import errno
import logging
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TextIO

import click

from mercore.jobs.help import VerbGroup
from mercore.stores.cache_folder import NAMESPACE, NOTICE, is_first_use
from mercore.stores.errors import (
    ExistsError,
    FormatError,
    InputError,
    MercoreError,
    MercoreWarning,
    NotFoundError,
)
from mercore.stores.wording import render

ANSWER_IS_NO, USAGE = 1, 2
INTERRUPTED, STDOUT_CLOSED = 130, 141  # the codes of shells for SIGINT and SIGPIPE
WRONG_INPUT = (InputError, NotFoundError, ExistsError, FormatError)
BEGINS_ANEW = "run the same command again, which begins anew"
JOBS_GO_ON = "run the same command again; the jobs themselves go on"
AFTER_INTERRUPT = {
    "encode": "run the same command again; encode keeps the parts that are done",
    "append": "run the same command again; the store has its old rows, or all new ones",
    "index": "run the same command again; index keeps the parts that are done",
    "search": f"{BEGINS_ANEW}; only a search with --exact and --out keeps its finished batches",
    "compare": "run the same command again; compare keeps the finished runs if it has --out",
    "demo": "run mercore demo --force, which begins anew",
    **dict.fromkeys(("jobs", "status", "logs", "wait", "cancel", "resume"), JOBS_GO_ON),
    "runner": "run mercore runner again; the jobs that have begun go on",
}
# C0, DEL, C1; marks that reorder, hide or break text; surrogates, which no terminal can show.
CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_WARNED: set[tuple[str, int, str]] = set()  # places of warnings, with their texts
EMPTY_WORD = re.compile(r"(--[a-z-]+=)?")


def printable(text: str) -> str:
    r"""Return a text with each control character as its escape, such as \x1b."""
    return CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def in_options(verb: str, arguments: Sequence[str], options: Mapping[str, object]) -> str:
    """Write one mark of a message as the command line has it: ``-k``, or ``-k 10 --exact``."""
    if not verb and arguments:
        return _flag(arguments[0])
    words = ["mercore", verb, *map(shlex.quote, arguments)] if verb else []
    for name, value in options.items():
        words += [_flag(name)] if value is True else [_flag(name), str(value)]
    return " ".join(words)


def _flag(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


def echo(line: object, *, err: bool = False) -> None:
    """Print a line on stdout or stderr, its control characters escaped."""
    click.echo(printable(str(line)), err=err)


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
def _printed_warnings() -> Iterator[None]:
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


class Verbs(VerbGroup):
    """A group of verbs whose errors are printed as one paragraph, without a traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse empty words: an empty value would count as an option that is not given."""
        if not ctx.resilient_parsing and any(EMPTY_WORD.fullmatch(word) for word in args):
            problem = "a word of the command is empty. Is a shell variable in it not set?"
            raise click.UsageError(problem, ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click declares it
        """Run the verb; print errors on stderr. Exit with 2 after bad input, else with 1."""
        try:
            with _printed_warnings():
                return super().invoke(ctx)
        except click.ClickException as error:
            error.message = printable(error.message)  # type: ignore[misc]  # click shows it
            raise
        except MercoreError as error:
            echo(f"mercore: {render(error.message, in_options)}", err=True)
            ctx.exit(USAGE if isinstance(error, WRONG_INPUT) else ANSWER_IS_NO)
        except OSError as error:  # an error of stdout has no file name
            if error.filename is not None:
                raise
            if error.errno == errno.EPIPE:  # as in mercore search … | head
                _discard_rest_of_stdout()
                ctx.exit(STDOUT_CLOSED)
            echo(
                f"mercore: cannot write the answer: {error.strerror}. Fix: free space"
                f"{', or use --out' * self._has_out(ctx)}.",
                err=True,
            )
            _discard_rest_of_stdout()
            ctx.exit(ANSWER_IS_NO)
        except KeyboardInterrupt:
            again = AFTER_INTERRUPT.get(str(ctx.invoked_subcommand), BEGINS_ANEW)
            echo(f"mercore: interrupted. Fix: {again}.", err=True)
            ctx.exit(INTERRUPTED)

    def _has_out(self, ctx: click.Context) -> bool:
        """Return whether the verb has an option --out."""
        verb = self.get_command(ctx, str(ctx.invoked_subcommand))
        return verb is not None and any(parameter.name == "out" for parameter in verb.params)


def _discard_rest_of_stdout() -> None:
    """Send what is still buffered nowhere: Python writes it at its end, and would fail again."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())

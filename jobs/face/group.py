"""The command line as a whole: errors, interrupts and a closed stdout, and the exit codes."""

import errno
import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from mercore.jobs.face.declaring import BEGINS_ANEW, VERBS
from mercore.jobs.help import VerbGroup
from mercore.jobs.notices import echo, in_options, printable, printed_warnings
from mercore.stores.errors import (
    ExistsError,
    FormatError,
    InputError,
    MercoreError,
    NotFoundError,
)
from mercore.stores.wording import render

ANSWER_IS_NO, USAGE = 1, 2
INTERRUPTED, STDOUT_CLOSED = 130, 141  # the codes of shells for SIGINT and SIGPIPE
EMPTY_WORD = re.compile(r"(--[a-z-]+=)?")
WRONG_INPUT = (InputError, NotFoundError, ExistsError, FormatError)
JOBS_GO_ON = "run the same command again; the jobs themselves go on"
AFTER_INTERRUPT = {  # of commands that are no verb of the API
    "demo": "run mercore demo --force, which begins anew",
    **dict.fromkeys(("jobs", "status", "logs", "wait", "cancel", "resume"), JOBS_GO_ON),
    "runner": "run mercore runner again; the jobs that have begun go on",
}


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
            with printed_warnings():
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
            name = str(ctx.invoked_subcommand)
            again = VERBS[name].again if name in VERBS else AFTER_INTERRUPT.get(name, BEGINS_ANEW)
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

"""Options that several verbs share."""

import json as json_module
import math
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from mercore.pipeline.kernels import KINDS
from mercore.stores.errors import InputError

Verb = TypeVar("Verb", bound=Callable[..., Any])


class Finite(click.types.FloatParamType):
    """A number that is neither infinite nor NaN, which no JSON holds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


FINITE = Finite()
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def size(text: str) -> int:
    """Return the bytes that a text such as 1.5GB or 8GiB names."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if not match or match[2] not in UNITS:
        raise click.BadParameter(f"{text!r} is not a size: expected a number and a unit, such as 1.5GB or 8GiB")
    return int(float(match[1]) * UNITS[match[2]])


def parse_ranks(ranks: str | Iterable[int], most: int | None = None) -> list[int]:
    """Return the ranks that 1,10,100 or a list names, ascending; ``most`` are the rows of the store, if any.

    Raises
    ------
    InputError
        If it names something else.
    """
    text = ranks if isinstance(ranks, str) else ",".join(map(str, ranks))
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= (most or int(word)) for word in words):
        expected = "numbers above 0" if most is None else f"numbers from 1 to {most}, the rows of the store,"
        raise InputError(f"ranks are {expected} with commas: found {text!r}. Fix: --ranks 1,10,100")
    return sorted({int(word) for word in words})


def as_json(verb: Verb) -> Verb:
    """Add ``--json``."""
    return click.option("--json", is_flag=True, help="Print JSON on stdout.")(verb)


def echo_json(report: object) -> None:
    """Print a report as JSON on stdout."""
    click.echo(json_module.dumps(report, indent=2))


def KERNEL(*, required: bool) -> Callable[[Verb], Verb]:  # noqa: N802 - reads as the other options do
    """Add the options that name a kernel."""
    options = (
        click.option("--kernel", required=required, help=_kernels()),
        click.option("--gamma", type=FINITE, help=f"γ of {_gammas()}."),
        click.option("--transform", type=FINITE, metavar="S", help="Use exp(S (κ − 1)) of the kernel κ."),
    )
    return lambda verb: apply_options(options, verb)


def _kernels() -> str:
    """Return every kernel with its formula."""
    return "; ".join(f"{kind.name}: {kind.description}" for kind in KINDS.values()) + "; or a FILE.py of your own."


def _gammas() -> str:
    """Return the kernels that take a gamma, each with its default."""
    takers = [kind for kind in KINDS.values() if kind.takes_gamma]
    words = ("needed" if kind.default_gamma is None else f"default {kind.default_gamma:g}" for kind in takers)
    return " and ".join(f"{kind.name} ({word})" for kind, word in zip(takers, words, strict=True))


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


THREADS = click.option("--threads", type=int, help="Threads. [default: the cores, or as many as --memory allows]")
BATCH = click.option(
    "--batch",
    type=int,
    help="Queries answered in one pass over the store. [default: 1024, or as many as --memory allows]",
)
PROCESSES = click.option(
    "--processes",
    type=click.IntRange(min=1),
    help="Processes of one thread each, on this machine, instead of threads.",
)
SCHEDULER = click.option(
    "--scheduler", metavar="ADDRESS", help="An existing Dask cluster, instead of threads here: tcp://… or tls://…."
)
MEMORY = click.option(
    "--memory",
    type=size,
    help=(
        "The most that it may take, such as 1.5GB: this process and its --processes together; at a --scheduler, each "
        "worker of one thread. Where the defaults take more, batches are smaller or workers fewer, and what would "
        "exceed it even so does not start. A search of several batches keeps codes in what is left."
    ),
)


def apply_options(options: tuple[Callable[[Verb], Verb], ...], verb: Verb) -> Verb:
    """Apply options so that they show in the order given."""
    for option in reversed(options):
        verb = option(verb)
    return verb

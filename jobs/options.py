"""Options that several verbs share, and the refusal of those that have no effect."""

import json as json_module
import math
import re
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, TypeVar

import click

from mercore.pipeline.kernels import KINDS
from mercore.stores.errors import InputError

Report = dict[str, Any]  # what a verb returns: it can be written as JSON
Verb = TypeVar("Verb", bound=Callable[..., Any])


class StorePath(click.types.StringParamType):
    """The path of a store or file; ``written`` says whether the verb writes it or reads it."""

    name = "path"

    def __init__(self, *, written: bool) -> None:
        self.written = written


READ, WRITTEN = StorePath(written=False), StorePath(written=True)


class KernelName(click.types.StringParamType):
    """The name of a kernel, or the path of a Python file that declares one."""

    name = "kernel"


def names_file(kernel: str) -> bool:
    """Return whether a kernel's name is the path of a file that declares it."""
    return kernel.endswith(".py")


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


def parse_bytes(text: str) -> int:
    """Return the number of bytes that a text such as 1.5GB or 8GiB names.

    Raises
    ------
    InputError
        If it names none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if not match or match[2] not in UNITS:
        raise InputError(f"{text!r} is not a size: expected a number and a unit, such as 1.5GB or 8GiB")
    return int(float(match[1]) * UNITS[match[2]])


class ByteCount(click.types.IntParamType):
    """A number of bytes, such as 1.5GB or 8GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Return the number of bytes."""
        try:
            return value if isinstance(value, int) else parse_bytes(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def refuse_unused(because: str, **given: object) -> None:
    """Refuse options, by name, that would have no effect: those that are not None.

    Raises
    ------
    InputError
        For the first of them.
    """
    for name, value in given.items():
        if value is not None:
            option = name.replace("_", "-")
            raise InputError(f"--{option} has no use here: {because}. Fix: leave --{option} out.")


def check_whole(**given: object) -> None:
    """Refuse values, by name, that are neither None nor whole numbers.

    Raises
    ------
    InputError
        For the first of them.
    """
    for name, value in given.items():
        if value is not None and (not isinstance(value, Integral) or isinstance(value, bool)):
            raise InputError(f"{name} is {value}: expected a whole number. Fix: {name}=10.")


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
        click.option("--kernel", type=KernelName(), required=required, help=_kernels()),
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
    type=ByteCount(),
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

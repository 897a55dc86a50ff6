"""Options that several verbs share."""

import json as json_module
import os
import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

Verb = TypeVar("Verb", bound=Callable[..., Any])
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def size(text: str) -> int:
    """Return the bytes that a text such as 1.5GB or 8GiB names."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if not match or match[2] not in UNITS:
        raise click.BadParameter(f"{text!r} is not a size: expected a number and a unit, such as 1.5GB or 8GiB")
    return int(float(match[1]) * UNITS[match[2]])


def as_json(verb: Verb) -> Verb:
    """Add ``--json``."""
    return click.option("--json", is_flag=True, help="Print one JSON object on stdout.")(verb)


def echo_json(report: object) -> None:
    """Print a report as JSON on stdout."""
    click.echo(json_module.dumps(report, indent=2))


def KERNEL(*, required: bool) -> Callable[[Verb], Verb]:  # noqa: N802 - reads as the other options do
    """Add the options that name a kernel."""
    options = (
        click.option(
            "--kernel",
            required=required,
            help="cosine, hellinger, chi2, intersection, jensen_shannon, exp_chi2 or rbf.",
        ),
        click.option("--gamma", type=float, help="γ of rbf (needed) and exp_chi2 (default 1)."),
        click.option("--transform", type=float, metavar="S", help="Use exp(S (κ − 1)) of the kernel κ."),
    )
    return lambda verb: _apply(options, verb)


def ENCODER(verb: Verb) -> Verb:  # noqa: N802 - reads as the other options do
    """Add the options that name an encoder."""
    return _apply(
        (
            click.option("--encoder", type=click.Choice(["aska"]), default="aska", show_default=True),
            click.option("--atoms", type=int, default=8192, show_default=True, help="Dictionary size m."),
            click.option("--sparsity", type=int, default=8, show_default=True, help="Non-zeros a row, α."),
            click.option(
                "--pursuit",
                type=click.Choice(["ormp", "omp"]),
                default="ormp",
                show_default=True,
                help=(
                    "Next atom: the one that leaves least, or (omp) the most correlated with the rest. "
                    "A store with none named is omp."
                ),
            ),
            click.option(
                "--weights", default="int8", show_default=True, help="int8 (with a scale a row), float16 or float32."
            ),
            click.option(
                "--random-state", type=int, default=0, show_default=True, help="Seed of the dictionary's draw."
            ),
        ),
        verb,
    )


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


THREADS = click.option("--threads", type=int, default=available_cores, help="Threads. [default: the cores]")
MEMORY = click.option(
    "--memory",
    type=size,
    help=(
        "Refuse to start if it would take more, such as 1.5GB. A search of several batches keeps in what is left of it "
        "the codes it has read."
    ),
)


def _apply(options: tuple[Callable[[Verb], Verb], ...], verb: Verb) -> Verb:
    """Apply options so that they show in the order given."""
    for option in reversed(options):
        verb = option(verb)
    return verb

"""``mercore plan``: the cost of another verb, with the arguments and options of that verb."""

from collections.abc import Callable
from importlib import import_module

import click

from mercore.jobs.help import SEARCH, VerbCommand, VerbGroup, examples_under
from mercore.jobs.options import as_json, echo_json

VERBS = ("ingest", "encode", "index", "search")


def plan_of(verbs: click.Group) -> click.Group:
    """Return the group ``plan``, with one command per verb that can be planned."""
    group = VerbGroup(
        "plan",
        help="Predict the bytes on disk, memory and time of a verb before it runs, from a sample. "
        "Exit 1 if they exceed --memory or the free disk.",
        section=SEARCH,
        examples=(
            "mercore plan encode base.zarr codes.zarr --kernel chi2",
            "mercore plan search codes.zarr query.bvecs -k 100 --memory 1.5GB",
        ),
        subcommand_metavar="VERB …",
    )
    for name in VERBS:
        group.add_command(_planning(verbs.commands[name], name))
    return group


def _planning(verb: click.Command, name: str) -> click.Command:
    """Return the command that plans a verb."""
    shared = [parameter for parameter in verb.params if parameter.name != "json"]
    planned = VerbCommand(
        verb.name,
        callback=_body(
            name, [parameter.name for parameter in shared if isinstance(parameter, click.Argument)]
        ),
        params=shared,
        help=f"Plan mercore {verb.name}, with the same arguments and options. Nothing is written.",
        short_help=f"Predict the bytes, memory and time of mercore {verb.name}.",
        examples=examples_under("plan", verb),
    )
    cores = click.option(
        "--cores",
        type=click.IntRange(min=1),
        help="Predict the time on this many cores. [default: 1, 2, 4, 16 and 64]",
    )
    return as_json(cores(planned))


def _body(verb: str, names: list[str | None]) -> Callable[..., None]:
    """Return the body of the command that plans a verb; ``names`` are its arguments."""

    def body(*, json: bool, cores: int | None, **values: object) -> None:
        from mercore.jobs import printing
        from mercore.jobs.planning.report import refuse_excess
        from mercore.jobs.verbs.registry import open_task

        arguments = [values.pop(str(name)) for name in names]
        report = import_module(f"mercore.jobs.planning.{verb}").plan(
            open_task(verb, arguments, values), cores
        )
        echo_json(report) if json else printing.print_plan(report)
        memory = values.get("memory")
        refuse_excess(report, memory if isinstance(memory, int) else None)

    return body

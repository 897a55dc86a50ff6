"""``mercore plan``: the cost of another verb, with the arguments and options of that verb."""

from collections.abc import Callable
from importlib import import_module

import click

from mercore.jobs.face.commands import call_of
from mercore.jobs.face.declaring import VERBS, Verb
from mercore.jobs.help import SEARCH, VerbCommand, VerbGroup, examples_under
from mercore.jobs.options import as_json, echo_json


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
    for name, verb in VERBS.items():
        if verb.plan:
            group.add_command(_planning(verbs.commands[name], verb))
    return group


def _planning(verb: click.Command, declared: Verb) -> click.Command:
    """Return the command that plans a verb."""
    shared = [parameter for parameter in verb.params if parameter.name != "json"]
    planned = VerbCommand(
        verb.name,
        callback=_body(declared),
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


def _body(verb: Verb) -> Callable[..., None]:
    """Return the body of the command that plans a verb."""

    def body(*, json: bool, cores: int | None, **values: object) -> None:
        from mercore.jobs import printing
        from mercore.jobs.planning.report import refuse_excess

        planning = import_module(f"mercore.jobs.planning.{verb.plan}")
        report = planning.plan(call_of(verb, values).task(), cores)
        echo_json(report) if json else printing.print_plan(report)
        memory = values.get("memory")
        refuse_excess(report, memory if isinstance(memory, int) else None)

    return body

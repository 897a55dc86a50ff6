"""``mercore plan``: what another verb would take, with that verb's own arguments and options."""

from collections.abc import Callable
from importlib import import_module

import click

from mercore.jobs.options import as_json, echo_json

VERBS = ("encode", "search", "ingest")


def plan_of(verbs: click.Group) -> click.Group:
    """Return the group ``plan`` of the verbs that can be planned."""
    group = click.Group(
        "plan",
        help="Say what a verb would take before it runs: bytes on disk, memory, and time, measured on a sample. "
        "Exit 1 if that is more than --memory or the disk allows.",
    )
    for name in VERBS:
        group.add_command(_planning(verbs.commands[name], name))
    return group


def _planning(verb: click.Command, name: str) -> click.Command:
    """Return the command that plans a verb."""
    shared = [parameter for parameter in verb.params if parameter.name != "json"]
    planned = click.Command(
        verb.name,
        callback=_body(name, [parameter.name for parameter in shared if isinstance(parameter, click.Argument)]),
        params=shared,
        help=f"Plan mercore {verb.name}, whose arguments and options these are. Nothing is written.",
    )
    cores = click.option(
        "--cores", type=click.IntRange(min=1), help="Also say the time on so many, in place of others."
    )
    return as_json(cores(planned))


def _body(verb: str, names: list[str | None]) -> Callable[..., None]:
    """Return the body of the command that plans a verb, whose arguments have these names."""

    def body(*, json: bool, cores: int | None, **values: object) -> None:
        from mercore.jobs import printing
        from mercore.jobs.planning.report import refuse_excess
        from mercore.jobs.verbs.registry import open_task

        arguments = [str(values.pop(str(name))) for name in names]
        report = import_module(f"mercore.jobs.planning.{verb}").plan(open_task(verb, arguments, values), cores)
        echo_json(report) if json else printing.print_plan(report)
        memory = values.get("memory")
        refuse_excess(report, memory if isinstance(memory, int) else None)

    return body

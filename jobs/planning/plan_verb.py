"""``mercore plan``: each verb that can be planned, with the very options of its own."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from mercore.jobs.options import as_json, echo_json

VERBS = {
    "encode": "mercore.jobs.planning.encode",
    "search": "mercore.jobs.planning.search",
    "ingest": "mercore.jobs.planning.ingest",
}


def plan_of(verbs: click.Group) -> click.Group:
    """Return the group ``plan`` of the verbs that can be planned."""
    group = click.Group(
        "plan",
        help="Say what a verb would take before it runs: bytes on disk, memory, and time, measured on a sample. "
        "Exit 1 if that is more than --memory or the disk allows.",
    )
    for name, module in VERBS.items():
        group.add_command(_planning(verbs.commands[name], module))
    return group


def _planning(verb: click.Command, module: str) -> click.Command:
    """Return the command that plans a verb."""
    shared = [parameter for parameter in verb.params if parameter.name != "json"]
    planned = click.Command(
        verb.name,
        callback=_body(module, [parameter.name for parameter in shared if isinstance(parameter, click.Argument)]),
        params=shared,
        help=f"Plan mercore {verb.name}, whose arguments and options these are. Nothing is written.",
    )
    cores = click.option(
        "--cores", type=click.IntRange(min=1), help="Also say the time on so many, in place of others."
    )
    return as_json(cores(planned))


def _body(module: str, names: list[str | None]) -> Callable[..., None]:
    """Return what plans by a module, given a verb's arguments of those names and its options."""

    def body(*, json: bool, **options: Any) -> None:  # noqa: ANN401
        from mercore.jobs import printing
        from mercore.jobs.planning.report import refuse_excess

        arguments = [options.pop(str(name)) for name in names]
        report = import_module(module).plan(*arguments, **options)
        echo_json(report) if json else printing.print_plan(report)
        refuse_excess(report, options.get("memory"))

    return body

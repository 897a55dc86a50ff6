"""Measure the sections of a report; print their tables, or write the report."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from tests.benchmarks.reporting.document import Measured, read_record, write_report
from tests.benchmarks.reporting.machine import processor, run_conditions
from tests.benchmarks.reporting.tables import Report, Setup, markdown

Command = TypeVar("Command", bound=Callable[..., Any])


def report_options(command: Command) -> Command:
    """Add ``--only`` and ``--report`` to a command."""
    file = click.Path(dir_okay=False, path_type=Path)
    written = click.option(
        "--report",
        "path",
        type=file,
        metavar="FILE.md",
        help="Write the report here, with its figures and plots beside it.",
    )
    chosen = click.option(
        "--only",
        multiple=True,
        metavar="SECTION",
        help="Measure this section alone; may be given several times.",
    )
    return chosen(written(command))


def produce(report: Report[Setup], setup: Setup, only: Sequence[str], path: Path | None) -> None:
    """Measure the chosen sections; write the report after each, or print the tables.

    A section without tables is left out: its data were not named on the command line.

    Raises
    ------
    click.BadParameter
        If there is no such section.
    """
    names = [section.name for section in report.chosen(())]
    if unknown := set(only) - set(names):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: expected one of {names}")
    conditions = run_conditions(sys.argv[1:])
    for section in report.chosen(only):
        click.echo(f"{section.name}: {section.title}", err=True)
        assert section.measure is not None
        tables = section.measure(setup)
        if not tables:
            click.echo(f"{section.name}: left out, its data are not named", err=True)
        elif path is None:
            for table in tables:
                if table.shown:
                    click.echo(f"{table.title}\n\n{markdown(table.rows)}\n")
        else:
            record = read_record(path.with_suffix(".json"))
            record.add(processor(), section.name, Measured(run=conditions, tables=tables))
            write_report(report, record, path)

"""Peaks of real commands under budgets: encoding, searching the codes, and searching them
exactly."""

from collections.abc import Sequence
from pathlib import Path

import click

from mercore.jobs.options import parse_bytes
from tests.benchmarks.reporting.tables import Row
from tests.support.peaks import measured

HOURS = 3600.0


def measure(
    vectors: str, queries: str, budgets: Sequence[str], encode: Sequence[str], folder: Path
) -> list[Row]:
    """Return a line a budget and command: its peak, and what it made smaller to keep to the
    budget."""
    lines: list[Row] = []
    for number, budget in enumerate(budgets):
        made, hits = folder / f"codes-{number}", folder / "hits.npz"
        commands: dict[str, tuple[object, ...]] = {
            "encode": ("encode", vectors, made, *encode),
            "search": ("search", made, queries, "-k", 10, "--out", hits, "--force"),
            "exact": (
                "search",
                made,
                queries,
                "-k",
                10,
                "--exact",
                "--out",
                folder / f"exact-{number}.npz",
            ),
        }
        for name, words in commands.items():
            lines.append(_line(name, budget, (*words, "--memory", budget)))
            click.echo(str(lines[-1]), err=True)
    return lines


def _line(name: str, budget: str, words: Sequence[object]) -> Row:
    """Run a command under a budget."""
    ran = measured(*words, seconds=HOURS)
    told = [line for line in ran.outcome.err.splitlines() if "--memory allows" in line]
    return {
        "command": name,
        "--memory": budget,
        "peak, MB": ran.peak / 1e6,
        "% of the budget": 100 * ran.peak / parse_bytes(budget),
        "seconds": ran.seconds,
        "made smaller": told[0].partition("than this: ")[2] if told else None,
    }

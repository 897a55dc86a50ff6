"""The bound that --encoder bound stands for: chosen on a sample, and said with what it was measured against."""

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from jobs.budget import check_budget
from jobs.encoders import refuse_options
from jobs.progress import waiting
from pipeline.bounded import FAILING
from pipeline.choose import Measured, choose_bound, choose_bytes
from pipeline.encoders import EncoderSpec
from pipeline.kernels import Kernel
from stores.vectors import Vectors


def chosen_bound(vectors: Vectors, kernel: Kernel, options: Mapping[str, Any]) -> EncoderSpec:
    """Return the spec of the bound whose exact search is cheapest, and print what a sample says of each.

    Raises
    ------
    InputError
        If an option is given that says what is to be chosen.
    BudgetError
        If choosing would take more than ``memory``.
    """
    refuse_options(options, "bound", ("random_state",))
    check_budget("choosing a bound", choose_bytes(vectors, kernel), options.get("memory"), "name an --encoder")
    with waiting("measuring bounds on a sample"):
        measured = choose_bound(vectors, kernel, random_state=options.get("random_state") or 0)
    _tell(measured)
    if measured[0].share > FAILING:
        click.echo(
            f"bounds rule too little out of {vectors.where} under kernel {kernel.name}: the best leaves "
            f"{measured[0].share:.1%} of the rows, expected at most {FAILING:.0%}. "
            "Exact searches will score every row; for approximate ones use another --encoder.",
            err=True,
        )
    return measured[0].spec


def _tell(measured: list[Measured]) -> None:
    """Print a row a bound on stderr, the chosen one first."""
    table = Table(
        box=None, title="expected of an exact search for 10 neighbours, batches of 100 queries", title_justify="left"
    )
    for name in ("bound", "size", "bytes a row", "rows scored", "ns a row and query"):
        table.add_column(name, justify="left" if name == "bound" else "right")
    for bound in measured:
        fields = vars(bound.spec)
        size = str(fields.get("n_components", fields.get("n_groups")))
        table.add_row(bound.spec.name, size, str(bound.bytes), f"{bound.share:.3%}", f"{bound.cost:.2f}")
    Console(stderr=True).print(table)

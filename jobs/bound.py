"""The bound that --encoder bound stands for: chosen on a sample, and said with what it was measured against."""

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from jobs.budget import check_budget
from jobs.encoders import refuse_options
from jobs.progress import waiting
from pipeline.choose import BATCH, NEIGHBOURS, Measured, choose_bound, choose_bytes
from pipeline.collect import FAILING
from pipeline.costs import SMALL, Search, every_row
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
    every = every_row(Search(vectors.rows, vectors.dims, vectors.dtype, kernel, BATCH, NEIGHBOURS))
    _tell(measured, every)
    if measured[0].share > FAILING or (vectors.rows >= SMALL and measured[0].cost > every):
        click.echo(
            f"bounds rule too little out of {vectors.where} under kernel {kernel.name}: the best leaves "
            f"{measured[0].share:.1%} of the rows and is expected to take {measured[0].cost:.1f} ns a row and query, "
            f"every row's score {every:.1f}. Exact searches will score every row where that is faster; for approximate "
            "ones use another --encoder.",
            err=True,
        )
    return measured[0].spec


def _tell(measured: list[Measured], every: float) -> None:
    """Print a row a bound on stderr, the chosen one first, and one for the search without any."""
    click.echo(f"expected of exact searches for {NEIGHBOURS} neighbours in batches of {BATCH} queries:", err=True)
    table = Table(box=None)
    for name in ("bound", "size", "bytes a row", "rows scored", "ns a row and query"):
        table.add_column(name, justify="left" if name == "bound" else "right")
    for bound in measured:
        fields = vars(bound.spec)
        size = str(fields.get("n_components", fields.get("n_groups")))
        table.add_row(bound.spec.name, size, str(bound.bytes), f"{bound.share:.3%}", f"{bound.cost:.2f}")
    table.add_row("every row", "", "", "100%", f"{every:.2f}")
    Console(stderr=True).print(table)

"""The choice of ``--encoder bound``: bounds are measured on a sample, and the cheapest is taken."""

from dataclasses import replace

import click

from mercore.jobs.printing import print_bounds
from mercore.jobs.progress import waiting
from mercore.jobs.verbs.resuming import open_begun
from mercore.pipeline.encode import check_every_row, spec_of
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.search.choose_bound import BATCH, NEIGHBOURS, choose_bound
from mercore.pipeline.search.collect import FAILING
from mercore.pipeline.search.costs import SMALL, Search, every_row
from mercore.stores.codes import open_code_store
from mercore.stores.errors import ExistsError
from mercore.stores.vectors import Vectors, VectorStore


def chosen_bound(vectors: Vectors, kernel: Kernel, *, random_state: int) -> EncoderSpec:
    """Return the bound with the cheapest exact search; print the measurements of all bounds.

    Raises
    ------
    InputError
        If a row is outside the kernel's domain.
    """
    if not isinstance(vectors, VectorStore):
        check_every_row(vectors, kernel)  # errors of a sample would name other row numbers
    with waiting("measuring bounds on a sample"):
        measured = choose_bound(vectors, kernel, random_state=random_state)
    every = every_row(Search(vectors.rows, vectors.dims, vectors.dtype, kernel, BATCH, NEIGHBOURS))
    print_bounds(measured, every, k=NEIGHBOURS, batch=BATCH)
    if measured[0].share > FAILING or (vectors.rows >= SMALL and measured[0].cost > every):
        click.echo(
            f"bounds rule out too few rows of {vectors.where} under kernel {kernel.name}: the "
            "best leaves "
            f"{measured[0].share:.1%} of the rows and is expected to take "
            f"{measured[0].cost:.1f} ns per row and query, "
            f"scoring every row {every:.1f}. Exact searches will score every row if that is "
            "faster; for approximate "
            "searches use another --encoder.",
            err=True,
        )
    return measured[0].spec


def begun_bound(codes: str, seed: int) -> EncoderSpec | None:
    """Return the bound of existing ``codes``, with the given seed, or None if there are none.

    The bound is not chosen again: another version of mercore may choose another.

    Raises
    ------
    ExistsError
        If something else exists there.
    """
    store = open_begun(codes, open_code_store, "codes", "bounds")
    if store is None:
        return None
    spec = spec_of(store)
    if not spec.bounds:
        raise ExistsError(
            f"{codes} holds codes of {spec.name}, which are no bounds: expected bounds that are "
            "begun, or a new path. "
            "Fix: name another."
        )
    click.echo(f"{codes} is begun with {spec.name}: going on with that", err=True)
    return replace(spec, random_state=seed)

"""The choice of ``--encoder bound``: bounds are measured on a sample, and the cheapest is taken."""

from dataclasses import replace

from mercore.jobs.notices import echo
from mercore.jobs.printing import print_bounds
from mercore.jobs.progress import waiting
from mercore.jobs.verbs.inputs import KernelOptions
from mercore.pipeline.encode import check_every_row, spec_of
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.search.choices.bound import BATCH, NEIGHBOURS, choose_bound, usual_search
from mercore.pipeline.search.collect import FAILING
from mercore.pipeline.search.costs import every_row
from mercore.stores.codes import CodeStore
from mercore.stores.errors import CostError, ExistsError
from mercore.stores.vectors import Vectors, VectorStore
from mercore.stores.wording import command, option


def chosen_bound(
    vectors: Vectors, kernel: Kernel, options: KernelOptions, *, random_state: int, force: bool
) -> EncoderSpec:
    """Return the bound with the cheapest exact search; print the measurements of all bounds.

    ``options`` name the kernel.

    Raises
    ------
    InputError
        If a row is outside the kernel's domain.
    CostError
        If scoring every row is cheaper, unless ``force`` is set.
    """
    if not isinstance(vectors, VectorStore):
        check_every_row(vectors, kernel)  # errors of a sample would name other row numbers
    with waiting("measuring bounds on a sample"):
        measured = choose_bound(vectors, kernel, random_state=random_state)
    every = every_row(usual_search(vectors, kernel))
    print_bounds(measured, every, k=NEIGHBOURS, batch=BATCH)
    best = measured[0]
    if best.share > FAILING or best.cost > every:
        problem = (
            f"scoring every row of {vectors.where} under kernel {kernel.name} is cheaper than any "
            f"bound: it takes {every:.1f} ns per row and query, and the best bound, which leaves "
            f"{best.share:.1%} of the rows, {best.cost:.1f}"
        )
        if not force:
            raise CostError(
                f"{problem}. Nothing was made. Fix: {search_command(vectors, options)}, or encode "
                f"with {option('force')}."
            )
        echo(f"{problem}. The bound is made all the same, because of {option('force')}.", err=True)
    return best.spec


def search_command(vectors: Vectors, options: KernelOptions) -> str:
    """Return the call of an exact search that scores every row."""
    named = {
        "kernel": options.name,
        "gamma": options.gamma,
        "transform": options.transform,
        "linear_map": options.linear_map,
    }
    given = {name: value for name, value in named.items() if value is not None}
    return command("search", vectors.where, "QUERIES", **given, exact=True)


def begun_bound(store: CodeStore | None, seed: int) -> EncoderSpec | None:
    """Return the bound of existing codes, with the given seed, or None if there are none.

    The bound is not chosen again: another version of mercore may choose another.

    Raises
    ------
    ExistsError
        If they are codes of another encoder.
    """
    if store is None:
        return None
    spec = spec_of(store)
    if not spec.bounds:
        raise ExistsError(
            f"{store.where} holds codes of {spec.name}, which are no bounds: expected bounds that "
            "are begun, or a new path. Fix: name another."
        )
    echo(f"{store.where} is begun with {spec.name}: going on with that", err=True)
    return replace(spec, random_state=seed)

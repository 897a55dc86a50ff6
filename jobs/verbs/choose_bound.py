"""The bound that --encoder bound stands for: chosen on a sample, and said with what it was measured against."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from mercore.jobs.encoder_options import refuse_options
from mercore.jobs.printing import print_bounds
from mercore.jobs.progress import waiting
from mercore.jobs.resources.limits import check_budget
from mercore.pipeline.encode import check_every_row, lay_out, spec_of
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.bounds.bin_bound import BinBoundSpec
from mercore.pipeline.encoders.bounds.kpca_bound import KpcaBoundSpec
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.search.choose_bound import BATCH, NEIGHBOURS, choose_bound, choose_bytes
from mercore.pipeline.search.collect import FAILING
from mercore.pipeline.search.costs import SMALL, Search, every_row
from mercore.stores.codes import open_code_store
from mercore.stores.errors import ExistsError, FormatError, NotFoundError
from mercore.stores.location.resolve import location_of
from mercore.stores.part_store.compressors import check_compressor
from mercore.stores.vectors import Vectors, VectorStore


def chosen_bound(vectors: Vectors, kernel: Kernel, codes: str, options: Mapping[str, Any]) -> EncoderSpec:
    """Return the spec of the bound that codes are begun with, or else of that whose exact search is cheapest.

    What a sample says of each bound is printed.

    Raises
    ------
    MercoreError
        As ``begun_bound`` does, or if rows are not of the domain.
    """
    begun = begun_bound(vectors, kernel, codes, options)
    if begun is not None:
        click.echo(f"{codes} is begun with {begun.name}: going on with that", err=True)
        return begun
    if not isinstance(vectors, VectorStore):
        check_every_row(vectors, kernel)  # a row of a sample would be named by another number
    with waiting("measuring bounds on a sample"):
        measured = choose_bound(vectors, kernel, random_state=options.get("random_state") or 0)
    every = every_row(Search(vectors.rows, vectors.dims, vectors.dtype, kernel, BATCH, NEIGHBOURS))
    print_bounds(measured, every, k=NEIGHBOURS, batch=BATCH)
    if measured[0].share > FAILING or (vectors.rows >= SMALL and measured[0].cost > every):
        click.echo(
            f"bounds rule too little out of {vectors.where} under kernel {kernel.name}: the best leaves "
            f"{measured[0].share:.1%} of the rows and is expected to take {measured[0].cost:.1f} ns a row and query, "
            f"every row's score {every:.1f}. Exact searches will score every row where that is faster; for approximate "
            "ones use another --encoder.",
            err=True,
        )
    return measured[0].spec


def begun_bound(vectors: Vectors, kernel: Kernel, codes: str, options: Mapping[str, Any]) -> EncoderSpec | None:
    """Return the spec of the bound that codes are begun with; None if nothing is there, and one can be chosen.

    Raises
    ------
    InputError
        If an option is given that says what is to be chosen, or is out of range, or ingest counted rows that are not
        of the domain.
    ExistsError, StorageError
        If ``codes`` holds something else, or nothing can be written there.
    BudgetError
        If choosing would take more than ``memory``.
    """
    refuse_options(options, "bound", ("random_state",))
    begun = _begun(codes, options.get("random_state") or 0)
    if begun is None:
        location_of(codes).check_new()
        _refuse(vectors, kernel, options)
        check_budget("choosing a bound", choose_bytes(vectors, kernel), options.get("memory"), "name an --encoder")
    return begun


def _begun(codes: str, seed: int) -> EncoderSpec | None:
    """Return the bound that lies at ``codes``, with the seed that is asked for; None if nothing does.

    It is not chosen again: another version of this program may choose another.
    """
    try:
        store = open_code_store(codes)
    except NotFoundError:
        return None
    except FormatError:
        raise ExistsError(
            f"{codes} exists and holds no codes: expected bounds that are begun, or a new path. Fix: name another."
        ) from None
    spec = spec_of(store)
    if not isinstance(spec, KpcaBoundSpec | BinBoundSpec):
        raise ExistsError(
            f"{codes} holds codes of {spec.name}, which are no bounds: expected bounds that are begun, or a new path. "
            "Fix: name another."
        )
    return replace(spec, random_state=seed)


def _refuse(vectors: Vectors, kernel: Kernel, options: Mapping[str, Any]) -> None:
    """Refuse before choosing what would be refused of any bound behind it."""
    compressor = check_compressor(options.get("compressor") or "none")
    some = KpcaBoundSpec(n_landmarks=1, n_components=1)
    lay_out(vectors, kernel, some, part_rows=options.get("part_rows"), compressor=compressor)

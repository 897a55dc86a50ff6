"""Whether work fits the memory and the disk: what can be told before any of it, without a measurement."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jobs.budget import check_budget, check_disk, taken_at, workers_within
from jobs.encoders import make_spec
from jobs.opening import kernel_of
from jobs.options import available_cores
from jobs.parameters import CHOOSE
from jobs.planned import open_search
from jobs.workplace import Workplace, workplace_of
from pipeline.choose import choose_bytes
from pipeline.encode import EncodePlan, encode_bytes, lay_out
from stores.codes import KIND as CODES
from stores.footprint import column_bytes, skeleton_bytes
from stores.foreign import open_vectors
from stores.formats import open_source
from stores.formats.source import Source
from stores.header import Header, Layout, column_fields
from stores.place import Where, place
from stores.spec import to_json
from stores.vector_writer import chunk_rows
from stores.vectors import KIND as VECTORS


def check_fits(verb: str, options: Mapping[str, Any]) -> None:
    """Refuse a job that exceeds its ``memory`` or the free disk, as far as arithmetic tells; nothing is measured.

    Parameters
    ----------
    verb : str
        One that nothing is known of here passes.
    options : the verb's arguments and options, by their names on the command line

    Raises
    ------
    BudgetError
        If it does.
    MercoreError
        If the work could not begin for another reason.
    """
    checks = {"encode": _check_encode, "ingest": _check_ingest, "search": _check_search}
    if verb in checks:
        checks[verb](options)


def fits_encode(plan: EncodePlan, codes: Where, options: Mapping[str, Any]) -> Workplace:
    """Return where the codes are encoded, on as many threads as ``memory`` allows.

    Raises
    ------
    BudgetError
        If even the fewest take more, or the codes more than the disk has.
    """
    workplace = workplace_to_encode(plan, options)
    check_disk("encoding", codes, encoded_bytes(plan)["total"] - place(codes).held_bytes())
    needed = taken_at(workplace, encode_bytes(plan, workplace.threads))
    check_budget("encoding", needed, workplace.memory, "a smaller model" + workplace.or_fewer)
    return workplace


def workplace_to_encode(plan: EncodePlan, options: Mapping[str, Any]) -> Workplace:
    """Return where the options say that codes are encoded, on as many threads as ``memory`` allows, or on one."""
    workplace = workplace_of({"workers": None, **options}, "workers")
    if workplace.elsewhere:
        return workplace
    given, cores = options.get("workers"), available_cores()
    return replace(workplace, threads=workers_within(lambda n: encode_bytes(plan, n), given, cores, workplace.memory))


def fits_ingest(source: Source, store: Where, compressor: str) -> None:
    """Refuse to ingest what the disk has no room for.

    Raises
    ------
    BudgetError
        If the rows take more than is free; compressed ones may take less, and are let pass.
    """
    if compressor == "none":
        check_disk("ingesting", store, ingested_bytes(source, source.shape[0])["total"])


def encoded_bytes(plan: EncodePlan) -> dict[str, int]:
    """Return the bytes of the files of a code store; those of compressed columns, and of an unfitted model, are 0."""
    fitted = "model" in vars(plan)
    layout = plan.layout if fitted else plan.unfitted
    plain = all(fields["compressor"] == "none" for fields in layout.columns)
    return _totalled(Header(kind=CODES, spec=to_json(plan.spec), layout=layout), plain=plain)


def ingested_bytes(source: Source, rows: int, compressor: str = "none") -> dict[str, int]:
    """Return the bytes of the files of a vector store of so many rows of a source; 0 of compressed ones."""
    dims, dtype = source.shape[1], source.dtype
    fields = column_fields("vectors", dtype.name, dims, compressor)
    layout = Layout(rows=rows, part_rows=chunk_rows(dims, dtype), columns=[fields], model={})
    return _totalled(Header(kind=VECTORS, spec={}, layout=layout), plain=compressor == "none")


def _totalled(header: Header, *, plain: bool) -> dict[str, int]:
    """Return the bytes of a store's files by what they hold, and in all."""
    columns = column_bytes(header.layout) if plain else dict.fromkeys(header.layout.column_names, 0)
    found = {**columns, **skeleton_bytes(header)}
    return {**found, "total": sum(found.values())}


def _check_encode(options: Mapping[str, Any]) -> None:
    rows = open_vectors(options["vectors"])
    kernel = kernel_of(options, rows)
    if options.get("encoder") == CHOOSE:  # which bound is chosen is not known before it is measured
        check_budget("choosing a bound", choose_bytes(rows, kernel), options.get("memory"), "name an --encoder")
        return
    compressor = options.get("compressor") or "none"
    plan = lay_out(rows, kernel, make_spec(options), part_rows=options.get("part_rows"), compressor=compressor)
    fits_encode(plan, options["codes"], options)


def _check_ingest(options: Mapping[str, Any]) -> None:
    fits_ingest(open_source(options["source"]), options["store"], options.get("compressor") or "none")


def _check_search(options: Mapping[str, Any]) -> None:
    search = open_search(options["store"], options["queries"], options)
    check_budget("searching", search.needed, options.get("memory"), "a smaller --batch, or fewer --threads")

"""Whether work can be done, and fits the memory and the disk: what can be told before any of it is."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from mercore.jobs.background.job_spec import sources_of
from mercore.jobs.custom_kernel import load_custom, names_file
from mercore.jobs.encoder_options import CHOOSE, make_spec, refuse_options
from mercore.jobs.options import available_cores
from mercore.jobs.planning.planned import open_search
from mercore.jobs.resources.execution import Execution, execution_of
from mercore.jobs.resources.limits import check_budget, check_disk, taken_at, workers_within
from mercore.jobs.verbs.choose_bound import begun_bound
from mercore.jobs.verbs.inputs import check_out, kernel_of
from mercore.pipeline.encode import EncodePlan, encode_bytes, lay_out
from mercore.pipeline.kernels import make_kernel
from mercore.stores.codes import KIND as CODES
from mercore.stores.codes import CodeStore, open_code_store, resume
from mercore.stores.errors import ExistsError, FormatError, NotFoundError
from mercore.stores.formats import open_source
from mercore.stores.formats.source import Source
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.compressors import check_compressor
from mercore.stores.part_store.header import Header, Layout, column_fields, open_header
from mercore.stores.part_store.sizes import column_bytes, skeleton_bytes
from mercore.stores.rows import open_vectors
from mercore.stores.spec import to_json
from mercore.stores.vector_writer import chunk_rows
from mercore.stores.vectors import KIND as VECTORS


def check_fits(verb: str, options: Mapping[str, Any], to_come: AbstractSet[str] = frozenset()) -> None:
    """Refuse a job that could not begin, or exceeds its ``memory`` or the free disk, as far as arithmetic tells.

    Parameters
    ----------
    verb : str
        One that nothing is known of here passes.
    options : the verb's arguments and options, by their names on the command line
    to_come : real paths that others are still to write: a job that reads one is checked as far as it can be without

    Raises
    ------
    BudgetError
        If it does.
    MercoreError
        If the work could not begin for another reason.
    """
    sources = sources_of(verb, options)
    whole = to_come.isdisjoint(sources)
    checks = CHECKS if whole else CHECKS_WITHOUT_SOURCES
    if verb in checks:
        checks[verb](options)
    for path in () if whole else sources:
        if path not in to_come and not location_of(path).exists():
            raise NotFoundError(f"{path} does not exist: expected what {verb} reads. Fix: check the path.")


def fits_encode(plan: EncodePlan, codes: Where, options: Mapping[str, Any]) -> Execution:
    """Return where the codes are encoded, on as many threads as ``memory`` allows.

    Raises
    ------
    BudgetError
        If even the fewest take more, or the codes more than the disk has.
    """
    execution = execution_to_encode(plan, options)
    check_disk("encoding", codes, encoded_bytes(plan)["total"] - location_of(codes).held_bytes())
    needed = taken_at(execution, encode_bytes(plan, execution.threads))
    check_budget("encoding", needed, execution.memory, "a smaller model" + execution.or_fewer)
    return execution


def begun_codes(plan: EncodePlan, codes: Where) -> CodeStore | None:
    """Return the codes of this very job that lie there; None where there are none, and a store can be made.

    Raises
    ------
    ExistsError
        If something else lies there; it names what differs.
    StorageError
        If nothing can be made there.
    """
    found = resume(codes, plan.spec, plan.unfitted)
    if found is None:
        try:
            location_of(codes).check_new()
        except ExistsError:  # another process made it a moment ago: the same job, or the error that says so
            found = resume(codes, plan.spec, plan.unfitted)
            if found is None:
                raise
    return found


def execution_to_encode(plan: EncodePlan, options: Mapping[str, Any]) -> Execution:
    """Return where the options say that codes are encoded, on as many threads as ``memory`` allows, or on one."""
    execution = execution_of({"workers": None, **options}, "workers")
    if execution.remote:
        return execution
    given, cores = options.get("workers"), available_cores()
    return replace(execution, threads=workers_within(lambda n: encode_bytes(plan, n), given, cores, execution.memory))


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
    compressor = check_compressor(options.get("compressor") or "none")
    if options.get("encoder") == CHOOSE:
        encoder = begun_bound(rows, kernel, options["codes"], options)
        if encoder is None:  # which bound is chosen is not known before it is measured
            return
    else:
        encoder = make_spec(options)
    plan = lay_out(rows, kernel, encoder, part_rows=options.get("part_rows"), compressor=compressor)
    begun_codes(plan, options["codes"])
    fits_encode(plan, options["codes"], options)


def _check_new_codes(options: Mapping[str, Any]) -> None:
    """Refuse to encode what is not there yet: by an option, or to a place where no codes are or can be."""
    check_compressor(options.get("compressor") or "none")
    _check_kernel(options)
    execution_of({"workers": None, **options}, "workers")
    if options.get("encoder") == CHOOSE:
        refuse_options(options, CHOOSE, ("random_state",))
    else:
        make_spec(options)
    codes = options["codes"]
    try:
        open_code_store(codes)
    except NotFoundError:
        location_of(codes).check_new()
    except FormatError:
        raise ExistsError(
            f"{codes} exists and holds no codes: expected codes that are begun, or a new path. Fix: name another."
        ) from None


def _check_ingest(options: Mapping[str, Any]) -> None:
    _check_new_vectors(options)
    fits_ingest(open_source(options["source"]), options["store"], options.get("compressor") or "none")


def _check_new_vectors(options: Mapping[str, Any]) -> None:
    check_compressor(options.get("compressor") or "none")
    location_of(options["store"]).check_new()


def _check_search(options: Mapping[str, Any]) -> None:
    search = open_search(options["store"], options["queries"], options)
    check_budget("searching", search.needed, options.get("memory"), "a smaller --batch, or fewer --threads")


def _check_search_to_come(options: Mapping[str, Any]) -> None:
    check_out(options, options["queries"])
    execution_of(options)


def _check_verify(options: Mapping[str, Any]) -> None:
    from mercore.jobs.verbs.verify import claims

    claims(options["vectors"], options["queries"], options["hits"], options)


def _check_verify_to_come(options: Mapping[str, Any]) -> None:
    _check_kernel(options)
    execution_of(options)


def _check_compare(options: Mapping[str, Any]) -> None:
    from mercore.jobs.comparison.setup import comparison

    comparison(options["vectors"], options["queries"], options)


def _check_compare_to_come(options: Mapping[str, Any]) -> None:
    from mercore.jobs.comparison.setup import check_folder, similarities

    similarities(options)
    check_folder(options.get("out"))


def _check_export(options: Mapping[str, Any]) -> None:
    from mercore.jobs.verbs.export import exported

    exported(options["codes"], options["index"], options)


def _check_export_to_come(options: Mapping[str, Any]) -> None:
    from mercore.jobs.verbs.export import check_paths

    check_paths(options["codes"], options["index"], options)


def _check_check(options: Mapping[str, Any]) -> None:
    open_header(options["store"])


def _check_kernel(options: Mapping[str, Any]) -> None:
    """Refuse a kernel that is none, without the rows that it is for."""
    name, gamma, transform = (options.get(key) for key in ("kernel", "gamma", "transform"))
    assert name is not None
    make_kernel(name, gamma=gamma, transform=transform, custom=load_custom(name) if names_file(name) else None)


Check = Callable[[Mapping[str, Any]], None]
CHECKS: dict[str, Check] = {
    "ingest": _check_ingest,
    "encode": _check_encode,
    "search": _check_search,
    "verify": _check_verify,
    "compare": _check_compare,
    "check": _check_check,
    "export": _check_export,
}
CHECKS_WITHOUT_SOURCES: dict[str, Check] = {
    "ingest": _check_new_vectors,
    "encode": _check_new_codes,
    "search": _check_search_to_come,
    "verify": _check_verify_to_come,
    "compare": _check_compare_to_come,
    "export": _check_export_to_come,
}

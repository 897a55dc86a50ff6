"""What each verb does: opens stores, calls the library, and returns a report that can be JSON.

Functions take the options of the command of their name as keywords, with the same defaults: ``-k 10`` is ``k=10``,
``--part-rows 4096`` is ``part_rows=4096``. Rows to ingest, and queries, may be arrays.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from mercore.jobs.background.checks import fits_encode, fits_ingest
from mercore.jobs.calls import called
from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.encoder_options import make_spec
from mercore.jobs.encoder_parameters import CHOOSE
from mercore.jobs.options import available_cores, parse_ranks
from mercore.jobs.progress import progress, waiting
from mercore.jobs.resources.execution import Load, Stores, custom_kernel_file, execution_of, executor_for
from mercore.jobs.resources.limits import batch_of, search_bytes, within_memory
from mercore.jobs.verbs.choose_bound import chosen_bound
from mercore.jobs.verbs.inputs import (
    check_out,
    chosen_kernel,
    exclusive,
    kernel_of,
    kernel_options,
    kind_of,
    refuse,
    vectors_of,
)
from mercore.pipeline import encode as encoding
from mercore.pipeline import recall as evaluation
from mercore.pipeline.ingest import ingest as ingest_source
from mercore.pipeline.kernels import is_custom, kernel_from_spec
from mercore.pipeline.search import batch_search as searching
from mercore.pipeline.search.rerank import true_scores
from mercore.stores.codes import CodeStore, create_or_resume, open_code_store, resume
from mercore.stores.distinct import DistinctCounter
from mercore.stores.errors import FormatError, InputError
from mercore.stores.formats import Sliced, open_source
from mercore.stores.formats.source import Source
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.part_store.header import open_header
from mercore.stores.part_store.part_store import PartStore
from mercore.stores.results.hits import AnyHits, Hits, open_hits, write_hits
from mercore.stores.rows import open_rows, open_vectors
from mercore.stores.vector_writer import VectorWriter
from mercore.stores.vectors import KIND as VECTORS
from mercore.stores.vectors import VectorStore, open_vector_store, original_ids, stored_rows

Report = dict[str, Any]


@called("ingest")
def ingest(source: str | Sliced, store: str, *, drop_zero_rows: bool = False, compressor: str = "none") -> Report:
    """Copy a foreign source, or an array [n, d], into a new vector store; return what is in it."""
    rows = open_source(source)
    fits_ingest(rows, store, compressor)
    return ingest_rows(rows, store, drop_zero_rows=drop_zero_rows, compressor=compressor)


def ingest_rows(rows: Source, target: Where, *, drop_zero_rows: bool = False, compressor: str = "none") -> Report:
    """Copy rows that are open already into a new vector store; return what is in it."""
    began = time.perf_counter()
    n, d = rows.shape
    location_of(target).check_new()  # before waiting for anybody
    with (
        exclusive(target) as held,
        VectorWriter(target, dims=d, dtype=rows.dtype, compressor=compressor) as writer,
        closing(DistinctCounter(location_of(target).spill_folder())) as counter,
        progress("ingest", n, "rows") as advance,
    ):
        made = ingest_source(rows, writer, counter, drop_zero_rows=drop_zero_rows, advance=held.checked(advance))
    return {**_describe_vectors(made), "seconds": round(time.perf_counter() - began, 3)}


@called("encode")
def encode(vectors: str, codes: str, **options: Any) -> Report:  # noqa: ANN401
    """Encode a vector store, or what is still missing or wrong of its codes; return what was done."""
    from mercore.jobs.cluster import encode_parts as runner
    from mercore.jobs.cluster.client import connect

    began = time.perf_counter()
    rows = open_vectors(vectors)
    kernel = kernel_of(options, rows)
    encoder = chosen_bound(rows, kernel, codes, options) if options.get("encoder") == CHOOSE else make_spec(options)
    plan = encoding.plan_encode(
        rows, kernel, encoder, part_rows=options.get("part_rows"), compressor=options.get("compressor", "none")
    )
    resume(codes, plan.spec, plan.unfitted)  # another job's is refused before waiting for anybody
    execution = fits_encode(plan, codes, options)
    with exclusive(codes) as held, connect(execution) as client:
        store = resume(codes, plan.spec, plan.unfitted) or _create(codes, plan)
        undone = _resume(store, plan)
        if undone:
            held.check()  # fitting took its time
            with progress("encode", sum(np.diff(store.store.bounds(p))[0] for p in undone), "rows") as advance:
                sources = runner.Sources(vectors, custom_kernel_file(options))
                runner.encode_parts(client, codes, sources, undone, held.checked(advance))
            store.store.sweep()  # a worker killed on the way may have left scratch files
    seconds = time.perf_counter() - began
    return {**_describe_codes(store), "parts_done_now": len(undone), "seconds": round(seconds, 3)}


def _create(path: str, plan: encoding.EncodePlan) -> CodeStore:
    """Fit the model and make a code store of it, unless nothing can be made there."""
    location_of(path).check_new()
    with waiting(f"fitting {plan.encoder.name}"):
        model = plan.model
    return create_or_resume(path, plan.spec, plan.layout, model, source_path=location_of(plan.vectors.where).resolved())


def _resume(store: CodeStore, plan: encoding.EncodePlan) -> list[int]:
    """Mend what surrounds the parts, say what is wrong with any, and return the parts to be done."""
    store.store.sweep()
    for key in store.restore(lambda: plan.model):
        click.echo(f"writing {key} again: it was missing or damaged", err=True)
    undone = store.undone_parts()
    for part, reason in undone.items():
        if reason:
            click.echo(f"doing part {part} again: {reason}", err=True)
    wrong = sum(map(bool, undone.values()))
    if 0 < len(undone) < store.parts:
        done = store.parts - len(undone)
        click.echo(f"parts: {done} of {store.parts} done, {len(undone) - wrong} missing, {wrong} wrong", err=True)
    return list(undone)


@called("search")
def search(store: str, queries: str | Sliced, **options: Any) -> tuple[Report, Hits]:  # noqa: ANN401
    """Search a code store or a vector store; return what it took, and the hits, which ``out`` names a file for."""
    check_out(options, queries)
    if options.get("exact") or options.get("relaxed") is not None:
        from mercore.jobs.verbs.exact import search as search_exactly

        return search_exactly(store, queries, **options)
    execution = execution_of(options)
    settings = searching.SearchSettings(
        k=options["k"], rerank=options.get("rerank"), batch=batch_of(options), threads=execution.threads
    )
    source = open_rows(queries)
    began = time.perf_counter()
    with threadpool_limits(1), progress("search", source.shape[0], "queries") as advance:
        if kind_of(store) == "codes":
            rows, hits = _search_codes(store, source, settings, options, advance)
        else:
            rows, hits = _search_vectors(store, source, settings, options, advance)
    seconds = time.perf_counter() - began
    nq = source.shape[0]
    report: Report = {"store": store, "queries": nq, "k": settings.k, "rows": rows, "seconds": round(seconds, 3)}
    report["ns_per_row_and_query"] = round(seconds / rows / nq * 1e9, 3)
    if options.get("out"):
        report["written"] = write_hits(options["out"], hits)
    return report, hits


@called("verify")
def verify(vectors: str, queries: str | Sliced, hits: AnyHits, **options: Any) -> Report:  # noqa: ANN401
    """Return for each query whether its hits are the true nearest rows, in order, and what is nearer where not."""
    from mercore.jobs.verbs.verify import verify as prove

    return prove(vectors, queries, hits, **options)


@called("compare")
def compare(vectors: str, queries: str, **options: Any) -> Report:  # noqa: ANN401
    """Compare encoders by recall, bytes and time; return the runs and their summary."""
    from mercore.jobs.comparison.compare import run

    return run(vectors, queries, **options)


@called("export")
def export(codes: str, index: str, **options: Any) -> Report:  # noqa: ANN401
    """Write codes of product quantisation as a faiss index; return what was written."""
    from mercore.jobs.verbs.export import export as write

    return write(codes, index, **options)


@called("evaluate")
def evaluate(hits: AnyHits, truth: AnyHits, **options: Any) -> Report:  # noqa: ANN401
    """Compare hits with the truth by each definition of recall."""
    returned, true = open_hits(hits), open_hits(truth)
    vectors = options.get("vectors")
    if vectors:
        if not (options.get("queries") and options.get("kernel")):
            raise InputError("--vectors re-scores the hits: it needs --queries and --kernel too. Fix: name both.")
        returned = rescored(returned, vectors, options["queries"], **kernel_options(options))
    else:
        refuse(options, ("queries", "kernel", "gamma", "transform"), "it says how to re-score the hits from --vectors")
    ranks = parse_ranks(options["ranks"]) if options.get("ranks") is not None else None
    recall = recalls(returned, true, ranks, exact_scores=bool(vectors))
    named = {"hits": hits, "truth": truth}
    return {
        **{key: value for key, value in named.items() if isinstance(value, str)},
        "queries": len(returned.ids),
        "recall": recall,
    }


def recalls(returned: Hits, truth: Hits, ranks: list[int] | None = None, *, exact_scores: bool = False) -> list[Report]:
    """Return each definition of recall at each rank, as mappings."""
    result = evaluation.evaluate(returned, truth, ranks, exact_scores=exact_scores)
    return [vars(row) for row in result.recalls]


def rescored(hits: Hits, store: str, queries: str | Sliced, **kernel: Any) -> Hits:  # noqa: ANN401
    """Return hits with the true scores of their rows; ``kernel`` are the options that name one."""
    vectors, rows = open_vectors(store), open_rows(queries)
    scored_by, nq = kernel_of(kernel, vectors), rows.shape[0]
    if len(hits.ids) != nq:
        raise InputError(
            f"{rows.name} holds {nq} queries: expected {len(hits.ids)}, as the hits have. Fix: name their queries."
        )
    stored = stored_rows(hits.ids, vectors.dropped)
    if stored.max(initial=-1) >= vectors.rows:
        raise InputError(
            f"the hits name row {hits.ids.max()}: expected rows of {store}, the last of which is number "
            f"{original_ids(np.array([vectors.rows - 1]), vectors.dropped)[0]}. "
            "Fix: name the vectors that were searched."
        )
    searching.check_queries(rows, scored_by, vectors.dims, store)
    batches = [slice(at, min(at + 4096, nq)) for at in range(0, nq, 4096)]
    scores = [
        true_scores(vectors, scored_by, rows.read(at.start, at.stop), stored[at], threads=available_cores())
        for at in batches
    ]
    return Hits(scores=np.concatenate(scores), ids=hits.ids)


@called("info")
def info(store: str) -> Report:
    """Return what a store or a foreign file is."""
    kind = kind_of(store)
    if kind == "codes":
        return _describe_codes(open_code_store(store))
    if kind == VECTORS:
        return _describe_vectors(open_vector_store(store))
    source = open_source(store)
    return {
        "kind": "foreign",
        "path": store,
        "rows": source.shape[0],
        "dims": source.shape[1],
        "dtype": source.dtype.name,
    }


@called("check")
def check(store: str) -> Report:
    """Read every byte of a store against its receipts; return the faults, a sentence each."""
    kind = kind_of(store)
    if kind not in ("codes", VECTORS):
        raise FormatError(f"{store} has no receipts to check against. Fix: mercore ingest {store} STORE")
    parts = PartStore(store, open_header(store))
    with progress("check", parts.layout.parts, "parts") as advance:
        faults = parts.check(advance)
    return {"path": store, "kind": kind, "parts": parts.layout.parts, "faults": faults}


def hits_json(hits: Hits) -> Report:
    """Return hits as lists."""
    assert hits.scores is not None
    return {"ids": hits.ids.tolist(), "scores": hits.scores.astype(float).tolist()}


def _search_codes(
    store: str,
    queries: Source,
    settings: searching.SearchSettings,
    options: Mapping[str, Any],
    advance: searching.Advance,
) -> tuple[int, Hits]:
    """Search a code store; its kernel is the one it was encoded with."""
    codes = open_code_store(store)
    custom = custom_kernel_of(codes, options.get("kernel"))
    refuse(options, ("gamma", "transform"), f"{store} has its kernel already")
    if not settings.rerank:
        refuse(options, ("vectors",), "the vectors are only read to --rerank")
    settings.check(codes.rows)
    vectors = vectors_of(codes, options.get("vectors")) if settings.rerank else None
    nq, execution = queries.shape[0], execution_of(options)
    settings = within_memory(
        settings, execution, lambda some: search_bytes(codes, some, queries=nq, reranked=vectors), options
    )
    kernel = kernel_from_spec(codes.spec.kernel, custom).spec()
    stores = Stores(
        codes=store, vectors=vectors.where if vectors else None, kernel=kernel, custom=custom_kernel_file(options)
    )
    with executor_for(execution, stores, Load(nq, settings.batch, settings.cache_bytes)) as executor:
        settings = replace(settings, custom=custom, executor=executor)
        return codes.rows, searching.search_code_store(codes, queries, settings, vectors=vectors, advance=advance)


def _search_vectors(
    store: str,
    queries: Source,
    settings: searching.SearchSettings,
    options: Mapping[str, Any],
    advance: searching.Advance,
) -> tuple[int, Hits]:
    """Search a vector store by the true kernel."""
    if settings.rerank:
        raise InputError(f"{store} holds vectors: their scores are the true ones already. Fix: leave --rerank out.")
    refuse(options, ("vectors",), f"{store} is the vectors")
    vectors = open_vectors(store)
    kernel = chosen_kernel(options, vectors)
    encoding.check_domain(vectors, kernel)
    nq, execution = queries.shape[0], execution_of(options)
    settings = within_memory(settings, execution, lambda some: search_bytes(vectors, some, queries=nq), options)
    stores = Stores(vectors=store, kernel=kernel.spec(), custom=custom_kernel_file(options))
    with executor_for(execution, stores, Load(nq, settings.batch)) as executor:
        settings = replace(settings, executor=executor)
        return vectors.rows, searching.search_vector_store(vectors, kernel, queries, settings, advance=advance)


def _describe_vectors(vectors: VectorStore) -> Report:
    return {
        "kind": VECTORS,
        "path": vectors.where,
        "rows": vectors.rows,
        "parts": vectors.parts,
        "bytes": sum(vectors.store.stored_bytes.values()),
        "fingerprint": vectors.fingerprint,
        **{key: value for key, value in vars(vectors.spec).items() if key not in ("name", "version", "content")},
    }


def _kernel_spec(codes: CodeStore) -> Report:
    """Return the spec of a store's kernel: one that this version knows, or a user's own."""
    spec = dict(codes.spec.kernel)
    return spec if is_custom(spec) else kernel_from_spec(spec).spec()


def _describe_codes(codes: CodeStore) -> Report:
    columns, parts_done = codes.store.stored_bytes, codes.store.parts_done
    total = sum(columns.values())
    rows_done = min(codes.rows, parts_done * codes.store.layout.part_rows)
    return {
        "kind": "codes",
        "path": codes.where,
        "rows": codes.rows,
        "parts": codes.parts,
        "parts_done": parts_done,
        "kernel": _kernel_spec(codes),
        "encoder": codes.spec.encoder,
        "bytes": total,
        "bytes_per_row": round(total / max(1, rows_done), 3),
        "columns": columns,
        "source": codes.source_path,
    }

"""Encoders side by side: a run an encoder, kernel and seed, each recorded when it ends and then not done again."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mercore.jobs import api
from mercore.jobs.comparison.candidates import Candidate, Similarity
from mercore.jobs.comparison.plot import draw_recall
from mercore.jobs.comparison.setup import RECORDED, RECORDS, Setup, comparison, protocol_of, read_records
from mercore.jobs.comparison.summary import panels, recall_at, summarise
from mercore.jobs.encoder_options import options_of_spec
from mercore.jobs.verbs.inputs import exclusive
from mercore.pipeline.encode import check_every_row
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.equal_cost import code_bytes, operations
from mercore.stores.formats.npy import write_npy
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.publish import exists, publish, storage_errors
from mercore.stores.location.scratch import scratch_folder, sweep
from mercore.stores.results.hits import Hits, read_hits
from mercore.stores.rows import open_rows
from mercore.stores.spec import to_json
from mercore.stores.vectors import VectorStore

Report = dict[str, Any]

WARMING = 128  # queries searched before the clock starts, so that loading and compiling loops is not counted


def run(vectors: str, queries: str, **options: Any) -> Report:  # noqa: ANN401
    """Compare encoders on every kernel and seed that is not in the folder ``out`` yet; return all that was found.

    Options are those of ``mercore compare``; with ``out``, runs are recorded there as they end, and curves are drawn.

    Raises
    ------
    MercoreError
        As ``comparison`` does, or if rows are outside a kernel's domain: before the first run.
    """
    found = comparison(vectors, queries, options)
    setup = found.setup
    for kernel in found.kernels[1:]:  # of the first, its own search sees every row
        if not isinstance(found.store, VectorStore):
            check_every_row(found.store, kernel.kernel)
    with _folder(options.get("out")) as (folder, held):
        runs = [record for kernel in found.kernels for record in _runs(setup, kernel, found.candidates, folder, held)]
        report: Report = {
            "vectors": vectors,
            "rows": setup.rows,
            "queries": queries,
            "query_count": setup.query_count,
            "ranks": setup.ranks,
            **protocol_of(options),
            "summary": summarise(runs, [way for way in ("search", "reranked") if way in runs[0]]),
            "runs": runs,
        }
        if options.get("out"):
            report["written"] = [str(folder / RECORDED), *_draw(report["summary"], folder)]
    return report


@contextmanager
def _folder(out: str | None) -> Iterator[tuple[Path, LeaseHandle | None]]:
    """Yield the folder that keeps what is found, without what killed runs left, and its lease; or a temporary one."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="mercore-compare-") as name:
            yield Path(name), None
        return
    with storage_errors("write", out):
        Path(out).mkdir(parents=True, exist_ok=True)
    with exclusive(Path(out)) as held:
        sweep(Path(out))
        yield Path(out), held


def _runs(
    setup: Setup, kernel: Similarity, candidates: Sequence[Candidate], folder: Path, held: LeaseHandle | None
) -> list[Report]:
    """Return one kernel's runs, those recorded in the folder and those that are done now."""
    runs = []
    for candidate in candidates:
        for seed in range(setup.seeds):
            spec: EncoderSpec = replace(candidate.spec, random_state=seed)
            known = _recorded(folder / RECORDED, setup.run_key(kernel.kernel, spec))
            record = known or _measure(setup, kernel, spec, folder)
            if held:
                held.check()
            if not known:
                _record(folder / RECORDED, record)
            runs.append({**record, "kernel_label": kernel.label, "label": candidate.label})
            _say(runs[-1], setup.ranks, known=bool(known))
    return runs


def _recorded(path: Path, key: str) -> Report | None:
    """Return the run of that key, if it is recorded."""
    return next((record for record in read_records(path) if record["key"] == key), None)


def _record(path: Path, record: Report) -> None:
    """Write the file anew, with one run more."""
    written = {**RECORDS, "runs": [*read_records(path), record]}
    publish(path, json.dumps(written, indent=1).encode())


def _truth(setup: Setup, kernel: Similarity, folder: Path) -> Hits:
    """Return the true neighbours: those found before, or by a search of every row."""
    path = str(folder / setup.truth_file(kernel.kernel))
    if not exists(Path(path)):
        click.echo(f"{kernel.label}: searching every row by the true kernel", err=True)
        api.search(setup.vectors, setup.queries, k=setup.k, out=path, **kernel.options, **_searching(setup))
    return read_hits(path)


def _measure(setup: Setup, kernel: Similarity, spec: EncoderSpec, folder: Path) -> Report:
    """Encode, search, and compare with the truth; the codes are removed again."""
    truth = _truth(setup, kernel, folder)
    choice = options_of_spec(spec)
    encoding = {key: setup.resources[key] for key in ("workers", "memory")}
    with scratch_folder(folder / "codes") as scratch:
        codes = str(scratch / "codes")
        encoded = api.encode(setup.vectors, codes, encoder=spec.name, **choice, **kernel.options, **encoding)
        api.search(codes, _few(setup.queries, scratch / "few.npy"), k=setup.k, **_searching(setup))
        found = {"search": _search(setup, codes, truth)}
        if setup.rerank:
            found["reranked"] = _search(setup, codes, truth, rerank=setup.rerank)
    return {
        "key": setup.run_key(kernel.kernel, spec),
        "vectors": setup.fingerprint,
        "queries": setup.queries_digest,
        "kernel": kernel.kernel.spec(),
        "encoder": to_json(spec),
        "seed": to_json(spec)["random_state"],
        "bytes_per_row": code_bytes(spec),
        "operations": operations(spec),
        **{key: setup.resources[key] for key in ("threads", "workers")},
        "encode_seconds": encoded["seconds"],
        "encode_us_per_row": round(encoded["seconds"] / setup.rows * 1e6, 3),
        **found,
    }


def _search(setup: Setup, codes: str, truth: Hits, *, rerank: int | None = None) -> Report:
    """Search codes, and return what it took and every definition of recall."""
    figures, hits = api.search(codes, setup.queries, k=setup.k, rerank=rerank, **_searching(setup))
    recall = api.recalls(hits, truth, setup.recorded, exact_scores=rerank is not None)
    kept = {key: figures[key] for key in ("seconds", "ns_per_row_and_query")}
    return {**kept, **({"rerank": rerank} if rerank else {}), "recall": recall}


def _searching(setup: Setup) -> Report:
    """Return the options of every search."""
    return {key: setup.resources[key] for key in ("threads", "memory")}


def _few(queries: str, path: Path) -> str:
    """Write the first queries as a file of their own, and return where it is."""
    rows = open_rows(queries)
    write_npy(path, rows.read(0, min(WARMING, rows.shape[0])))
    return str(path)


def _say(record: Report, ranks: Sequence[int], *, known: bool) -> None:
    """Say on stderr what a run found, and whether it was known already."""
    values = recall_at(record["search"])
    figures = ", ".join(f"R@{rank} {values[rank]:.3f}" for rank in ranks)
    seconds = (record["encode_seconds"], record["search"]["seconds"])
    took = "recorded before" if known else "encoded in {:.1f} s, searched in {:.1f} s".format(*seconds)
    click.echo(f"{record['kernel_label']}: {record['label']}, seed {record['seed']}: {figures}; {took}", err=True)


def _draw(summary: Sequence[Report], folder: Path) -> list[str]:
    """Draw the curves into the folder; return where they are."""
    drawn = panels(summary)
    paths = [folder / "recall.png", folder / "recall.svg"]
    for path in paths:
        publish(path, draw_recall(drawn, path.suffix.removeprefix(".")))
    return [str(path) for path in paths]

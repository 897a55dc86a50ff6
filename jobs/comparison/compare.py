"""``mercore compare``: one run per encoder, kernel and seed, recorded when it ends and then not done again."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click

from mercore.jobs.comparison.candidates import Candidate, Similarity
from mercore.jobs.comparison.plot import draw_recall
from mercore.jobs.comparison.setup import (
    RECORDED,
    RECORDS,
    CompareOptions,
    Comparison,
    Setup,
    check_limits,
    open_comparison,
    read_records,
)
from mercore.jobs.comparison.summary import recall_at, recall_panels, summarise
from mercore.jobs.options import Report
from mercore.jobs.printing import print_run
from mercore.jobs.verbs.encode import EncodeOptions, open_encode
from mercore.jobs.verbs.evaluate import recalls
from mercore.jobs.verbs.inputs import exclusive
from mercore.jobs.verbs.search import open_search
from mercore.jobs.verbs.search_task import SearchOptions
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

WARMING = 128  # queries that are searched before the clock starts, so that compiling is not counted


@dataclass(frozen=True, kw_only=True)
class CompareTask:
    """A comparison with everything open and checked."""

    comparison: Comparison
    options: CompareOptions

    def check_limits(self) -> None:
        """Refuse runs that would take more than the memory or the disk has."""
        check_limits(self.comparison, self.options.out)

    def run(self) -> Report:
        """Do the runs that ``out`` does not record yet; return all that was found, recorded and drawn.

        Raises
        ------
        InputError
            If rows are outside a kernel's domain: before the first run.
        """
        self.check_limits()
        found, out = self.comparison, self.options.out
        setup = found.setup
        for kernel in found.kernels[1:]:  # of the first, its own search sees every row
            if not isinstance(found.store, VectorStore):
                check_every_row(found.store, kernel.kernel)
        with _folder(out) as (folder, lease):
            runs = [
                record for kernel in found.kernels for record in _runs(setup, kernel, found.candidates, folder, lease)
            ]
            report: Report = {
                "vectors": setup.vectors,
                "rows": setup.rows,
                "queries": setup.queries,
                "query_count": setup.query_count,
                "ranks": setup.ranks,
                **self.options.protocol(),
                "summary": summarise(runs, [way for way in ("search", "reranked") if way in runs[0]]),
                "runs": runs,
            }
            if out:
                report["written"] = [str(folder / RECORDED), *_draw(report["summary"], folder)]
        return report


def open_compare(vectors: str, queries: str, options: CompareOptions) -> CompareTask:
    """Open all that a comparison reads, and refuse what cannot be compared.

    Raises
    ------
    MercoreError
        If something does not exist, or does not fit together.
    """
    return CompareTask(comparison=open_comparison(vectors, queries, options), options=options)


@contextmanager
def _folder(out: str | None) -> Iterator[tuple[Path, LeaseHandle | None]]:
    """Yield the folder that keeps what is found, without what killed runs left, and its lease; or a temporary one."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="mercore-compare-") as name:
            yield Path(name), None
        return
    with storage_errors("write", out):
        Path(out).mkdir(parents=True, exist_ok=True)
    with exclusive(Path(out)) as lease:
        sweep(Path(out))
        yield Path(out), lease


def _runs(
    setup: Setup, kernel: Similarity, candidates: Sequence[Candidate], folder: Path, lease: LeaseHandle | None
) -> list[Report]:
    """Return one kernel's runs, those recorded in the folder and those that are done now."""
    runs = []
    for candidate in candidates:
        for seed in range(setup.seeds):
            spec: EncoderSpec = replace(candidate.spec, random_state=seed)
            known = _recorded(folder / RECORDED, setup.run_key(kernel.kernel, spec))
            record = known or _measure(setup, kernel, spec, folder)
            if lease:
                lease.check()
            if not known:
                _record(folder / RECORDED, record)
            runs.append({**record, "kernel_label": kernel.label, "label": candidate.label})
            recall = recall_at(record["search"])
            print_run(runs[-1], {rank: recall[rank] for rank in setup.ranks}, known=bool(known))
    return runs


def _recorded(path: Path, key: str) -> Report | None:
    """Return the run of that key, if it is recorded."""
    return next((record for record in read_records(path) if record["key"] == key), None)


def _record(path: Path, record: Report) -> None:
    """Write the file anew, with one run more."""
    written = {**RECORDS, "runs": [*read_records(path), record]}
    publish(path, json.dumps(written, indent=1).encode())


def _truth(setup: Setup, kernel: Similarity, folder: Path) -> Hits:
    """Return the true neighbours: those found before, or those of a search of every row."""
    path = str(folder / setup.truth_file(kernel.kernel))
    if not exists(Path(path)):
        click.echo(f"{kernel.label}: searching every row by the true kernel", err=True)
        options = SearchOptions(k=setup.k, out=path, kernel=kernel.options, execution=setup.search)
        open_search(setup.vectors, setup.queries, options).run()
    return read_hits(path)


def _measure(setup: Setup, kernel: Similarity, spec: EncoderSpec, folder: Path) -> Report:
    """Encode, search, and compare with the truth; the codes are removed again."""
    truth = _truth(setup, kernel, folder)
    options = EncodeOptions(kernel=kernel.options, encoder=spec, execution=setup.encode)
    with scratch_folder(folder / "codes") as scratch:
        codes = str(scratch / "codes")
        encoded = open_encode(setup.vectors, codes, options).run()
        _search(setup, codes, _few(setup.queries, scratch / "few.npy"))
        found = {"search": _recall(setup, codes, truth)}
        if setup.rerank:
            found["reranked"] = _recall(setup, codes, truth, rerank=setup.rerank)
    return {
        "key": setup.run_key(kernel.kernel, spec),
        "vectors": setup.fingerprint,
        "queries": setup.queries_digest,
        "kernel": kernel.kernel.spec(),
        "encoder": to_json(spec),
        "seed": to_json(spec)["random_state"],
        "bytes_per_row": code_bytes(spec),
        "operations": operations(spec),
        "threads": setup.search.thread_count,
        "workers": setup.encode.thread_count,
        "encode_seconds": encoded["seconds"],
        "encode_us_per_row": round(encoded["seconds"] / setup.rows * 1e6, 3),
        **found,
    }


def _search(setup: Setup, codes: str, queries: str, rerank: int | None = None) -> tuple[Report, Hits]:
    """Search codes."""
    return open_search(codes, queries, SearchOptions(k=setup.k, rerank=rerank, execution=setup.search)).run()


def _recall(setup: Setup, codes: str, truth: Hits, *, rerank: int | None = None) -> Report:
    """Search codes for all queries; return the time and every definition of recall."""
    figures, hits = _search(setup, codes, setup.queries, rerank)
    recall = recalls(hits, truth, setup.recorded, exact_scores=rerank is not None)
    kept = {key: figures[key] for key in ("seconds", "ns_per_row_and_query")}
    return {**kept, **({"rerank": rerank} if rerank else {}), "recall": recall}


def _few(queries: str, path: Path) -> str:
    """Write the first queries as a file of their own, and return where it is."""
    rows = open_rows(queries)
    write_npy(path, rows.read(0, min(WARMING, rows.shape[0])))
    return str(path)


def _draw(summary: Sequence[Report], folder: Path) -> list[str]:
    """Draw the curves into the folder; return where they are."""
    drawn = recall_panels(summary)
    paths = [folder / "recall.png", folder / "recall.svg"]
    for path in paths:
        publish(path, draw_recall(drawn, path.suffix.removeprefix(".")))
    return [str(path) for path in paths]

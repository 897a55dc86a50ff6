"""``mercore compare``: one run per encoder, kernel and seed; recorded runs are not repeated."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mercore.jobs.comparison.candidates import Candidate, Similarity, parse_encoders
from mercore.jobs.comparison.plot import draw_recall
from mercore.jobs.comparison.setup import (
    PICTURES,
    RECORDED,
    RECORDS,
    CompareOptions,
    Setup,
    one_or_all,
    open_setup,
    read_records,
)
from mercore.jobs.comparison.summary import recall_at, recall_panels, summarise
from mercore.jobs.notices import echo
from mercore.jobs.options import Report
from mercore.jobs.printing import print_run
from mercore.jobs.resources.limits import check_budget, search_bytes
from mercore.jobs.verbs.encode import EncodeOptions, EncodeTask, open_encode
from mercore.jobs.verbs.evaluate import recalls
from mercore.jobs.verbs.inputs import KernelOptions, exclusive
from mercore.jobs.verbs.search import open_search
from mercore.jobs.verbs.search_task import SearchOptions
from mercore.pipeline.encode import check_domain, check_every_row, lay_out
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.equal_cost import code_bytes, operations
from mercore.pipeline.measures.recognition import recognition_rate
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.stores.errors import InputError
from mercore.stores.formats.npy import write_npy
from mercore.stores.formats.source import Source
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.publish import exists, publish, storage_errors
from mercore.stores.location.scratch import scratch_folder, sweep
from mercore.stores.results.hits import Hits, read_hits
from mercore.stores.rows import AnyQueries, open_vectors
from mercore.stores.spec import to_json
from mercore.stores.vectors import Vectors, VectorStore

WARMING = 128  # queries that are searched before the clock starts, to compile


@dataclass(frozen=True, kw_only=True)
class CompareTask:
    """A comparison with everything open and checked."""

    store: Vectors
    setup: Setup
    kernels: list[Similarity]
    candidates: list[Candidate]
    options: CompareOptions

    def check_limits(self) -> None:
        """Refuse runs that are not recorded yet and would exceed the memory or the disk."""
        setup, store, out = self.setup, self.store, self.options.out
        known = {record["key"] for record in read_records(Path(out) / RECORDED)} if out else set()
        folder = Path(out or tempfile.gettempdir())
        for kernel in self.kernels:
            undone = [
                candidate.spec
                for candidate in self.candidates
                if any(
                    setup.run_key(kernel.kernel, spec) not in known
                    for spec in self._seeded(candidate)
                )
            ]
            if undone and not (out and exists(folder / setup.truth_file(kernel.kernel))):
                least = SearchSettings(k=setup.k, batch=1, threads=setup.search.thread_count)
                needed = search_bytes(store, least, queries=setup.query_count)
                check_budget("searching", needed, setup.search.memory, "fewer --threads")
            for spec in undone:
                options = EncodeOptions(kernel=kernel.options, encoder=spec, execution=setup.encode)
                codes, plan = str(folder / "codes"), lay_out(store, kernel.kernel, spec)
                EncodeTask(
                    vectors=store, kernel=kernel.kernel, codes=codes, options=options, plan=plan
                ).check_limits()

    def run(self) -> Report:
        """Do the runs that ``out`` does not record yet; return all runs and their summary.

        Raises
        ------
        InputError
            If rows are outside a kernel's domain: before the first run.
        """
        self.check_limits()
        setup, out = self.setup, self.options.out
        for kernel in self.kernels[1:]:  # the search under the first kernel checks every row itself
            if not isinstance(self.store, VectorStore):
                check_every_row(self.store, kernel.kernel)
        with _folder(out) as (folder, lease):
            runs = [
                record for kernel in self.kernels for record in self._runs(kernel, folder, lease)
            ]
            report: Report = {
                "vectors": setup.vectors,
                "rows": setup.rows,
                "queries": setup.queries,
                "query_count": setup.query_count,
                "ranks": setup.ranks,
                **self.options.protocol(),
                "summary": summarise(runs),
                "runs": runs,
            }
            if out:
                report["written"] = [str(folder / RECORDED), *_draw(report, folder)]
        return report

    def _seeded(self, candidate: Candidate) -> list[EncoderSpec]:
        """Return the spec of a candidate with each seed."""
        return [replace(candidate.spec, random_state=seed) for seed in range(self.setup.seeds)]

    def _runs(self, kernel: Similarity, folder: Path, lease: LeaseHandle | None) -> list[Report]:
        """Return the runs of one kernel: recorded ones from the folder, others done now."""
        setup, path, runs = self.setup, folder / RECORDED, list[Report]()
        for candidate in self.candidates:
            for spec in self._seeded(candidate):
                key = setup.run_key(kernel.kernel, spec)
                known = next(
                    (record for record in read_records(path) if record["key"] == key), None
                )
                record = known or _measure(setup, kernel, spec, folder) | {"text": candidate.text}
                if lease:
                    lease.check()
                if not known:
                    _record(path, record)
                runs.append({**record, "kernel_label": kernel.label, "label": candidate.label})
                recall = recall_at(record["search"])
                print_run(runs[-1], {rank: recall[rank] for rank in setup.ranks}, known=bool(known))
        return runs


def open_compare(vectors: str, queries: str, options: CompareOptions) -> CompareTask:
    """Open the inputs of a comparison, and check them.

    Raises
    ------
    MercoreError
        If an input does not exist or does not fit the others, or ``out`` cannot keep a comparison.
    """
    options.check()
    store = open_vectors(vectors)
    setup = open_setup(vectors, queries, store, options)
    kernels = [  # custom ones are checked on rows of the store
        replace(kernel, kernel=kernel.options.open(store)) for kernel in options.similarities()
    ]
    candidates = parse_encoders(options.encoders, (store.rows, store.dims), options.protocol())
    for kernel in kernels:
        check_domain(store, kernel.kernel)
        for candidate in candidates:
            try:
                candidate.spec.check_kernel(kernel.kernel)
                candidate.spec.check(store, kernel.kernel)
            except InputError as error:
                raise InputError(f"--encoder {candidate.label}: {error}") from None
        check_queries(setup.query_rows, kernel.kernel, store.dims, vectors)
    return CompareTask(
        store=store, setup=setup, kernels=kernels, candidates=candidates, options=options
    )


@contextmanager
def _folder(out: str | None) -> Iterator[tuple[Path, LeaseHandle | None]]:
    """Yield the folder of the runs, without scratch files, and its lease; or a temporary one."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="mercore-compare-") as name:
            yield Path(name), None
        return
    with storage_errors("write", out):
        Path(out).mkdir(parents=True, exist_ok=True)
    with exclusive(Path(out)) as lease:
        sweep(Path(out))
        yield Path(out), lease


def _record(path: Path, record: Report) -> None:
    """Write the records again, with one run more."""
    written = {**RECORDS, "runs": [*read_records(path), record]}
    publish(path, json.dumps(written, indent=1).encode())


def _truth(setup: Setup, kernel: Similarity, folder: Path) -> Hits:
    """Return the true neighbours, from the folder or from a search of every row."""
    path = str(folder / setup.truth_file(kernel.kernel))
    if not exists(Path(path)):
        echo(f"{kernel.label}: searching every row by the true kernel", err=True)
        options = SearchOptions(k=setup.k, out=path, kernel=kernel.options, execution=setup.search)
        open_search(setup.vectors, setup.query_rows, options).run()
    return read_hits(path)


def _measure(setup: Setup, kernel: Similarity, spec: EncoderSpec, folder: Path) -> Report:
    """Encode, search, and compare with the true neighbours; the codes are removed."""
    truth = _truth(setup, kernel, folder)
    options = EncodeOptions(kernel=kernel.options, encoder=spec, execution=setup.encode)
    with scratch_folder(folder / "codes") as scratch:
        codes = str(scratch / "codes")
        encoded = open_encode(setup.vectors, codes, options).run()
        _search(setup, codes, _few(setup.query_rows, scratch / "few.npy"), kernel)
        searches: Report = {"search": _recall(setup, codes, truth, kernel)}
        if setup.reranks:
            searches["reranked"] = one_or_all(
                [_recall(setup, codes, truth, kernel, rerank=rerank) for rerank in setup.reranks]
            )
    return {
        "key": setup.run_key(kernel.kernel, spec),
        "vectors": setup.fingerprint,
        "queries": setup.queries_digest,
        "rows": setup.rows,
        "query_count": setup.query_count,
        "kernel": kernel.kernel.spec(),
        "encoder": to_json(spec),
        "seed": to_json(spec)["random_state"],
        "bytes_per_row": code_bytes(spec),
        "operations": operations(spec),
        "threads": setup.search.thread_count,
        "workers": setup.encode.thread_count,
        "encode_seconds": encoded["seconds"],
        "encode_us_per_row": round(encoded["seconds"] / setup.rows * 1e6, 3),
        **searches,
    }


def _search(
    setup: Setup, codes: str, queries: AnyQueries, kernel: Similarity, rerank: int | None = None
) -> tuple[Report, Hits]:
    """Search codes."""
    named = KernelOptions(name=kernel.options.file)  # codes need the file of a custom kernel alone
    options = SearchOptions(k=setup.k, rerank=rerank, kernel=named, execution=setup.search)
    return open_search(codes, queries, options).run()


def _recall(
    setup: Setup, codes: str, truth: Hits, kernel: Similarity, *, rerank: int | None = None
) -> Report:
    """Search codes for all queries; return the time, every definition of recall, the accuracy."""
    figures, hits = _search(setup, codes, setup.query_rows, kernel, rerank)
    recall = recalls(hits, truth, setup.recorded, kernel=kernel.kernel if rerank else None)
    kept = {key: figures[key] for key in ("seconds", "ns_per_row_and_query")}
    if setup.classifier is not None:
        kept["accuracy"] = recognition_rate(hits.ids, setup.classifier, 1)
    return {**kept, **({"rerank": rerank} if rerank else {}), "recall": recall}


def _few(rows: Source, path: Path) -> str:
    """Write the first queries to a file; return its path."""
    write_npy(path, rows.read(0, min(WARMING, rows.shape[0])))
    return str(path)


def _draw(report: Report, folder: Path) -> list[str]:
    """Draw the curves into the folder; return the paths of the pictures."""
    summary, rows = report["summary"], report["rows"]
    drawn = recall_panels(summary, rows)
    seeds = summary[0]["seeds"]
    deviations = f"; bands and bars: one standard deviation over {seeds} seeds" * (seeds > 1)
    caption = f"{rows:,} rows, {report['query_count']:,} queries{deviations}"
    paths = [folder / name for name in PICTURES]
    for path in paths:
        publish(path, draw_recall(drawn, path.suffix.removeprefix("."), caption))
    return [str(path) for path in paths]

"""``mercore compare``: one run per encoder, kernel and seed; recorded runs are not repeated."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mercore.jobs.comparison.candidates import Candidate, KernelChoice, parse_encoders
from mercore.jobs.comparison.plot import draw_recall
from mercore.jobs.comparison.setup import (
    PICTURES,
    RECORDED,
    RECORDS,
    CompareOptions,
    one_or_all,
    open_classifier,
    ranks_of,
    read_records,
)
from mercore.jobs.comparison.summary import recall_at, recall_panels, summarise
from mercore.jobs.notices import echo
from mercore.jobs.options import Report
from mercore.jobs.printing import print_run
from mercore.jobs.resources.execution import Execution
from mercore.jobs.resources.limits import check_budget, search_bytes
from mercore.jobs.verbs.encode import EncodeOptions, EncodeTask, open_encode
from mercore.jobs.verbs.evaluate import recalls
from mercore.jobs.verbs.inputs import KernelOptions, exclusive
from mercore.jobs.verbs.search import open_search
from mercore.jobs.verbs.searches.task import SearchOptions
from mercore.pipeline.encode import check_domain, check_every_row, lay_out
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.equal_cost import code_bytes, operations
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.measures.recognition import Classifier, recognition_rate
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.stores.codes import open_code_store
from mercore.stores.errors import InputError
from mercore.stores.formats.source import content_digest
from mercore.stores.location.protocol import LeaseHandle
from mercore.stores.location.publish import exists, publish, storage_errors
from mercore.stores.location.scratch import scratch_folder, sweep
from mercore.stores.results.hits import Hits, read_hits
from mercore.stores.rows import AnyQueries, OpenRows, open_rows, open_vectors
from mercore.stores.spec import digest, to_json
from mercore.stores.vectors import Vectors, VectorStore
from mercore.stores.wording import option

DRAWN_RANKS = [step * 10**power for power in range(6) for step in (1, 2, 5)]
WARMING = 128  # queries that are searched before the clock starts, to compile


@dataclass(frozen=True, kw_only=True)
class CompareTask:
    """A comparison with everything open and checked: the inputs that all runs share.

    Every run reads ``query_rows`` once more, and refuses them if they have changed.
    """

    vectors: str
    queries: str
    store: Vectors
    query_rows: OpenRows
    ranks: list[int]
    search: Execution
    encode: Execution
    classifier: Classifier | None
    kernels: list[KernelChoice]
    candidates: list[Candidate]
    options: CompareOptions

    @property
    def recorded(self) -> list[int]:
        """The ranks at which recall is recorded and drawn."""
        return sorted({*self.ranks, *(rank for rank in DRAWN_RANKS if rank < self.ranks[-1])})

    @cached_property
    def queries_digest(self) -> str:
        """Digest of the queries' dtype, shape and numbers."""
        return content_digest(self.query_rows)

    def check_limits(self) -> None:
        """Refuse runs that are not recorded yet and would exceed the memory or the disk."""
        store, out = self.store, self.options.out
        known = {record["key"] for record in read_records(Path(out) / RECORDED)} if out else set()
        folder = Path(out or tempfile.gettempdir())
        for choice in self.kernels:
            kernel = choice.kernel
            undone = [
                candidate.spec
                for candidate in self.candidates
                if any(self._run_key(kernel, spec) not in known for spec in self._seeded(candidate))
            ]
            if undone and not (out and exists(folder / self._truth_file(kernel))):
                least = SearchSettings(k=self.ranks[-1], batch=1, threads=self.search.thread_count)
                needed = search_bytes(store, least, queries=self.query_rows.shape[0])
                check_budget("searching", needed, self.options.memory, f"fewer {option('threads')}")
            for spec in undone:
                EncodeTask(
                    vectors=store,
                    kernel=kernel,
                    encoder=spec,
                    codes=str(folder / "codes"),
                    options=self._encoding(choice, spec),
                    plan=lay_out(store, kernel, spec),
                ).check_limits()

    def run(self) -> Report:
        """Do the runs that ``out`` does not record yet; return all runs and their summary.

        Raises
        ------
        InputError
            If rows are outside a kernel's domain: before the first run.
        """
        self.check_limits()
        store, out = self.store, self.options.out
        for choice in self.kernels[1:]:  # the search under the first kernel checks every row itself
            if not isinstance(store, VectorStore):
                check_every_row(store, choice.kernel)
        with _folder(out) as (folder, lease):
            runs = [run for choice in self.kernels for run in self._runs(choice, folder, lease)]
            report: Report = {
                "vectors": self.vectors,
                "rows": self.store.rows,
                "queries": self.queries,
                "query_count": self.query_rows.shape[0],
                "ranks": self.ranks,
                **self.options.protocol(),
                "summary": summarise(runs),
                "runs": runs,
            }
            if out:
                report["written"] = [str(folder / RECORDED), *_draw(report, folder)]
        return report

    def _seeded(self, candidate: Candidate) -> list[EncoderSpec]:
        """Return the spec of a candidate with each seed."""
        return [replace(candidate.spec, random_state=seed) for seed in range(self.options.seeds)]

    def _runs(self, choice: KernelChoice, folder: Path, lease: LeaseHandle | None) -> list[Report]:
        """Return the runs of one kernel: recorded ones from the folder, others done now."""
        path, runs = folder / RECORDED, list[Report]()
        for candidate in self.candidates:
            for spec in self._seeded(candidate):
                key = self._run_key(choice.kernel, spec)
                recorded = (record for record in read_records(path) if record["key"] == key)
                known = next(recorded, None)
                record = known or {
                    "key": key,
                    **self._measure(choice, spec, folder),
                    "text": candidate.text,
                }
                if lease:
                    lease.check()
                if not known:
                    _record(path, record)
                runs.append({**record, "kernel_label": choice.label, "label": candidate.label})
                recall = recall_at(record["search"])
                shown = {rank: recall[rank] for rank in self.ranks}
                print_run(runs[-1], shown, known=bool(known))
        return runs

    def _truth_file(self, kernel: Kernel) -> str:
        """Return the file name of the true neighbours; it contains a digest of their inputs."""
        return f"truth-{digest({**self._data(kernel), 'k': self.ranks[-1]})}.npz"

    def _run_key(self, kernel: Kernel, spec: EncoderSpec) -> str:
        """Return the digest of the inputs of a run, on which its recall depends."""
        searched: Report = {"ranks": self.recorded, "rerank": one_or_all(self.options.reranks())}
        if self.classifier is not None:
            searched["labels"] = self.classifier.fingerprint()
        return digest({**self._data(kernel), **searched, "encoder": to_json(spec)})

    def _data(self, kernel: Kernel) -> Report:
        fingerprints = {"vectors": self.store.fingerprint, "queries": self.queries_digest}
        return {**fingerprints, "kernel": kernel.spec()}

    def _encoding(self, choice: KernelChoice, spec: EncoderSpec) -> EncodeOptions:
        return EncodeOptions(kernel=choice.options, encoder=spec, execution=self.encode)

    def _measure(self, choice: KernelChoice, spec: EncoderSpec, folder: Path) -> Report:
        """Encode, search, and compare with the true neighbours; the codes are removed."""
        truth = self._truth(choice, folder)
        with scratch_folder(folder / "codes") as scratch:
            codes = str(scratch / "codes")
            encoded = open_encode(self.vectors, codes, self._encoding(choice, spec)).run()
            few = self.query_rows.read(0, min(WARMING, self.query_rows.shape[0]))
            self._search(choice, codes, few, rerank=None)
            atoms = open_code_store(Path(codes)).model.get("dictionary_rows")
            first, *reranked = [
                self._recall(choice, codes, truth, rerank=rerank, atoms=atoms)
                for rerank in (None, *self.options.reranks())
            ]
        return {
            "vectors": self.store.fingerprint,
            "queries": self.queries_digest,
            "rows": self.store.rows,
            "query_count": self.query_rows.shape[0],
            "kernel": choice.kernel.spec(),
            "encoder": to_json(spec),
            "seed": to_json(spec)["random_state"],
            "bytes_per_row": code_bytes(spec),
            "operations": operations(spec),
            "threads": self.search.thread_count,
            "workers": self.encode.thread_count,
            "encode_seconds": encoded["seconds"],
            "encode_us_per_row": round(encoded["seconds"] / self.store.rows * 1e6, 3),
            **({} if atoms is None else {"atoms": len(atoms) / self.store.rows}),
            "search": first,
            **({"reranked": one_or_all(reranked)} if reranked else {}),
        }

    def _truth(self, choice: KernelChoice, folder: Path) -> Hits:
        """Return the true neighbours, from the folder or from a search of every row."""
        path = str(folder / self._truth_file(choice.kernel))
        if not exists(Path(path)):
            echo(f"{choice.label}: searching every row by the true kernel", err=True)
            options = SearchOptions(
                k=self.ranks[-1], out=path, kernel=choice.options, execution=self.search
            )
            open_search(self.vectors, self.query_rows, options).run()
        return read_hits(path)

    def _search(
        self, choice: KernelChoice, codes: str, queries: AnyQueries, rerank: int | None
    ) -> tuple[Report, Hits]:
        """Search codes, which need the file of a custom kernel, but no other option of a kernel."""
        named = KernelOptions(name=choice.options.file)
        options = SearchOptions(
            k=self.ranks[-1], rerank=rerank, kernel=named, execution=self.search
        )
        return open_search(codes, queries, options).run()

    def _recall(
        self,
        choice: KernelChoice,
        codes: str,
        truth: Hits,
        *,
        rerank: int | None,
        atoms: NDArray[Any] | None,
    ) -> Report:
        """Search codes for all queries; return the time, the recalls and the accuracy.

        Of encoders with ``atoms``, rows of the store, also the share of these in the first hits.
        """
        figures, hits = self._search(choice, codes, self.query_rows, rerank)
        kept = {key: figures[key] for key in ("seconds", "ns_per_row_and_query")}
        if self.classifier is not None:
            kept["accuracy"] = recognition_rate(hits.ids, self.classifier, 1)
        if atoms is not None:
            kept["atoms"] = float(np.isin(hits.ids[:, 0], atoms).mean())
        if rerank:
            kept["rerank"] = rerank
        kernel = choice.kernel if rerank else None
        return {**kept, "recall": recalls(hits, truth, self.recorded, kernel=kernel)}


def open_compare(vectors: str, queries: str, options: CompareOptions) -> CompareTask:
    """Open the inputs of a comparison, and check them.

    Raises
    ------
    MercoreError
        If an input does not exist or does not fit the others, or ``out`` cannot keep a comparison.
    """
    options.check()
    store = open_vectors(vectors)
    ranks, query_rows = ranks_of(options, store.rows), open_rows(queries)
    nq, executions = query_rows.shape[0], (options.search_execution(), options.encode_execution())
    classifier = open_classifier(options.labelling, store, nq, ranks[-1])
    kernels = [
        KernelChoice(options=each, kernel=each.open(store)) for each in options.kernel_options()
    ]
    candidates = parse_encoders(options.encoders, (store.rows, store.dims), options.protocol())
    for kernel in (each.kernel for each in kernels):
        check_domain(store, kernel)
        for candidate in candidates:
            try:
                candidate.spec.check_kernel(kernel)
                candidate.spec.check(store, kernel)
            except InputError as error:
                message = f"{option('encoder')} {candidate.label}: {error.message}"
                raise InputError(message) from None
        check_queries(query_rows, kernel, store.dims, vectors)
    search, encode = (replace(each, threads=each.thread_count) for each in executions)
    return CompareTask(
        vectors=vectors,
        queries=queries,
        store=store,
        query_rows=query_rows,
        ranks=ranks,
        search=search,
        encode=encode,
        classifier=classifier,
        kernels=kernels,
        candidates=candidates,
        options=options,
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


def _draw(report: Report, folder: Path) -> list[str]:
    """Draw the curves into the folder; return the paths of the pictures."""
    summary, rows = report["summary"], report["rows"]
    drawn, paths = recall_panels(summary, rows), [folder / name for name in PICTURES]
    seeds = summary[0]["seeds"]
    deviations = f"; bands and bars: one standard deviation over {seeds} seeds" * (seeds > 1)
    caption = f"{rows:,} rows, {report['query_count']:,} queries{deviations}"
    for path in paths:
        publish(path, draw_recall(drawn, path.suffix.removeprefix("."), caption))
    return [str(path) for path in paths]

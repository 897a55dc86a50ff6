"""Encoders side by side: a run an encoder, kernel and seed, each recorded when it ends and then not done again."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from jobs import verbs
from jobs.contenders import Contender, Similarity, parse_encoders, parse_kernels
from jobs.opening import turn_at
from jobs.options import available_cores, parse_ranks
from jobs.parameters import FIELDS, PARAMETERS
from jobs.plot import draw_recall
from jobs.summary import panels, recall_at, summarise
from pipeline.encode import check_domain
from pipeline.encoders import EncoderSpec
from pipeline.encoders.encoder import check_range
from pipeline.evaluate import DEFAULT_RANKS
from pipeline.kernels import Kernel
from pipeline.protocols import code_bytes, operations
from pipeline.search import SearchOptions
from stores.errors import FormatError, InputError
from stores.foreign import open_rows, open_vectors
from stores.formats.npy import write_npy
from stores.formats.source import content_digest
from stores.hits import Hits, check_hits_path, read_hits
from stores.place import Held, refuse_url
from stores.publish import exists, publish, storage_errors
from stores.scratch import scratch_folder, sweep
from stores.spec import digest, to_json
from stores.vectors import Vectors

Report = dict[str, Any]

RECORDS = {"name": "mercore-compare", "version": 1}
DRAWN_RANKS = [step * 10**power for power in range(6) for step in (1, 2, 5)]
MAX_SEEDS = 1000
WARMING = 128  # queries searched before the clock starts, so that loading and compiling loops is not counted


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What all runs share: the data, the ranks (those of the table, and all that are recorded), and the machine."""

    vectors: str
    queries: str
    rows: int
    fingerprint: str
    ranks: list[int]
    rerank: int | None
    seeds: int
    resources: dict[str, Any]

    @property
    def k(self) -> int:
        """Neighbours a query: the greatest rank."""
        return self.ranks[-1]

    @property
    def recorded(self) -> list[int]:
        """The ranks at which recall is recorded, and drawn."""
        return sorted({*self.ranks, *(rank for rank in DRAWN_RANKS if rank < self.k)})

    @cached_property
    def queries_digest(self) -> str:
        """Digest of the queries' dtype, shape and numbers."""
        return content_digest(open_rows(self.queries))

    def truth_key(self, kernel: Kernel) -> str:
        """Return the digest of all that decides the true neighbours."""
        return digest({**self._data(kernel), "k": self.k})

    def run_key(self, kernel: Kernel, spec: EncoderSpec) -> str:
        """Return the digest of all that decides a run's recall."""
        searched = {"ranks": self.recorded, "rerank": self.rerank}
        return digest({**self._data(kernel), **searched, "encoder": to_json(spec)})

    def _data(self, kernel: Kernel) -> Report:
        return {"vectors": self.fingerprint, "queries": self.queries_digest, "kernel": kernel.spec()}


def run(vectors: str, queries: str, **options: Any) -> Report:  # noqa: ANN401
    """Compare encoders on every kernel and seed that is not in the folder ``out`` yet; return all that was found.

    Options are those of ``mercore compare``; with ``out``, runs are recorded there as they end, and curves are drawn.

    Raises
    ------
    InputError
        If an encoder's description, or what it asks of the store, is not right: before the first run.
    """
    store = open_vectors(vectors)
    ground = _ground(vectors, queries, store, options)
    kernels = parse_kernels(options["kernels"], gamma=options.get("gamma"), transform=options.get("transform"))
    protocol = {key: options[key] for key in ("bytes", "operations") if options.get(key) is not None}
    contenders = parse_encoders(options["encoders"], store.dims, protocol)
    for kernel in kernels:
        _check(contenders, store, kernel.kernel)
    with _folder(options.get("out")) as (folder, held):
        runs = [record for kernel in kernels for record in _runs(ground, kernel, contenders, folder, held)]
        report: Report = {
            "vectors": vectors,
            "rows": store.rows,
            "queries": queries,
            "query_count": open_rows(queries).shape[0],
            "ranks": ground.ranks,
            **protocol,
            "summary": summarise(runs, [way for way in ("search", "reranked") if way in runs[0]]),
            "runs": runs,
        }
        if options.get("out"):
            report["written"] = [str(folder / "compare.json"), *_draw(report["summary"], folder)]
    return report


def read_records(path: Path) -> list[Report]:
    """Return the runs that a folder's ``compare.json`` records; none if it is not there.

    Raises
    ------
    FormatError
        If it is not what a comparison wrote.
    """
    if not exists(path):
        return []
    with storage_errors("read", path):
        text = path.read_bytes()
    try:
        written = json.loads(text)
        if {key: written[key] for key in RECORDS} == RECORDS:
            return [record for record in written["runs"] if record["key"]]
        found = f"{written['name']} version {written['version']}"
    except (ValueError, LookupError, TypeError):
        found = "something else"
    raise FormatError(
        f"{path}: found {found}, expected the runs of a comparison, version {RECORDS['version']}. "
        "Mend: remove it, or name another folder with --out."
    )


def _ground(vectors: str, queries: str, store: Vectors, options: Mapping[str, Any]) -> Ground:
    """Return what all runs share, checked against the store."""
    threads = options.get("threads") or available_cores()
    ranks = _ranks(options.get("ranks"), store.rows)
    seeds = options.get("seeds", 1)
    check_range("seeds", seeds, (1, MAX_SEEDS), "--seeds 2")
    SearchOptions(k=ranks[-1], rerank=options.get("rerank"), threads=threads).check(store.rows)
    return Ground(
        vectors=vectors,
        queries=queries,
        rows=store.rows,
        fingerprint=store.fingerprint,
        ranks=ranks,
        rerank=options.get("rerank"),
        seeds=seeds,
        resources={
            "threads": threads,
            "workers": options.get("workers") or available_cores(),
            "memory": options.get("memory"),
        },
    )


def _ranks(text: str | None, rows: int) -> list[int]:
    """Return the ranks that a text like 1,10,100 names, or those of the usual ones that a store of ``rows`` has."""
    if text is None:
        return [rank for rank in DEFAULT_RANKS if rank <= rows] or [1]
    return parse_ranks(text, rows)


def _check(contenders: Sequence[Contender], store: Vectors, kernel: Kernel) -> None:
    """Refuse what the kernel or an encoder cannot do with the store, naming the encoder."""
    check_domain(store, kernel)
    for contender in contenders:
        try:
            contender.spec.check(store, kernel)
        except InputError as error:
            raise InputError(f"--encoder {contender.label}: {error}") from None


@contextmanager
def _folder(out: str | None) -> Iterator[tuple[Path, Held | None]]:
    """Yield the folder that keeps what is found, without what killed runs left, and its lease; or a temporary one."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="mercore-compare-") as name:
            yield Path(name), None
        return
    refuse_url(out, "a comparison")
    with storage_errors("write", out):
        Path(out).mkdir(parents=True, exist_ok=True)
    check_hits_path(str(Path(out) / "truth.npz"))
    with turn_at(Path(out)) as held:
        sweep(Path(out))
        yield Path(out), held


def _runs(
    ground: Ground, kernel: Similarity, contenders: Sequence[Contender], folder: Path, held: Held | None
) -> list[Report]:
    """Return one kernel's runs, those recorded in the folder and those that are done now."""
    runs = []
    for contender in contenders:
        for seed in range(ground.seeds):
            spec: EncoderSpec = replace(contender.spec, random_state=seed)
            known = _recorded(folder / "compare.json", ground.run_key(kernel.kernel, spec))
            record = known or _measure(ground, kernel, spec, folder)
            if held:
                held.check()
            if not known:
                _record(folder / "compare.json", record)
            runs.append({**record, "kernel_label": kernel.label, "label": contender.label})
            _say(runs[-1], ground.ranks, known=bool(known))
    return runs


def _recorded(path: Path, key: str) -> Report | None:
    """Return the run of that key, if it is recorded."""
    return next((record for record in read_records(path) if record["key"] == key), None)


def _record(path: Path, record: Report) -> None:
    """Write the file anew, with one run more."""
    written = {**RECORDS, "runs": [*read_records(path), record]}
    publish(path, json.dumps(written, indent=1).encode())


def _truth(ground: Ground, kernel: Similarity, folder: Path) -> Hits:
    """Return the true neighbours: those found before, or by a search of every row."""
    path = str(folder / f"truth-{ground.truth_key(kernel.kernel)}.npz")
    if not exists(Path(path)):
        click.echo(f"{kernel.label}: searching every row by the true kernel", err=True)
        verbs.search(ground.vectors, ground.queries, k=ground.k, out=path, **kernel.options, **_searching(ground))
    return read_hits(path)


def _measure(ground: Ground, kernel: Similarity, spec: EncoderSpec, folder: Path) -> Report:
    """Encode, search, and compare with the truth; the codes are removed again."""
    truth = _truth(ground, kernel, folder)
    choice = {option: getattr(spec, FIELDS.get(option, option)) for option in PARAMETERS[spec.name]}
    encoding = {key: ground.resources[key] for key in ("workers", "memory")}
    with scratch_folder(folder / "codes") as scratch:
        codes = str(scratch / "codes")
        encoded = verbs.encode(ground.vectors, codes, encoder=spec.name, **choice, **kernel.options, **encoding)
        verbs.search(codes, _few(ground.queries, scratch / "few.npy"), k=ground.k, **_searching(ground))
        found = {"search": _search(ground, codes, truth)}
        if ground.rerank:
            found["reranked"] = _search(ground, codes, truth, rerank=ground.rerank)
    return {
        "key": ground.run_key(kernel.kernel, spec),
        "vectors": ground.fingerprint,
        "queries": ground.queries_digest,
        "kernel": kernel.kernel.spec(),
        "encoder": to_json(spec),
        "seed": to_json(spec)["random_state"],
        "bytes_per_row": code_bytes(spec),
        "operations": operations(spec),
        **{key: ground.resources[key] for key in ("threads", "workers")},
        "encode_seconds": encoded["seconds"],
        "encode_us_per_row": round(encoded["seconds"] / ground.rows * 1e6, 3),
        **found,
    }


def _search(ground: Ground, codes: str, truth: Hits, *, rerank: int | None = None) -> Report:
    """Search codes, and return what it took and every definition of recall."""
    figures, hits = verbs.search(codes, ground.queries, k=ground.k, rerank=rerank, **_searching(ground))
    recall = verbs.recalls(hits, truth, ground.recorded, exact_scores=rerank is not None)
    kept = {key: figures[key] for key in ("seconds", "ns_per_row_and_query")}
    return {**kept, **({"rerank": rerank} if rerank else {}), "recall": recall}


def _searching(ground: Ground) -> Report:
    """Return the options of every search."""
    return {key: ground.resources[key] for key in ("threads", "memory")}


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

"""What a comparison is of, all open and checked before any work, and what its folder records."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mercore.jobs.background.checks import fits_encode
from mercore.jobs.comparison.candidates import Candidate, Similarity, parse_encoders, parse_kernels
from mercore.jobs.options import parse_ranks
from mercore.jobs.resources.execution import execution_of
from mercore.jobs.resources.limits import check_budget, search_bytes
from mercore.pipeline.encode import check_domain, lay_out
from mercore.pipeline.encoders import EncoderSpec
from mercore.pipeline.encoders.encoder import check_range
from mercore.pipeline.kernels import Kernel
from mercore.pipeline.recall_checks import DEFAULT_RANKS
from mercore.pipeline.search.batch_search import SearchSettings, check_queries
from mercore.stores.errors import ExistsError, FormatError, InputError, StorageError
from mercore.stores.formats.source import content_digest
from mercore.stores.location.protocol import ROOT
from mercore.stores.location.publish import exists, storage_errors
from mercore.stores.location.resolve import refuse_url
from mercore.stores.results.hits import check_hits_path
from mercore.stores.rows import open_rows, open_vectors
from mercore.stores.spec import digest, to_json
from mercore.stores.vectors import Vectors

Report = dict[str, Any]

RECORDS = {"name": "mercore-compare", "version": 1}
RECORDED = "compare.json"
ZARR = (ROOT, ".zarray", ".zgroup")  # what makes a folder an array or a group, of either version
DRAWN_RANKS = [step * 10**power for power in range(6) for step in (1, 2, 5)]
MAX_SEEDS = 1000


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all runs share: the data, the ranks (those of the table, and all that are recorded), and the machine."""

    vectors: str
    queries: str
    rows: int
    query_count: int
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

    def truth_file(self, kernel: Kernel) -> str:
        """Return the name of the file of the true neighbours: the digest of all that decides them is in it."""
        return f"truth-{digest({**self._data(kernel), 'k': self.k})}.npz"

    def run_key(self, kernel: Kernel, spec: EncoderSpec) -> str:
        """Return the digest of all that decides a run's recall."""
        searched = {"ranks": self.recorded, "rerank": self.rerank}
        return digest({**self._data(kernel), **searched, "encoder": to_json(spec)})

    def _data(self, kernel: Kernel) -> Report:
        return {"vectors": self.fingerprint, "queries": self.queries_digest, "kernel": kernel.spec()}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared on what, all checked."""

    store: Vectors
    setup: Setup
    kernels: list[Similarity]
    candidates: list[Candidate]


def comparison(vectors: str, queries: str, options: Mapping[str, Any]) -> Comparison:
    """Open all that a comparison reads, and refuse what cannot be compared, before any work.

    Raises
    ------
    InputError
        If an encoder's description, or what it asks of the store, is not right, or a kernel does not take the queries.
    ExistsError, StorageError
        If ``out`` is no folder for a comparison.
    BudgetError
        If a run that is still to be done would take more than ``memory`` or the disk has.
    """
    store = open_vectors(vectors)
    setup = _ground(vectors, queries, store, options)
    kernels = similarities(options)
    candidates = parse_encoders(options["encoders"], store.dims, protocol_of(options))
    for kernel in kernels:
        _check(candidates, store, kernel.kernel)
        check_queries(open_rows(queries), kernel.kernel, store.dims, vectors)
    check_folder(options.get("out"))
    found = Comparison(store=store, setup=setup, kernels=kernels, candidates=candidates)
    _fits(found, options.get("out"))
    return found


def similarities(options: Mapping[str, Any]) -> list[Similarity]:
    """Return the kernels that the options name."""
    return parse_kernels(options["kernels"], gamma=options.get("gamma"), transform=options.get("transform"))


def protocol_of(options: Mapping[str, Any]) -> dict[str, int]:
    """Return what every code may cost, if the options say so."""
    return {key: options[key] for key in ("bytes", "operations") if options.get(key) is not None}


def check_folder(out: str | None) -> None:
    """Refuse a folder in which no comparison can be kept: a store above all, whose files it would lie among.

    Raises
    ------
    InputError
        If it is a URL.
    ExistsError
        If it is a file, or a store or array of anybody's.
    StorageError
        If it cannot be written.
    """
    if out is None:
        return
    refuse_url(out, "a comparison")
    folder = Path(out)
    if any(exists(folder / name) for name in ZARR):
        raise ExistsError(
            f"{out} holds a Zarr store: expected a folder for a comparison. Fix: name another with --out."
        )
    if exists(folder):
        if not folder.is_dir():
            raise ExistsError(f"{out} is a file: expected a folder for a comparison. Fix: name another with --out.")
        check_hits_path(str(folder / "truth.npz"))
        read_records(folder / RECORDED)
        return
    nearest = next(above for above in folder.absolute().parents if exists(above))
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise StorageError(f"cannot write {out}: {nearest} is no folder to write in. Fix: name another with --out.")


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
        "Fix: remove it, or name another folder with --out."
    )


def _ground(vectors: str, queries: str, store: Vectors, options: Mapping[str, Any]) -> Setup:
    """Return what all runs share, checked against the store."""
    threads, workers = (execution_of({name: options.get(name)}, name).threads for name in ("threads", "workers"))
    ranks = _ranks(options.get("ranks"), store.rows)
    seeds = options.get("seeds", 1)
    check_range("seeds", seeds, (1, MAX_SEEDS), "--seeds 2")
    SearchSettings(k=ranks[-1], rerank=options.get("rerank"), threads=threads).check(store.rows)
    return Setup(
        vectors=vectors,
        queries=queries,
        rows=store.rows,
        query_count=open_rows(queries).shape[0],
        fingerprint=store.fingerprint,
        ranks=ranks,
        rerank=options.get("rerank"),
        seeds=seeds,
        resources={"threads": threads, "workers": workers, "memory": options.get("memory")},
    )


def _ranks(text: str | None, rows: int) -> list[int]:
    """Return the ranks that a text like 1,10,100 names, or those of the usual ones that a store of ``rows`` has."""
    if text is None:
        return [rank for rank in DEFAULT_RANKS if rank <= rows] or [1]
    return parse_ranks(text, rows)


def _check(candidates: Sequence[Candidate], store: Vectors, kernel: Kernel) -> None:
    """Refuse what the kernel or an encoder cannot do with the store, naming the encoder."""
    check_domain(store, kernel)
    for candidate in candidates:
        try:
            candidate.spec.check(store, kernel)
        except InputError as error:
            raise InputError(f"--encoder {candidate.label}: {error}") from None


def _fits(found: Comparison, out: str | None) -> None:
    """Refuse runs, of those that are not recorded, which would take more than the memory or the disk has."""
    setup, store = found.setup, found.store
    known = {record["key"] for record in read_records(Path(out) / RECORDED)} if out else set()
    folder = Path(out or tempfile.gettempdir())
    for kernel in found.kernels:
        undone = [each for each in found.candidates if not known.issuperset(_keys(setup, kernel, each))]
        if not undone:
            continue
        if not (out and exists(folder / setup.truth_file(kernel.kernel))):
            least = SearchSettings(k=setup.k, batch=1, threads=setup.resources["threads"])
            needed = search_bytes(store, least, queries=setup.query_count)
            check_budget("searching", needed, setup.resources["memory"], "fewer --threads")
        for candidate in undone:
            fits_encode(lay_out(store, kernel.kernel, candidate.spec), folder / "codes", setup.resources)


def _keys(setup: Setup, kernel: Similarity, candidate: Candidate) -> Iterator[str]:
    """Yield the keys of a contender's runs under a kernel."""
    for seed in range(setup.seeds):
        yield setup.run_key(kernel.kernel, replace(candidate.spec, random_state=seed))

"""What a comparison is of, all open and checked before any work, and what its folder records."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from mercore.jobs.comparison.candidates import Candidate, Similarity, parse_encoders, parse_kernels
from mercore.jobs.options import Report, check_whole, parse_ranks
from mercore.jobs.resources.execution import Execution
from mercore.jobs.resources.limits import check_budget, search_bytes
from mercore.jobs.verbs.encode import EncodeOptions, EncodeTask
from mercore.jobs.verbs.inputs import VerbOptions
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

RECORDS = {"name": "mercore-compare", "version": 1}
RECORDED = "compare.json"
ZARR = (ROOT, ".zarray", ".zgroup")  # what makes a folder an array or a group, of either version
DRAWN_RANKS = [step * 10**power for power in range(6) for step in (1, 2, 5)]
MAX_SEEDS = 1000


@dataclass(frozen=True, kw_only=True)
class CompareOptions(VerbOptions):
    """What the user said of a comparison; ``bytes`` and ``operations`` make codes of equal cost."""

    kernels: tuple[str, ...]
    encoders: tuple[str, ...]
    gamma: float | None = None
    transform: float | None = None
    bytes: int | None = None
    operations: int | None = None
    seeds: int = 1
    ranks: str | Iterable[int] | None = None
    rerank: int | None = None
    workers: int | None = None
    threads: int | None = None
    memory: int | None = None
    out: str | None = None

    def check(self, target: str | None = None) -> None:
        """Refuse kernels that do not exist, counts out of range, and a folder that cannot keep a comparison."""
        check_whole(bytes=self.bytes, operations=self.operations, seeds=self.seeds, rerank=self.rerank)
        self.similarities()
        self.search_execution().check()
        self.encode_execution().check()
        check_range("seeds", self.seeds, (1, MAX_SEEDS), "--seeds 2")
        check_out_folder(self.out)

    def similarities(self) -> list[Similarity]:
        """Return the kernels to compare under."""
        return parse_kernels(self.kernels, gamma=self.gamma, transform=self.transform)

    def protocol(self) -> dict[str, int]:
        """Return what every code may cost, if the user said so."""
        return {key: value for key in ("bytes", "operations") if (value := getattr(self, key)) is not None}

    def search_execution(self) -> Execution:
        """Return where codes are searched."""
        return Execution(threads=self.threads, memory=self.memory)

    def encode_execution(self) -> Execution:
        """Return where codes are made."""
        return Execution(threads=self.workers, memory=self.memory, threads_option="workers")


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
    search: Execution
    encode: Execution

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


def open_comparison(vectors: str, queries: str, options: CompareOptions) -> Comparison:
    """Open all that a comparison reads, and refuse what cannot be compared.

    Raises
    ------
    InputError
        If an encoder's description, or what it asks of the store, is not right, or a kernel does not take the queries.
    ExistsError, StorageError
        If ``out`` is no folder for a comparison.
    """
    options.check()
    store = open_vectors(vectors)
    setup = _setup(vectors, queries, store, options)
    kernels = options.similarities()
    candidates = parse_encoders(options.encoders, store.dims, options.protocol())
    for kernel in kernels:
        _check(candidates, store, kernel.kernel)
        check_queries(open_rows(queries), kernel.kernel, store.dims, vectors)
    return Comparison(store=store, setup=setup, kernels=kernels, candidates=candidates)


def check_out_folder(out: str | None) -> None:
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


def _setup(vectors: str, queries: str, store: Vectors, options: CompareOptions) -> Setup:
    """Return what all runs share, checked against the store."""
    ranks = _ranks(options.ranks, store.rows)
    search, encode = options.search_execution(), options.encode_execution()
    SearchSettings(k=ranks[-1], rerank=options.rerank, threads=search.thread_count).check(store.rows)
    return Setup(
        vectors=vectors,
        queries=queries,
        rows=store.rows,
        query_count=open_rows(queries).shape[0],
        fingerprint=store.fingerprint,
        ranks=ranks,
        rerank=options.rerank,
        seeds=options.seeds,
        search=replace(search, threads=search.thread_count),
        encode=replace(encode, threads=encode.thread_count),
    )


def _ranks(text: str | Iterable[int] | None, rows: int) -> list[int]:
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


def check_limits(comparison: Comparison, out: str | None) -> None:
    """Refuse runs that are not recorded yet and would take more than the memory or the disk has."""
    setup, store = comparison.setup, comparison.store
    known = {record["key"] for record in read_records(Path(out) / RECORDED)} if out else set()
    folder = Path(out or tempfile.gettempdir())
    for kernel in comparison.kernels:
        undone = [each for each in comparison.candidates if not known.issuperset(_keys(setup, kernel, each))]
        if not undone:
            continue
        if not (out and exists(folder / setup.truth_file(kernel.kernel))):
            least = SearchSettings(k=setup.k, batch=1, threads=setup.search.thread_count)
            needed = search_bytes(store, least, queries=setup.query_count)
            check_budget("searching", needed, setup.search.memory, "fewer --threads")
        for candidate in undone:
            options = EncodeOptions(kernel=kernel.options, encoder=candidate.spec, execution=setup.encode)
            codes = str(folder / "codes")
            plan = lay_out(store, kernel.kernel, candidate.spec)
            EncodeTask(vectors=store, kernel=kernel.kernel, codes=codes, options=options, plan=plan).check_limits()


def _keys(setup: Setup, kernel: Similarity, candidate: Candidate) -> Iterator[str]:
    """Yield the keys of a contender's runs under a kernel."""
    for seed in range(setup.seeds):
        yield setup.run_key(kernel.kernel, replace(candidate.spec, random_state=seed))

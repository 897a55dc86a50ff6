"""The options of a search, and the parts that all searches share."""

import shlex
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from numpy.typing import NDArray

from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.notices import echo
from mercore.jobs.options import Report, check_whole, refuse_unused
from mercore.jobs.progress import waiting
from mercore.jobs.resources.execution import Execution, SearchSize, WorkerPaths
from mercore.jobs.resources.limits import (
    AT_ONCE,
    INTERPRETER_BYTES,
    check_budget,
    fitted,
    label_bytes,
    taken_at,
)
from mercore.jobs.verbs.inputs import KernelOptions, VerbOptions
from mercore.jobs.verbs.rows.choice import RowChoice
from mercore.jobs.verbs.rows.labels import LabelChoice
from mercore.pipeline.encode import check_domain
from mercore.pipeline.encoders.encoder import check_range
from mercore.pipeline.kernels import CustomKernel, Kernel, kernel_from_spec
from mercore.pipeline.linear_map import LinearMap, map_of, mapped_source, mapped_vectors
from mercore.pipeline.search.batch_search import SearchSettings, check_source
from mercore.stores.codes import CodeStore
from mercore.stores.errors import InputError, MercoreError, NotFoundError
from mercore.stores.formats.source import Source
from mercore.stores.indexes import CellStore, Index
from mercore.stores.results.hits import (
    Hits,
    certificate_path,
    check_hits_path,
    check_names_path,
    write_hits,
)
from mercore.stores.results.names import AnyNames, Names, open_names
from mercore.stores.results.partial_answers import is_unfinished
from mercore.stores.results.range_hits import check_range_path
from mercore.stores.rows import AnyQueries, Stored, foreign_source, open_rows, open_vectors
from mercore.stores.vector_views import EarlierVectors, selected_vectors, store_of
from mercore.stores.vectors import Vectors, VectorStore
from mercore.stores.wording import option, setting

DEFAULT_BATCH = 1024
DEFAULT_K = 100
MAX_NEIGHBOURS = 1 << 16  # on either side of a query in a sorted order


@dataclass(frozen=True, kw_only=True)
class SearchOptions(VerbOptions):
    """The options of a search; without ``k`` it is 100, or fewer where there are fewer rows."""

    k: int | None = None
    rerank: int | None = None
    within: float | str | None = None
    exact: bool = False
    relaxed: float | None = None
    check_all: bool = False
    neighbours: int | None = None
    probes: int | None = None
    recall: float | None = None
    rows: RowChoice = RowChoice()  # noqa: RUF009 - it is frozen
    labels: LabelChoice = LabelChoice()  # noqa: RUF009 - it is frozen
    vectors: str | None = None
    kernel: KernelOptions = KernelOptions()  # noqa: RUF009 - it is frozen
    batch: int | None = None
    execution: Execution = Execution()  # noqa: RUF009
    names: AnyNames | None = None
    out: str | None = None
    hits_format: str | None = None
    force: bool = False

    def check(self) -> None:
        """Refuse contradictions, and a file of hits that cannot be written."""
        if not self.out:
            unused = {"hits_format": self.hits_format, "force": self.force or None}
            refuse_unused(f"without {option('out')} no file is written", **unused)
        if not self.with_bounds:
            unused = {"check_all": self.check_all or None}
            refuse_unused(f"it checks what {option('exact')} leaves unread", **unused)
        check_whole(k=self.k, rerank=self.rerank, batch=self.batch, neighbours=self.neighbours)
        check_probing(self.probes, self.recall)
        if self.neighbours is not None:
            check_range("neighbours", self.neighbours, (0, MAX_NEIGHBOURS), setting(neighbours=4))
        self.execution.check()
        self.labels.check()
        if self.labels.given:
            refuse_unused(
                "searches by labels run on threads of this process",
                processes=self.execution.processes,
                scheduler=self.execution.scheduler,
            )
        self.check_out()

    def check_out(self, *read: AnyQueries) -> None:
        """Refuse a file of hits or a certificate that cannot be written, or would replace a file.

        The files of an unfinished search may be replaced: it is compared with this one later.
        """
        if self.out:
            replace = self.force or (self.with_bounds and is_unfinished(self.out))
            check = check_range_path if self.of_any_number else check_hits_path
            check(self.out, self.hits_format, read=read, replace=replace)
            if self.with_bounds:
                check_hits_path(certificate_path(self.out), read=read, replace=replace)
            if self.names is not None:
                check_names_path(self.out, self.hits_format)

    @property
    def of_any_number(self) -> bool:
        """Whether all rows within a threshold are wanted, not the k nearest of them."""
        return self.within is not None and self.k is None

    @property
    def with_bounds(self) -> bool:
        """Whether the search is exact or relaxed, so that bounds are used."""
        return self.exact or self.relaxed is not None

    def settings(self, rows: int, custom: CustomKernel | None = None) -> SearchSettings:
        """Return the settings for a store of ``rows`` rows, before they are fitted into memory."""
        return SearchSettings(
            k=1 if self.of_any_number else self._neighbours_of(rows),
            rerank=None if self.rerank is None else int(self.rerank),
            batch=batch_size(self.batch),
            threads=self.execution.thread_count,
            custom=custom,
        )

    def _neighbours_of(self, rows: int) -> int:
        """Return k; print a default that is less than usual."""
        if self.k is not None:
            return int(self.k)
        named = self.rows.names_rows
        limits = {"no more rows take part" if named else "the store has no more rows": rows}
        if self.rerank is not None:
            limits[f"{option('rerank')} scores no more"] = max(1, int(self.rerank))
        why, most = min(limits.items(), key=lambda limit: limit[1])
        if most < DEFAULT_K:
            echo(f"{option('k')} is {most}, as {why}", err=True)
        return min(DEFAULT_K, most)


def check_probing(probes: int | None, recall: float | None) -> None:
    """Refuse a number of cells beside a recall, which chooses it, and a recall that is no share."""
    check_whole(probes=probes)
    if recall is None:
        return
    refuse_unused(f"{option('recall')} chooses the cells", probes=probes)
    if not 0 < recall <= 1:
        raise InputError(
            f"recall is out of range: found {recall:g}, expected a share above 0, at most 1. Fix: "
            f"{setting(recall=0.95)}"
        )


def batch_size(given: int | None) -> int:
    """Return the number of queries per batch before it is fitted into memory."""
    return DEFAULT_BATCH if given is None else int(given)


class Opened(NamedTuple):
    """A store that is open for a search: codes, or vectors; the kernel, and the map of rows."""

    codes: CodeStore | None
    vectors: Vectors | None
    kernel: Kernel
    custom: CustomKernel | None
    linear_map: LinearMap | None

    @property
    def scanned(self) -> CodeStore | Vectors:
        """The store that is scanned: codes, or vectors if there are none."""
        store = self.codes or self.vectors
        assert store is not None
        return store

    def open_queries(self, queries: AnyQueries) -> Source:
        """Return the queries, mapped as the rows of the store are."""
        return mapped_source(open_rows(queries), self.linear_map)

    def settings(self, options: SearchOptions, queries: Source) -> SearchSettings:
        """Return the settings of a search of the store, before they are fitted into memory."""
        labels = options.labels.open(self.scanned, queries)
        return replace(options.settings(self.scanned.rows, self.custom), labels=labels)


def open_searched(store: str, stored: Stored | None, options: SearchOptions) -> Opened:
    """Open codes, which have their kernel, or vectors, which need one; refuse options without use.

    Parameters
    ----------
    stored : the store that lies at the path ``store``; None if a foreign array does

    Raises
    ------
    MercoreError
        If it holds neither codes nor vectors, or the kernel does not fit it.
    """
    kernel = options.kernel
    if isinstance(stored, CodeStore):
        codes = stored
        custom = custom_kernel_of(codes, kernel.name)
        refuse_unused(f"{store} has its kernel already", linear_map=kernel.linear_map)
        of_codes = kernel_from_spec(codes.spec.kernel, custom)
        kernel.check_same(of_codes, store)
        codes = options.rows.select_codes(codes, options.vectors)
        return Opened(codes, None, of_codes, custom, map_of(codes))
    refuse_unused(f"{store} is the vectors", vectors=options.vectors)
    linear_map = kernel.open_map()
    rows = stored if isinstance(stored, VectorStore) else open_vectors(store)
    vectors = mapped_vectors(rows, linear_map)
    if not kernel.name:
        raise InputError(
            f"{vectors.where} holds vectors, and a search of vectors needs a kernel: found "
            f"none. Fix: {setting(kernel='chi2')}"
        )
    opened = kernel.open(vectors)
    check_domain(vectors, opened)
    return Opened(None, options.rows.select_vectors(vectors), opened, None, linear_map)


def open_source_vectors(
    codes: CodeStore | Index, moved: str | None, *, exact: bool = False
) -> Vectors:
    """Return the vectors of codes or of sorted orders, from ``moved`` or where they are found.

    Their rows are mapped if those of the codes were, and selected as those of the codes are. If
    rows were appended since, they are those that the codes encode; an ``exact`` search refuses
    this.
    """
    paths = codes.source_paths if moved is None else [moved]
    errors: list[MercoreError] = []
    for path in paths:
        try:
            vectors = _as_encoded(codes, path, exact=exact)
        except MercoreError as error:  # another path may hold the right ones
            errors.append(error)
        else:
            selection = codes.selection if isinstance(codes, CodeStore) else None
            return selected_vectors(vectors, selection)
    found = next((each for each in errors if not isinstance(each, NotFoundError)), errors[0])
    if isinstance(found, NotFoundError):
        raise NotFoundError(
            f"{found.message.removesuffix('.')}. {codes.where} was encoded from it: name its new "
            f"path with {option('vectors')}."
        )
    raise found


def _as_encoded(codes: CodeStore | Index, path: str, *, exact: bool) -> Vectors:
    """Open the vectors at a path as codes encode them: without the rows appended since."""
    rows = open_vectors(path, header=codes.source_header(path))
    vectors = mapped_vectors(rows, map_of(codes))
    encoded = [state for state in vectors.history if state.fingerprint == codes.spec.source]
    if encoded:
        grown = _grown(vectors.where, vectors.rows, codes)
        if exact:
            fix = _renewal(codes)
            raise InputError(f"{grown} an answer would not be exact. Fix: {fix}")
        echo(f"{grown} newer rows are not searched. Fix: {_renewal(codes)}", err=True)
        vectors = EarlierVectors(vectors, encoded[0])
    check_source(vectors, codes)
    return vectors


def check_bounded(codes: CodeStore, vectors: Vectors) -> None:
    """Refuse bounds of rows that have changed since: all rows of a foreign source are read.

    Raises
    ------
    IntegrityError
        If they have.
    """
    foreign = foreign_source(vectors)
    if foreign and codes.source_content:
        with waiting(f"checking the rows of {foreign.where}"):
            codes.check_content(foreign.content(), foreign.where)


def print_growth(codes: CodeStore | CellStore) -> None:
    """Print it if rows were appended to the vectors of codes, if these lie where they lay."""
    header = codes.source_header(codes.source_path)
    if header and codes.encoded_rows in {state["rows"] for state in header.layout.grown_from}:
        grown = _grown(codes.source_path, header.layout.rows, codes)
        echo(f"{grown} newer rows are not searched. Fix: {_renewal(codes)}", err=True)


def _grown(vectors: str, rows: int, codes: CodeStore | Index) -> str:
    """Return the sentence about vectors that have grown since codes were made of them."""
    made = f"{codes.where} was made of the first {codes.encoded_rows:,}"
    return f"{vectors} has {rows:,} rows, and {made}:"


def _renewal(codes: CodeStore | Index) -> str:
    """Return the command that updates codes or sorted orders to the new rows."""
    if isinstance(codes, CodeStore):
        paths = shlex.join([codes.source_path, codes.where])
        return f"mercore encode {paths}, with the options of before."
    again = "" if isinstance(codes, CellStore) else " to a new path"
    return f"mercore encode the rows into their codes, then mercore index the codes{again}."


@dataclass(frozen=True, kw_only=True)
class SearchTask(ABC):
    """A search with all its stores open, whose settings fit the memory.

    ``codes`` is None if vectors are scanned, ``vectors`` is None if none are read. ``map_file`` is
    the file of the linear map of vectors that are scanned. ``cut`` is the threshold that hits must
    be within, None for all. ``names`` are those of ids, None for none. ``needed`` is the memory in
    bytes beyond the interpreter.
    """

    store: str
    codes: CodeStore | None
    vectors: Vectors | None
    kernel: Kernel
    queries: Source
    settings: SearchSettings
    execution: Execution
    custom_file: str | None = None
    map_file: str | None = None
    out: str | None = None
    hits_format: str | None = None
    cut: float | None = None
    names: Names | None = None
    needed: int = field(default=0)

    @abstractmethod
    def bytes_with(self, settings: SearchSettings) -> int:
        """Return the bytes of memory that one worker takes for one batch."""

    @abstractmethod
    def run(self) -> tuple[Report, Hits]:
        """Search; return a report and the hits, which ``out`` gets too if it is given."""

    def with_names(self, names: AnyNames | None) -> Self:
        """Return the task with names for the ids of its hits; there must be one per id."""
        if names is None:
            return self
        opened = open_names(names)
        opened.check_count(self.scanned.id_count, self.store)
        return replace(self, names=opened)

    def write(self, hits: Hits) -> list[str]:
        """Write the hits to ``out``, which must be given; return the paths written."""
        assert self.out
        return write_hits(self.out, hits, self.hits_format, distances=self.kernel.ascending)

    def fit(self, *, batch: int | None) -> Self:
        """Return the task with settings that fit the memory; codes are cached in the rest of it.

        ``batch`` is the batch size that the user named, if any: it does not shrink.
        """
        memory = self.execution.memory
        keep = {
            name
            for name, given in (("batch", batch), ("threads", self.execution.threads))
            if given is not None
        }

        nq, stores = self.queries.shape[0], [each for each in (self.codes, self.vectors) if each]

        def needs(settings: SearchSettings) -> int:
            batches = AT_ONCE if self.execution.remote else 1
            one = batches * self.bytes_with(settings) + label_bytes(settings, nq, stores)
            return taken_at(self.execution, one)

        settings = fitted(self.settings, needs, memory, keep)
        needed = needs(settings)
        rest = 0 if memory is None else max(0, memory - INTERPRETER_BYTES - needed)
        return replace(self, settings=replace(settings, cache_bytes=rest), needed=needed)

    def check_limits(self) -> None:
        """Refuse a search that takes more memory than it may."""
        fix = f"a smaller {option('batch')}" + self.execution.or_fewer
        check_budget("searching", self.needed, self.execution.memory, fix)

    @property
    def scanned(self) -> CodeStore | CellStore | Vectors:
        """The scanned store: codes, or vectors if there are none."""
        store = self.codes or self.vectors
        assert store is not None
        return store

    @property
    def dims(self) -> int:
        """Dimension of the rows and of the queries."""
        scanned = self.scanned
        return scanned.dims if isinstance(scanned, Vectors) else scanned.spec.dims

    @property
    def optional_bytes(self) -> int:
        """Bytes that the search takes beyond those needed, because there is room for them."""
        return 0

    @property
    def met(self) -> float:
        """The share of the rows that a query meets, on average."""
        return 1.0

    @property
    def batch(self) -> NDArray[Any]:
        """The first batch of queries, dtype[≤ batch, d]."""
        return self.queries.read(0, min(self.settings.batch, self.queries.shape[0]))

    @property
    def scanned_bytes(self) -> int:
        """Bytes of the scanned store."""
        scanned = self.scanned
        if isinstance(scanned, Vectors):
            return scanned.rows * scanned.dims * scanned.dtype.itemsize
        return sum(scanned.stored_bytes.values())

    def paths(self, kernel: Kernel) -> WorkerPaths:
        """Return the stores that each remote worker opens, and the rows that take part."""
        selected = self.vectors or self.codes
        return WorkerPaths(
            kernel=kernel.spec(),
            codes=self.codes.where if self.codes else None,
            vectors=self.vectors.where if self.vectors else None,
            custom=self.custom_file,
            linear_map=self.map_file,
            selection=None if selected is None else selected.selection,
        )

    @property
    def size(self) -> SearchSize:
        """The size of the search, for remote workers."""
        settings = self.settings
        return SearchSize(
            self.queries.shape[0], settings.batch, settings.cache_bytes, settings.window
        )

    @property
    def read_bytes(self) -> int | None:
        """Bytes that were read of the chunks of the stores; None if other processes read them."""
        vectors = None if self.vectors is None else store_of(self.vectors)
        stores = [store.store for store in (self.codes, vectors) if store is not None]
        return None if self.execution.remote else sum(store.reads.bytes for store in stores)

    def report(self, seconds: float) -> Report:
        """Return the entries that the reports of all searches share."""
        rows, nq = self.scanned.rows, self.queries.shape[0]
        return {
            "store": self.store,
            "queries": nq,
            "k": self.settings.k,
            "rows": rows,
            "seconds": round(seconds, 3),
            "read_bytes": self.read_bytes,
            "queries_per_second": round(nq / seconds, 3),
            "ns_per_row_and_query": round(seconds / rows / nq * 1e9, 3),
        }

"""The options of a search, and what all searches are once their stores are open."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from numpy.typing import NDArray

from mercore.jobs.options import Report, check_whole
from mercore.jobs.resources.execution import Execution, Load, Stores
from mercore.jobs.resources.limits import AT_ONCE, INTERPRETER_BYTES, check_budget, fitted, taken_at
from mercore.jobs.verbs.inputs import KernelOptions, VerbOptions
from mercore.pipeline.kernels import CustomKernel, Kernel
from mercore.pipeline.search.batch_search import SearchSettings
from mercore.stores.codes import CodeStore
from mercore.stores.formats import Sliced
from mercore.stores.formats.source import Source
from mercore.stores.results.hits import Hits, certificate_path, check_hits_path
from mercore.stores.vectors import Vectors

DEFAULT_BATCH = 1024


@dataclass(frozen=True, kw_only=True)
class SearchOptions(VerbOptions):
    """What the user said of a search."""

    k: int = 100
    rerank: int | None = None
    exact: bool = False
    relaxed: float | None = None
    vectors: str | None = None
    kernel: KernelOptions = KernelOptions()  # noqa: RUF009 - it is frozen
    batch: int | None = None
    execution: Execution = Execution()  # noqa: RUF009
    out: str | None = None

    def check(self, target: str | None = None) -> None:
        """Refuse contradictions, and a file of hits that cannot be written."""
        check_whole(k=self.k, rerank=self.rerank, batch=self.batch)
        self.execution.check()
        self.check_out()

    def check_out(self, *read: str | Sliced) -> None:
        """Refuse to write hits, or the certificate of an exact search, where they cannot be, or over what is read."""
        if self.out:
            check_hits_path(self.out, read=read)
            if self.with_bounds:
                check_hits_path(certificate_path(self.out), read=read)

    @property
    def with_bounds(self) -> bool:
        """Whether the search is exact, or relaxed."""
        return self.exact or self.relaxed is not None

    def settings(self, custom: CustomKernel | None = None) -> SearchSettings:
        """Return the settings before they are fitted into memory."""
        return SearchSettings(
            k=int(self.k),
            rerank=None if self.rerank is None else int(self.rerank),
            batch=DEFAULT_BATCH if self.batch is None else int(self.batch),
            threads=self.execution.thread_count,
            custom=custom,
        )


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """A search with all its stores open, whose settings fit the memory.

    ``codes`` is None where vectors are scanned, ``vectors`` is None where none are read; ``needed`` is the memory in
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
    out: str | None = None
    needed: int = field(default=0)

    def bytes_with(self, settings: SearchSettings) -> int:
        """Return the bytes of memory that one worker takes for one batch."""
        raise NotImplementedError

    def run(self) -> tuple[Report, Hits]:
        """Search; return a report and the hits, which are written to ``out`` too if it is given."""
        raise NotImplementedError

    def fit(self, *, batch: int | None) -> Self:
        """Return the task with settings that fit the memory; the rest of the memory keeps codes between batches.

        ``batch`` is the batch size that the user named, which does not shrink.
        """
        memory = self.execution.memory
        keep = {name for name, given in (("batch", batch), ("threads", self.execution.threads)) if given is not None}

        def taken(settings: SearchSettings) -> int:
            batches = AT_ONCE if self.execution.remote else 1
            return taken_at(self.execution, batches * self.bytes_with(settings))

        settings = fitted(self.settings, taken, memory, keep)
        needed = taken(settings)
        rest = 0 if memory is None else max(0, memory - INTERPRETER_BYTES - needed)
        return replace(self, settings=replace(settings, cache_bytes=rest), needed=needed)

    def check_limits(self) -> None:
        """Refuse a search that takes more memory than it may."""
        fix = "a smaller --batch" + self.execution.or_fewer
        check_budget("searching", self.needed, self.execution.memory, fix)

    @property
    def exact(self) -> bool:
        """Whether bounds prove the answers, or relaxed bounds make them likely."""
        return False

    @property
    def scanned(self) -> CodeStore | Vectors:
        """The store whose every row is looked at."""
        found = self.codes or self.vectors
        assert found is not None
        return found

    @property
    def dims(self) -> int:
        """Dimension of the rows, and so of the queries."""
        if self.codes is not None:
            return self.codes.spec.dims
        assert self.vectors is not None
        return self.vectors.dims

    @property
    def batch(self) -> NDArray[Any]:
        """The first batch of queries, dtype[≤ batch, d]."""
        return self.queries.read(0, min(self.settings.batch, self.queries.shape[0]))

    @property
    def scanned_bytes(self) -> int:
        """Bytes of the store whose every row is looked at."""
        if self.codes is not None:
            return sum(self.codes.store.stored_bytes.values())
        assert self.vectors is not None
        return self.vectors.rows * self.vectors.dims * self.vectors.dtype.itemsize

    def stores(self, kernel: Kernel) -> Stores:
        """Return what each remote worker opens."""
        return Stores(
            kernel=kernel.spec(),
            codes=self.codes.where if self.codes else None,
            vectors=self.vectors.where if self.vectors else None,
            custom=self.custom_file,
        )

    @property
    def load(self) -> Load:
        """The size of the search, for remote workers."""
        settings = self.settings
        return Load(self.queries.shape[0], settings.batch, settings.cache_bytes, settings.window)

    def report(self, seconds: float) -> Report:
        """Return the part of the report that all searches share."""
        rows, nq = self.scanned.rows, self.queries.shape[0]
        return {
            "store": self.store,
            "queries": nq,
            "k": self.settings.k,
            "rows": rows,
            "seconds": round(seconds, 3),
            "ns_per_row_and_query": round(seconds / rows / nq * 1e9, 3),
        }

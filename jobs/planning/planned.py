"""A search with all its stores open and what it needs in memory, as far as that is told before it runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from mercore.jobs.custom_kernel import custom_kernel_of
from mercore.jobs.resources.execution import execution_of
from mercore.jobs.resources.limits import (
    INTERPRETER_BYTES,
    batch_of,
    batches_at,
    exact_bytes,
    fitted,
    search_bytes,
    taken_at,
)
from mercore.jobs.verbs.exact import prepare
from mercore.jobs.verbs.inputs import check_out, chosen_kernel, kind_of, refuse, vectors_of
from mercore.pipeline.encode import check_domain
from mercore.pipeline.kernels import Kernel, kernel_from_spec
from mercore.pipeline.search.batch_search import SearchSettings, check_queries, check_source
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import InputError
from mercore.stores.formats.source import Source
from mercore.stores.rows import open_rows, open_vectors
from mercore.stores.vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A search: ``codes`` are None where vectors are searched by the true kernel, ``vectors`` where none are read.

    ``needed`` are bytes beyond the interpreter; ``beta`` is below 1 where bounds are relaxed.
    """

    codes: CodeStore | None
    vectors: Vectors | None
    kernel: Kernel
    queries: Source
    settings: SearchSettings
    needed: int = 0
    exact: bool = False
    beta: float = 1.0

    @property
    def parts(self) -> int:
        """Parts of what is scanned."""
        return self.scanned.parts

    @property
    def scanned(self) -> CodeStore | Vectors:
        """What every row of is looked at."""
        found = self.codes or self.vectors
        assert found is not None
        return found

    @property
    def dims(self) -> int:
        """The dimension of what is scanned, as its queries must have."""
        if self.codes is not None:
            return self.codes.spec.dims
        assert self.vectors is not None
        return self.vectors.dims

    @property
    def batch(self) -> NDArray[Any]:
        """The first batch of queries."""
        return self.queries.read(0, min(self.settings.batch, self.queries.shape[0]))

    @property
    def scanned_bytes(self) -> int:
        """Bytes of what is scanned."""
        if self.codes is not None:
            return sum(self.codes.store.stored_bytes.values())
        assert self.vectors is not None
        return self.vectors.rows * self.vectors.dims * self.vectors.dtype.itemsize


def open_search(store: str, queries: str, options: Mapping[str, Any]) -> Planned:
    """Open all that a search reads, as ``mercore search`` does; its batch is what ``memory`` allows.

    Raises
    ------
    MercoreError
        If it cannot be searched so, or the hits not be written; that it takes more than ``memory`` is no error here.
    """
    check_out(options, queries)
    execution = execution_of(options)
    if options.get("exact") or options.get("relaxed") is not None:
        job = prepare(store, queries, {**options, "memory": None})
        relaxed = job.relaxation
        found = Planned(
            codes=job.codes,
            vectors=job.vectors.vectors,
            kernel=job.kernel,
            queries=job.queries,
            settings=job.settings,
            exact=True,
            beta=1.0 if relaxed is None else min(1.0, relaxed.beta),
        )
    else:
        settings = SearchSettings(
            k=options["k"], rerank=options.get("rerank"), batch=batch_of(options), threads=execution.threads
        )
        of = _of_codes if kind_of(store) == "codes" else _of_vectors
        found = of(store, open_rows(queries), settings, options)
        found.settings.check(found.scanned.rows)
        check_queries(found.queries, found.kernel, found.dims, store)

    def taken(some: SearchSettings) -> int:
        return taken_at(execution, batches_at(execution) * _needs(found)(some))

    settings = fitted(found.settings, taken, options)
    needed = taken(settings)
    room = 0 if options.get("memory") is None else options["memory"] - INTERPRETER_BYTES - needed
    return replace(found, settings=replace(settings, cache_bytes=max(0, room)), needed=needed)


def _of_codes(store: str, queries: Source, settings: SearchSettings, options: Mapping[str, Any]) -> Planned:
    codes = open_code_store(store)
    custom = custom_kernel_of(codes, options.get("kernel"))
    refuse(options, ("gamma", "transform"), f"{store} has its kernel already")
    if not settings.rerank:
        refuse(options, ("vectors",), "the vectors are only read to --rerank")
    vectors = vectors_of(codes, options.get("vectors")) if settings.rerank else None
    if vectors is not None:
        check_source(vectors, codes)
    kernel = kernel_from_spec(codes.spec.kernel, custom)
    return Planned(
        codes=codes, vectors=vectors, kernel=kernel, queries=queries, settings=replace(settings, custom=custom)
    )


def _of_vectors(store: str, queries: Source, settings: SearchSettings, options: Mapping[str, Any]) -> Planned:
    if settings.rerank:
        raise InputError(f"{store} holds vectors: their scores are the true ones already. Fix: leave --rerank out.")
    refuse(options, ("vectors",), f"{store} is the vectors")
    vectors = open_vectors(store)
    kernel = chosen_kernel(options, vectors)
    check_domain(vectors, kernel)
    return Planned(codes=None, vectors=vectors, kernel=kernel, queries=queries, settings=settings)


def _needs(search: Planned) -> Callable[[SearchSettings], int]:
    """Return what gives the bytes that a search takes with some settings."""
    nq = search.queries.shape[0]
    if search.exact:
        vectors = search.vectors
        assert vectors is not None
        return lambda settings: exact_bytes(search.codes, vectors, settings, queries=nq)
    return lambda settings: search_bytes(search.scanned, settings, queries=nq, reranked=_reranked(search))


def _reranked(search: Planned) -> Vectors | None:
    """Return the vectors that the best codes are scored again by, if any."""
    return search.vectors if search.codes is not None else None

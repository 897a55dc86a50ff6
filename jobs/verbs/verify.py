"""``mercore verify``: one verdict per query on anyone's hits, and the nearer row if refuted."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.options import Report, check_whole
from mercore.jobs.progress import progress
from mercore.jobs.resources.execution import Execution
from mercore.jobs.verbs.inputs import KernelOptions, VerbOptions
from mercore.jobs.verbs.rows.choice import RowChoice
from mercore.jobs.verbs.searches.exact import ExactTask, check_bounds, fit_exact
from mercore.jobs.verbs.searches.task import batch_size
from mercore.pipeline.encode import check_domain
from mercore.pipeline.kernels import CustomKernel, Kernel
from mercore.pipeline.linear_map import mapped_source, mapped_vectors
from mercore.pipeline.parallel import in_order
from mercore.pipeline.search.batch_search import SearchSettings
from mercore.pipeline.search.verify import PROVED, REFUTED, TIED, Verdicts
from mercore.pipeline.search.verify import verify as verify_batch
from mercore.stores.codes import CodeStore, SelectedCodes, open_code_store
from mercore.stores.errors import InputError, counted
from mercore.stores.formats import Sliced
from mercore.stores.results.hits import AnyHits, Hits, check_format, open_hits
from mercore.stores.rows import open_rows, open_vectors
from mercore.stores.spec import canonical_json
from mercore.stores.vectors import Vectors
from mercore.stores.wording import command, option


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(VerbOptions):
    """Options of verify: ``k`` ranks are verified, and ``bounds`` save most of the work."""

    kernel: KernelOptions
    bounds: str | None = None
    hits_format: str | None = None
    k: int | None = None
    rows: RowChoice = RowChoice()  # noqa: RUF009 - it is frozen
    batch: int | None = None
    check_all: bool = False
    execution: Execution = Execution()  # noqa: RUF009 - it is frozen

    def check(self) -> None:
        """Refuse a kernel that does not exist, and counts that are not whole numbers."""
        check_whole(k=self.k, batch=self.batch)
        check_format(self.hits_format)
        self.kernel.check()
        self.execution.check()


@dataclass(frozen=True, kw_only=True)
class VerifyTask:
    """A verification with its exact search open, and the claimed ``ids`` and ``scores`` [nq, k].

    ``scores`` is None if none are claimed.
    """

    search: ExactTask
    hits: AnyHits
    ids: NDArray[np.int64]
    scores: NDArray[np.floating[Any]] | None

    def check_limits(self) -> None:
        """Refuse a verification that exceeds the memory."""
        self.search.check_limits()

    def run(self) -> Report:
        """Return a verdict per query, and the nearer row if it is refuted."""
        self.check_limits()
        began = time.perf_counter()
        verdicts = list(self._verdicts())
        seconds = time.perf_counter() - began
        k, rows = self.search.settings.k, self.search.vectors.rows
        return (
            ({"hits": self.hits} if isinstance(self.hits, str) else {})
            | {"queries": len(verdicts), "k": k, "rows": rows, "seconds": round(seconds, 3)}
            | {
                word: sum(verdict["verdict"] == word for verdict in verdicts)
                for word in (PROVED, TIED, REFUTED)
            }
            | {"verdicts": verdicts}
        )

    def _verdicts(self) -> Iterator[Report]:
        """Yield one verdict per query."""
        task, nq, size = self.search, len(self.ids), self.search.settings.batch
        claimed_rows = task.vectors.rows_with(self.ids)
        starts = range(0, nq, size)
        pieces = (
            (
                task.queries.read(start, min(start + size, nq)),
                claimed_rows[start : start + size],
                None if self.scores is None else self.scores[start : start + size],
            )
            for start in starts
        )
        with (
            threadpool_limits(1),
            progress("verify", nq, "queries") as advance,
            task.searching() as search,
        ):
            every = in_order(
                ((search.share(), *piece) for piece in pieces),
                lambda batch: verify_batch(*batch),
                search.executor.concurrent_batches,
            )
            for start, verdicts in zip(starts, every, strict=True):
                scores = task.kernel.shown(task.kernel.from_ranking(verdicts.answers.scores.copy()))
                better = task.vectors.ids_of(verdicts.answers.ids)
                for query, word in enumerate(verdicts.words()):
                    claimed = self.ids[start + query]
                    refutation = _refutation(verdicts, query, claimed, better[query], scores[query])
                    yield {"query": start + query, "verdict": word} | refutation
                advance(len(better))
            if task.check_all:
                search.executor.check_rest()


def open_verify(
    vectors: str, queries: str | Sliced, hits: AnyHits, options: VerifyOptions
) -> VerifyTask:
    """Open the inputs of a verification, and check them.

    Raises
    ------
    MercoreError
        If an input does not exist, or does not fit the others.
    """
    options.check()
    name = hits if isinstance(hits, str) else "the array of hits"
    claimed = _first(open_hits(hits, options.hits_format), options.k, name)
    linear_map = options.kernel.open_map()
    rows = mapped_vectors(open_vectors(vectors), linear_map)
    kernel = options.kernel.open(rows)
    check_domain(rows, kernel)
    codes = _bounds(options.bounds, rows, kernel)
    rows = options.rows.select_vectors(rows)
    if codes is not None and rows.selection is not None:
        codes = SelectedCodes(codes, rows.selection)
    source = mapped_source(open_rows(queries), linear_map)
    if source.shape[0] != len(claimed.ids):
        queries_claimed = counted(len(claimed.ids), "query", "queries")
        raise InputError(
            f"{name} holds hits of {queries_claimed}: expected {source.shape[0]}, as "
            f"{source.name} has. Fix: name the queries that they are of."
        )
    settings = SearchSettings(
        k=claimed.ids.shape[1],
        batch=batch_size(options.batch),
        threads=options.execution.thread_count,
        custom=kernel.ranking if isinstance(kernel.ranking, CustomKernel) else None,
    )
    search = ExactTask(
        store=vectors,
        codes=codes,
        vectors=rows,
        kernel=kernel,
        queries=source,
        settings=settings,
        execution=options.execution,
        custom_file=options.kernel.file,
        map_file=options.kernel.linear_map,
        check_all=options.check_all,
    )
    return VerifyTask(
        search=fit_exact(search, batch=options.batch),
        hits=hits,
        ids=claimed.ids,
        scores=claimed.scores if kernel.ranking is kernel and kernel.normalised else None,
    )


def _first(hits: Hits, k: int | None, named: str) -> Hits:
    """Return the first ``k`` hits of each query, or all; refuse a ``k`` above their number."""
    if not hits.ids.size:
        raise InputError(
            f"{named} holds no ids: expected at least one per query. Fix: name a file of hits."
        )
    most = hits.ids.shape[1]
    if k is not None and not 1 <= k <= most:
        raise InputError(
            f"k is out of range: found {k}, expected 1 to {most}, the ids per query in {named}. "
            f"Fix: leave {option('k')} out."
        )
    return Hits(scores=None if hits.scores is None else hits.scores[:, :k], ids=hits.ids[:, :k])


def _refutation(
    verdicts: Verdicts,
    query: int,
    claimed: NDArray[np.int64],
    better: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> Report:
    """Return the first wrong rank and the row that belongs there, or nothing if all are right."""
    rank = int(verdicts.ranks[query])
    if rank < 0:
        return {}
    return {
        "rank": rank + 1,
        "claimed": int(claimed[rank]),
        "better": int(better[rank]),
        "score": float(scores[rank]),
    }


def _bounds(path: str | None, vectors: Vectors, kernel: Kernel) -> CodeStore | None:
    """Open bounds; refuse those of other vectors or of another kernel."""
    if path is None:
        return None
    codes = open_code_store(path)
    check_bounds(codes)
    actual = f"vectors {codes.spec.source}", f"kernel {canonical_json(codes.spec.kernel)}"
    expected = f"vectors {vectors.fingerprint}", f"kernel {canonical_json(kernel.spec())}"
    differing = [pair for pair in zip(actual, expected, strict=True) if pair[0] != pair[1]]
    if differing:
        theirs, ours = (", ".join(words) for words in zip(*differing, strict=True))
        if codes.spec.source in {state.fingerprint for state in vectors.history}:
            ours += f", to which rows were appended after {codes.rows:,}"
        raise InputError(
            f"{path} holds bounds of other data: found {theirs}, expected {ours}. "
            f"Fix: {command('encode', vectors.where, 'BOUNDS', encoder='bound')}"
        )
    return codes

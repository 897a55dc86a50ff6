"""Verify anyone's neighbours from the command line: a verdict a query, and what is nearer where one is refuted."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mercore.jobs.progress import progress
from mercore.jobs.resources.execution import custom_kernel_file, execution_of
from mercore.jobs.resources.limits import batch_of
from mercore.jobs.verbs.exact import ExactTask, check_bounds, ready
from mercore.jobs.verbs.inputs import kernel_of
from mercore.pipeline.encode import check_domain
from mercore.pipeline.kernels import CustomKernel, Kernel
from mercore.pipeline.parallel import in_order
from mercore.pipeline.search.batch_search import SearchSettings
from mercore.pipeline.search.exact_scorer import ExactScorer
from mercore.pipeline.search.verify import PROVED, REFUTED, TIED, Verdicts
from mercore.pipeline.search.verify import verify as verify_batch
from mercore.stores.codes import CodeStore, open_code_store
from mercore.stores.errors import InputError
from mercore.stores.formats import Sliced
from mercore.stores.results.hits import AnyHits, Hits, open_hits
from mercore.stores.rows import open_rows, open_vectors
from mercore.stores.spec import canonical_json
from mercore.stores.vectors import Vectors, original_ids, stored_rows

Report = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What is claimed of a search that is ready to run: ``ids`` int64[nq, k], and their scores if they say any."""

    job: ExactTask
    ids: NDArray[np.int64]
    scores: NDArray[np.floating[Any]] | None


def verify(vectors: str, queries: str | Sliced, hits: AnyHits, **options: Any) -> Report:  # noqa: ANN401
    """Return for each query whether its hits are the true nearest rows, in order, and what is nearer where not."""
    began = time.perf_counter()
    claimed = claims(vectors, queries, hits, options)
    verdicts = list(_verdicts(claimed))
    seconds = time.perf_counter() - began
    k, rows = claimed.job.settings.k, claimed.job.vectors.rows
    return (
        ({"hits": hits} if isinstance(hits, str) else {})
        | {"queries": len(verdicts), "k": k, "rows": rows, "seconds": round(seconds, 3)}
        | {word: sum(verdict["verdict"] == word for verdict in verdicts) for word in (PROVED, TIED, REFUTED)}
        | {"verdicts": verdicts}
    )


def claims(vectors: str, queries: str | Sliced, hits: AnyHits, options: Mapping[str, Any]) -> Claims:
    """Open all that verifying reads, and refuse what cannot be verified, before any work.

    Raises
    ------
    MercoreError
        If something is not there, does not belong together, or would take more than ``memory``.
    """
    named = hits if isinstance(hits, str) else "the array of hits"
    found = _first(open_hits(hits), options.get("k"), named)
    rows = open_vectors(vectors)
    kernel = kernel_of(options, rows)
    check_domain(rows, kernel)
    codes = _bounds(options.get("bounds"), rows, kernel)
    execution = execution_of(options)
    settings = SearchSettings(
        k=found.ids.shape[1],
        batch=batch_of(options),
        threads=execution.threads,
        custom=kernel.ranking if isinstance(kernel.ranking, CustomKernel) else None,
    )
    source = open_rows(queries)
    if source.shape[0] != len(found.ids):
        raise InputError(
            f"{named} holds hits of {len(found.ids)} queries: expected {source.shape[0]}, as {source.name} has. "
            "Fix: name the queries that they are of."
        )
    job = ready(ExactScorer(vectors=rows, kernel=kernel), codes, source, settings, options)
    job = replace(job, custom_kernel_file=custom_kernel_file(options))
    return Claims(job=job, ids=found.ids, scores=found.scores if kernel.ranking is kernel else None)


def tell(report: Report) -> None:
    """Print query, verdict and, where one is refuted, rank, claimed id, better id and its score; counts on stderr."""
    click.echo("query\tverdict\trank\tclaimed\tbetter\tscore")
    for verdict in report["verdicts"]:
        fields = (verdict.get(name, "") for name in ("query", "verdict", "rank", "claimed", "better", "score"))
        click.echo("\t".join(map(str, fields)))
    counts = ", ".join(f"{report[word]:,} {word}" for word in (PROVED, TIED, REFUTED))
    click.echo(
        f"{report['queries']:,} queries × {report['rows']:,} rows in {report['seconds']:.2f} s: {counts}", err=True
    )


def _first(hits: Hits, k: int | None, named: str) -> Hits:
    """Return the first ``k`` hits of each query, or all; refuse more than there are."""
    if not hits.ids.size:
        raise InputError(f"{named} holds no ids: expected at least one a query. Fix: name a file of hits.")
    most = hits.ids.shape[1]
    if k is not None and not 1 <= k <= most:
        raise InputError(
            f"k is out of range: found {k}, expected 1 to {most}, the ids of a query in {named}. Fix: leave -k out."
        )
    return Hits(scores=None if hits.scores is None else hits.scores[:, :k], ids=hits.ids[:, :k])


def _verdicts(found: Claims) -> Iterator[Report]:
    """Yield a verdict a query."""
    job, claimed, said = found.job, found.ids, found.scores
    nq, size, dropped = len(claimed), job.settings.batch, job.vectors.dropped
    stored = stored_rows(claimed, dropped)
    stored[stored >= job.vectors.rows] = -1
    starts = range(0, nq, size)
    batches = (
        (
            job.queries.read(start, min(start + size, nq)),
            stored[start : start + size],
            None if said is None else said[start : start + size],
        )
        for start in starts
    )
    with threadpool_limits(1), progress("verify", nq, "queries") as advance, job.searching() as search:
        every = in_order(batches, lambda batch: verify_batch(search, *batch), search.executor.concurrent_batches)
        for start, verdicts in zip(starts, every, strict=True):
            scores = job.kernel.from_ranking(verdicts.answers.scores.copy())
            better = original_ids(verdicts.answers.ids, dropped)
            for query, word in enumerate(verdicts.words()):
                told = _refutation(verdicts, query, claimed[start + query], better[query], scores[query])
                yield {"query": start + query, "verdict": word} | told
            advance(len(better))
        search.executor.check_rest()


def _refutation(
    verdicts: Verdicts, query: int, claimed: NDArray[np.int64], better: NDArray[np.int64], scores: NDArray[np.float64]
) -> Report:
    """Return at which rank a claim is wrong, and what belongs there; nothing for one that is right."""
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
    """Return the bounds of these very vectors under this very kernel."""
    if path is None:
        return None
    codes = open_code_store(path)
    check_bounds(codes)
    found = f"vectors {codes.spec.source}", f"kernel {canonical_json(codes.spec.kernel)}"
    expected = f"vectors {vectors.fingerprint}", f"kernel {canonical_json(kernel.spec())}"
    differing = [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]]
    if differing:
        theirs, ours = (", ".join(words) for words in zip(*differing, strict=True))
        raise InputError(
            f"{path} bounds others: found {theirs}, expected {ours}. "
            f"Fix: mercore encode {vectors.where} BOUNDS --encoder bound"
        )
    return codes

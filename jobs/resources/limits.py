"""What work takes in memory, and the refusal of what would not fit."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import click

from mercore.jobs.resources.execution import Execution
from mercore.pipeline.encode import spec_of
from mercore.pipeline.ingest import BLOCK_BYTES
from mercore.pipeline.search.batch_search import SearchSettings
from mercore.pipeline.search.bounded import PARTS_AT_ONCE, window_rows
from mercore.pipeline.search.collect import PairBudget
from mercore.pipeline.search.exact import SPARE
from mercore.pipeline.search.exhaustive import block_rows
from mercore.pipeline.search.fetch import ROW_CACHE_BYTES
from mercore.pipeline.search.thread_executor import PART_CACHE_BYTES
from mercore.stores.codes import CodeStore
from mercore.stores.distinct import HELD
from mercore.stores.errors import BudgetError
from mercore.stores.formats.source import Source
from mercore.stores.location.resolve import Where, location_of
from mercore.stores.vector_writer import CHUNK_BYTES
from mercore.stores.vectors import Vectors

AT_ONCE = 2  # batches, so that workers elsewhere have work while what came back of one is looked through
INTERPRETER_BYTES = 340 << 20  # Python with numba, Dask and Zarr while it compiles the loops; then 190 to 290 MiB
DEFAULT_BATCH = 1024
PAIR_BYTES = 64  # of a pair that a bound leaves: listed, joined, and a few numbers more
FEW_QUERIES = 64  # of a batch: with fewer, a search takes much longer


def check_budget(verb: str, needed: int, memory: int | None, fix: str) -> int:
    """Refuse work whose planned peak is above ``memory`` bytes, if that is given; return how many it leaves.

    Raises
    ------
    BudgetError
        Before any work.
    """
    total = INTERPRETER_BYTES + needed
    if memory is not None and total > memory:
        raise BudgetError(
            f"{verb} would take {_gib(total)}: expected at most {_gib(memory)}, as --memory says. Fix: {fix}."
        )
    return 0 if memory is None else memory - total


def taken_at(execution: Execution, one: int) -> int:
    """Return what a workplace takes beyond this process's interpreter, if this process and each worker take ``one``.

    Processes count, each with an interpreter of its own; a cluster's workers are not this machine's.
    """
    return one + (execution.processes or 0) * (INTERPRETER_BYTES + one)


def batches_at(execution: Execution) -> int:
    """Return how many batches of queries are before each that works."""
    return AT_ONCE if execution.remote else 1


def batch_of(options: Mapping[str, Any]) -> int:
    """Return the batch that the options name, or the default."""
    batch = options.get("batch")
    return DEFAULT_BATCH if batch is None else int(batch)


def check_disk(verb: str, where: Where, needed: int) -> None:
    """Refuse work that would write more than is free there.

    Raises
    ------
    BudgetError
        Before any work.
    """
    free = location_of(where).free_bytes()
    if free is not None and needed > free:
        raise BudgetError(
            f"{verb} would write {_gib(needed)}: expected at most {_gib(free)}, which is free for {where}. "
            "Fix: free space there, or name a path on another disk."
        )


def within_memory(
    settings: SearchSettings, execution: Execution, needs: Callable[[SearchSettings], int], options: Mapping[str, Any]
) -> SearchSettings:
    """Return the settings of a search that a workplace's memory allows: what is left of it holds codes.

    Parameters
    ----------
    needs : what each that works there takes for a batch at a time
    options : the verb's, which say what the user left open

    Raises
    ------
    BudgetError
        If even the least takes more.
    """

    def taken(some: SearchSettings) -> int:
        return taken_at(execution, batches_at(execution) * needs(some))

    settings = fitted(settings, taken, options)
    fix = "a smaller --batch" + execution.or_fewer
    return replace(settings, cache_bytes=check_budget("searching", taken(settings), execution.memory, fix))


def fitted(
    settings: SearchSettings, needs: Callable[[SearchSettings], int], options: Mapping[str, Any]
) -> SearchSettings:
    """Return the first settings, from these to the thriftiest, that ``memory`` allows; say on stderr what is less.

    What the user named is kept.
    """
    memory = options.get("memory")
    found = settings
    for found in () if memory is None else _thriftier(settings, needs, options):
        if _fits(needs(found), memory):
            break
    if found != settings and _fits(needs(found), memory):
        window = "" if found.window is None else f", of parts at once: {found.window}"
        told = f"queries in a batch: {found.batch}, threads: {found.threads}{window}"
        click.echo(f"--memory allows no more than this: {told}", err=True)
    return found


def _thriftier(
    settings: SearchSettings, needs: Callable[[SearchSettings], int], options: Mapping[str, Any]
) -> Iterator[SearchSettings]:
    """Yield settings that take less and less memory: first what costs little time."""
    found = settings
    yield found
    while options.get("batch") is None and found.batch > FEW_QUERIES:
        found = replace(found, batch=found.batch // 2)
        yield found
    while (found.window is None or found.window > 1) and needs(replace(found, window=1)) < needs(found):
        found = replace(found, window=PARTS_AT_ONCE if found.window is None else found.window // 2)
        yield found
    while options.get("threads") is None and found.threads > 1:
        found = replace(found, threads=found.threads // 2)
        yield found
    while options.get("batch") is None and found.batch > 1:
        found = replace(found, batch=found.batch // 2)
        yield found


def workers_within(needs: Callable[[int], int], given: int | None, cores: int, memory: int | None) -> int:
    """Return how many workers ``memory`` allows, which is said on stderr where it is less than the cores."""
    if given is not None:
        return given
    workers = cores
    while workers > 1 and not _fits(needs(workers), memory):
        workers -= 1
    if workers < cores and _fits(needs(workers), memory):
        click.echo(f"--memory allows no more than this: workers: {workers}", err=True)
    return workers


def ingest_bytes(source: Source) -> int:
    """Return what ingesting takes beyond the interpreter: blocks, a chunk being encoded, and digests being sorted."""
    return 8 * BLOCK_BYTES + 8 * CHUNK_BYTES + 24 * min(source.shape[0], HELD + BLOCK_BYTES // source.shape[1])


def search_bytes(
    store: CodeStore | Vectors, options: SearchSettings, *, queries: int, reranked: Vectors | None = None
) -> int:
    """Return what searching takes beyond the interpreter: tables or queries, lists of the best, buffers, and answers.

    Parameters
    ----------
    queries : int
        Number of queries in all; their answers are held until the end.
    reranked : Vectors, optional
        Where the best codes are scored again.
    """
    kept = max(options.k, options.rerank or 0)
    batch = min(options.batch, queries)
    lists = batch * kept * 16 * (2 * options.threads + 2) + 2 * queries * options.k * 16
    if reranked is not None:
        rows = reranked.part_rows * reranked.dims
        lists += options.threads * rows * (2 * reranked.dtype.itemsize + 24)
    if isinstance(store, CodeStore):
        row = sum(store.store.stored_bytes.values()) / store.rows
        plain = all(store.store.layout.column(name).is_plain for name in store.store.layout.column_names)
        read = (2 if plain else 4) * options.threads * int(store.store.layout.part_rows * row)
        model = sum(values.nbytes for values in store.model.values())
        tables = batch * spec_of(store).query_bytes(store.spec.dims)
        return int(4 * model + tables + lists + read)
    chunk = store.part_rows * store.dims * store.dtype.itemsize
    block = block_rows(store.dims) * (store.dims * 24 + batch * 8)
    return batch * store.dims * 20 + lists + options.threads * (3 * chunk + block)


def exact_bytes(codes: CodeStore | None, vectors: Vectors, options: SearchSettings, *, queries: int) -> int:
    """Return what an exact search takes: that of every row's scores, and what bounds leave of a window.

    A query whose bounds leave a larger share is answered by every row.
    """
    most = replace(options, k=min(vectors.rows, options.k + SPARE))
    needed = search_bytes(vectors, most, queries=queries)
    if codes is None:
        return needed
    batch = min(options.batch, queries)
    rows = min(vectors.rows, window_rows(codes.store.layout.part_rows, batch, options.window))
    budget = PairBudget.of(options.k, roomy=options.window is None)
    pairs = int((budget.share * batch + budget.a_row) * rows)
    rows_left = min(rows, pairs) * vectors.dims * vectors.dtype.itemsize
    return (
        needed
        + search_bytes(codes, options, queries=queries)
        + PAIR_BYTES * pairs
        + rows_left
        + ROW_CACHE_BYTES
        + PART_CACHE_BYTES
        + 9 * rows
        + vectors.rows
    )


def _fits(needed: int, memory: int | None) -> bool:
    """Return whether so many bytes beside the interpreter's are within the memory, if that is given."""
    return memory is None or INTERPRETER_BYTES + needed <= memory


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"

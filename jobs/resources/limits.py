"""Memory that work takes, and the refusal of work that exceeds ``--memory``."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import click
import numpy as np

from mercore.jobs.printing import format_size
from mercore.jobs.resources.execution import Execution
from mercore.pipeline.cells.centres import NEARNESS
from mercore.pipeline.cells.probe import BLOCK
from mercore.pipeline.encode import spec_of
from mercore.pipeline.ingest import BLOCK_BYTES
from mercore.pipeline.orders.candidates import candidate_bytes
from mercore.pipeline.search.batch_search import SearchSettings
from mercore.pipeline.search.bounded import PARTS_AT_ONCE, window_rows
from mercore.pipeline.search.collect import PairBudget
from mercore.pipeline.search.exact import SPARE
from mercore.pipeline.search.exhaustive import block_rows
from mercore.pipeline.search.fetch import ROW_CACHE_BYTES
from mercore.pipeline.search.thread_executor import PART_CACHE_BYTES
from mercore.stores.codes import CodeStore
from mercore.stores.distinct import CAPACITY
from mercore.stores.errors import BudgetError
from mercore.stores.formats.source import Source
from mercore.stores.indexes import CellStore, OrderStore
from mercore.stores.part_store.header import row_bytes
from mercore.stores.vector_writer import CHUNK_BYTES, WRITERS
from mercore.stores.vectors import Vectors
from mercore.stores.wording import option

AT_ONCE = 2  # batches on remote workers: one is searched while the other is merged here
INTERPRETER_BYTES = (
    340 << 20
)  # Python with numba, Dask and Zarr while it compiles; 190 to 290 MiB afterwards
ORDER_ROW_BYTES = 16  # at most, per row of a sorted order
PAIR_BYTES = 64  # per (query, row) pair that a bound leaves
MIN_FAST_BATCH = 64  # smaller batches make a search much slower


def check_budget(verb: str, needed: int, memory: int | None, fix: str) -> None:
    """Refuse work that needs more than ``memory`` bytes, with those of the interpreter.

    Raises
    ------
    BudgetError
        If it does.
    """
    total = INTERPRETER_BYTES + needed
    if memory is not None and total > memory:
        raise BudgetError(
            f"{verb} would take {format_size(total)}: expected at most {format_size(memory)}, as "
            f"{option('memory')} says. Fix: {fix}."
        )


def taken_at(execution: Execution, one: int) -> int:
    """Return the bytes beyond this interpreter's if this process and each worker take ``one``.

    Processes of this machine count, each with its interpreter; workers of a cluster do not.
    """
    return one + (execution.processes or 0) * (INTERPRETER_BYTES + one)


def fitted(
    settings: SearchSettings,
    needs: Callable[[SearchSettings], int],
    memory: int | None,
    keep: Collection[str],
) -> SearchSettings:
    """Return settings shrunk until they fit ``memory``; print them if they shrank.

    Parameters
    ----------
    needs : the bytes that a search takes with some settings
    keep : "batch", "threads": settings that the user named, which do not shrink
    """
    smaller = settings
    for smaller in () if memory is None else _smaller_settings(settings, needs, keep):
        if fits(needs(smaller), memory):
            break
    if smaller != settings and fits(needs(smaller), memory):
        window = "" if smaller.window is None else f", parts at once: {smaller.window}"
        allowed = f"queries per batch: {smaller.batch}, threads: {smaller.threads}{window}"
        click.echo(f"--memory allows no more than this: {allowed}", err=True)
    return smaller


def _smaller_settings(
    settings: SearchSettings, needs: Callable[[SearchSettings], int], keep: Collection[str]
) -> Iterator[SearchSettings]:
    """Yield settings that take less and less memory; those that cost little time come first."""

    def halved(name: str, least: int) -> Iterator[SearchSettings]:
        nonlocal settings
        while name not in keep and getattr(settings, name) > least:
            settings = replace(settings, **{name: getattr(settings, name) // 2})
            yield settings

    yield settings
    yield from halved("batch", MIN_FAST_BATCH)
    while (settings.window is None or settings.window > 1) and needs(
        replace(settings, window=1)
    ) < needs(settings):
        settings = replace(
            settings, window=PARTS_AT_ONCE if settings.window is None else settings.window // 2
        )
        yield settings
    yield from halved("threads", 1)
    yield from halved("batch", 1)


def workers_within(needs: Callable[[int], int], cores: int, memory: int | None) -> int:
    """Return the number of workers that fits ``memory``; print it if it is below ``cores``."""
    workers = cores
    while workers > 1 and not fits(needs(workers), memory):
        workers -= 1
    if workers < cores and fits(needs(workers), memory):
        click.echo(f"--memory allows no more than this: workers: {workers}", err=True)
    return workers


def ingest_bytes(source: Source) -> int:
    """Return the bytes of an ingest beyond the interpreter: blocks, chunks, and digests."""
    return (
        8 * BLOCK_BYTES
        + 2 * WRITERS * CHUNK_BYTES
        + 24 * min(source.shape[0], CAPACITY + BLOCK_BYTES // source.shape[1])
    )


def searched_at_once(options: SearchSettings, queries: int) -> tuple[int, int]:
    """Return the number of queries in all batches that run at the same time, and threads of one."""
    at_once = options.concurrent_batches(queries)
    return min(at_once * options.batch, queries), -(-options.threads // at_once)


def search_bytes(
    store: CodeStore | Vectors,
    options: SearchSettings,
    *,
    queries: int,
    reranked: Vectors | None = None,
) -> int:
    """Return the bytes of a search beyond the interpreter.

    Parameters
    ----------
    queries : number of all queries, whose answers are kept until the end
    reranked : the vectors by which the best codes are scored again
    """
    kept = max(options.k, options.rerank or 0)
    searched, threads = searched_at_once(options, queries)
    lists = searched * kept * 16 * (2 * threads + 2) + 2 * queries * options.k * 16
    if reranked is not None:
        lists += reranked.open_bytes + options.threads * _scored_part_bytes(reranked)
    if isinstance(store, CodeStore):
        row = sum(store.stored_bytes.values()) / store.store.layout.rows
        plain = all(
            store.store.layout.column(name).is_plain for name in store.store.layout.column_names
        )
        part = int(store.store.layout.part_rows * row)
        read = options.threads * ((2 if plain else 4) * part + 2 * store.read_bytes)
        model = sum(values.nbytes for values in store.model.values())
        tables = searched * spec_of(store).memory(store.spec.dims).query
        return int(4 * model + tables + lists + read + store.open_bytes)
    chunk = store.part_rows * store.dims * store.dtype.itemsize
    block = block_rows(store.dims) * (store.dims * 24 + min(options.batch, queries) * 8)
    thread = 3 * chunk + block + store.read_bytes
    return searched * store.dims * 20 + lists + store.open_bytes + options.threads * thread


def label_bytes(
    options: SearchSettings, queries: int, stores: Sequence[CodeStore | Vectors]
) -> int:
    """Return the bytes of labels, of a selection per batch, and of copies of selected rows."""
    if options.labels is None:
        return 0
    copies = sum(options.threads * 2 * _part_bytes(store) for store in stores)
    return options.labels.bytes_with(options.concurrent_batches(queries)) + copies


def _part_bytes(store: CodeStore | Vectors) -> int:
    """Return the bytes of a part of a store."""
    if isinstance(store, CodeStore):
        layout = store.store.layout
        return sum(store.stored_bytes.values()) * layout.part_rows // layout.rows
    return store.part_rows * store.dims * store.dtype.itemsize


def order_search_bytes(
    orders: OrderStore, vectors: Vectors, options: SearchSettings, *, neighbours: int, queries: int
) -> int:
    """Return the bytes of a search of sorted orders beyond the interpreter.

    It holds the candidates of a batch, a part of an order per thread, and reranks candidates.
    """
    batch = min(options.batch, queries)
    candidates = candidate_bytes(batch, orders.orders, neighbours)
    model = sum(values.nbytes for values in orders.model.values())
    tables = batch * spec_of(orders).memory(orders.spec.dims).query
    parts = options.threads * max(ORDER_ROW_BYTES * orders.part_rows, _scored_part_bytes(vectors))
    lists = (batch + 2 * queries) * options.k * 16
    return int(4 * model + tables + lists + candidates + vectors.open_bytes + parts)


def cell_search_bytes(
    cells: CellStore, vectors: Vectors | None, options: SearchSettings, *, probes: int, queries: int
) -> int:
    """Return the bytes of a search of cells beyond the interpreter.

    It holds the model, and per thread the tables of some queries, and the rows of the cells of one,
    which may be the largest ones.
    """
    batch = min(options.batch, queries)
    model = sum(values.nbytes for values in cells.model.values())
    tables = BLOCK * (3 * spec_of(cells).memory(cells.spec.dims).query + 8 * probes)
    scanned = int(np.sort(cells.sizes)[-probes:].sum())
    thread = scanned * (3 * row_bytes(cells.store.layout.columns) + 24)
    if vectors is not None:
        thread = max(thread, _scored_part_bytes(vectors))
    lists = (batch * (options.rerank or options.k) + 2 * queries * options.k) * 16
    held = 0 if vectors is None else vectors.open_bytes
    return int(4 * model + 4 * NEARNESS + lists + held + options.threads * (thread + tables))


def _scored_part_bytes(vectors: Vectors) -> int:
    """Return the bytes of a part of vectors while some of its rows are scored."""
    numbers = vectors.part_rows * vectors.dims
    return numbers * (2 * vectors.dtype.itemsize + 24) + vectors.read_bytes


def exact_bytes(
    codes: CodeStore | None, vectors: Vectors, options: SearchSettings, *, queries: int
) -> int:
    """Return the bytes of an exact search: to score every row, and to keep pairs that bounds leave.

    If the bounds of a query leave more, every row is scored for it.
    """
    most = replace(options, k=min(vectors.rows, options.k + SPARE))
    needed = search_bytes(vectors, most, queries=queries)
    if codes is None:
        return needed
    batch = min(options.batch, queries)
    rows = min(vectors.rows, window_rows(codes.part_rows, batch, options.window))
    budget = PairBudget.of(options.k, roomy=options.window is None)
    pairs = int((budget.share * batch + budget.a_row) * rows)
    rows_left = min(rows, pairs) * vectors.dims * vectors.dtype.itemsize
    caches = ROW_CACHE_BYTES + PART_CACHE_BYTES
    a_batch = PAIR_BYTES * pairs + rows_left + caches + 10 * rows
    a_search = search_bytes(codes, options, queries=queries)
    return needed + a_search + options.concurrent_batches(queries) * a_batch


def fits(needed: int, memory: int | None) -> bool:
    """Return whether the interpreter and ``needed`` bytes fit the memory, if that is limited."""
    return memory is None or INTERPRETER_BYTES + needed <= memory

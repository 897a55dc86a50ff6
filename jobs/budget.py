"""What work takes in memory, and the refusal of what would not fit."""

from dataclasses import replace

from pipeline.bounded import A_ROW, FAILING, window_rows
from pipeline.encode import spec_of
from pipeline.exact import SPARE
from pipeline.exhaustive import BLOCK_ROWS
from pipeline.search import SearchOptions
from stores.codes import CodeStore
from stores.errors import BudgetError
from stores.vectors import Vectors

INTERPRETER_BYTES = 400 << 20  # Python with numba, Dask and Zarr loaded and the loops compiled


def check_budget(verb: str, needed: int, memory: int | None, mend: str) -> int:
    """Refuse work whose planned peak is above ``memory`` bytes, if that is given; return how many it leaves.

    Raises
    ------
    BudgetError
        Before any work.
    """
    total = INTERPRETER_BYTES + needed
    if memory is not None and total > memory:
        raise BudgetError(
            f"{verb} would take {_gib(total)}: expected at most {_gib(memory)}, as --memory says. Mend: {mend}."
        )
    return 0 if memory is None else memory - total


def search_bytes(
    store: CodeStore | Vectors, options: SearchOptions, *, queries: int, reranked: Vectors | None = None
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
    lists = options.batch * kept * 16 * (2 * options.threads + 2) + 2 * queries * options.k * 16
    if reranked is not None:
        rows = reranked.part_rows * reranked.dims
        lists += options.threads * rows * (2 * reranked.dtype.itemsize + 24)
    if isinstance(store, CodeStore):
        row = sum(store.store.stored_bytes.values()) / store.rows
        read = 2 * options.threads * int(store.store.layout.part_rows * row * 2)
        model = sum(values.nbytes for values in store.model.values())
        tables = min(options.batch, queries) * spec_of(store).query_bytes(store.spec.dims)
        return int(4 * model + tables + lists + read)
    chunk = store.part_rows * store.dims * store.dtype.itemsize
    return (
        options.batch * store.dims * 20
        + lists
        + options.threads * (3 * chunk + BLOCK_ROWS * (store.dims * 24 + options.batch * 8))
    )


def exact_bytes(codes: CodeStore | None, vectors: Vectors, options: SearchOptions, *, queries: int) -> int:
    """Return what an exact search takes: that of every row's scores, and what bounds leave of a window.

    A query whose bounds leave a larger share is answered by every row.
    """
    most = replace(options, k=min(vectors.rows, options.k + SPARE))
    needed = search_bytes(vectors, most, queries=queries)
    if codes is None:
        return needed
    batch = min(options.batch, queries)
    rows = min(vectors.rows, window_rows(codes.store.layout.part_rows, batch))
    pairs = int((FAILING * batch + A_ROW) * rows)
    rows_left = min(rows, pairs) * vectors.dims * vectors.dtype.itemsize
    return needed + search_bytes(codes, options, queries=queries) + 100 * pairs + rows_left + 9 * rows + vectors.rows


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
